"""The kernels of a direct grouped convolution: the loops around the tiles, and the filter's packing."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.codegen.c.epilogue import vector_activation
from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.axis import AxisPhase, Columns
from tilesmith.solvers.c.common.text import C_TYPES, ENTRY, PICK, element_types, row_of_zeros
from tilesmith.solvers.c.grouped.tile import GroupedTile, Strips
from tilesmith.solvers.c.grouped.tile_text import TileText


def _stream(name: str) -> str:
    """A store past the caches, where the address allows.

    NOTE: such stores are weakly ordered: the kernel ends with a fence.
    """
    kind, narrow = ("ts_vf", "") if name == "fp32" else ("ts_vh", f"ts_narrow_{name}")
    return f"""TS_INLINE void {MARK}_STREAM(void *p, ts_vf v) {{
#if defined(__AVX__)
  {kind} h = {narrow}(v);
  if (((ts_uptr)p & (sizeof h - 1)) == 0) {{
    __asm__ volatile("vmovntps %1, %0" : "=m"(*({kind}_at *)p) : "v"(h));
    return;
  }}
#endif
  ts_store_{name}(p, v);
}}
"""


_FENCE = """#if defined(__AVX__)
  __asm__ volatile("sfence" ::: "memory");
#endif
"""


def run_body(t: GroupedTile) -> str:
    """Text of the kernel; pointers: what is read, packed filter, [bias], [residual], result."""
    epilogue, lanes = t.problem.epilogue, t.lanes
    calls = []
    for number, kind in enumerate(t.strips):
        where = f"at / {kind.repeat}, at % {kind.repeat}, first, stop"
        b, z = "p[2]" if epilogue.bias else "0", f"p[{2 + epilogue.bias}]" if epilogue.residual else "0"
        last = 2 + epilogue.bias + epilogue.residual
        calls.append(f"""    if (at >= 0 && at < {kind.count})
      {MARK}_strip{number}(p[0], p[1], p[{last}], {z}, {b}, n, {where});
    at -= {kind.count};
""")
    return "".join([
        element_types(t.x.dtype, t.y.dtype),
        vector_activation(epilogue) if epilogue.activation != "none" else "",
        row_of_zeros(t.zero_row),
        "" if lanes.splat else PICK,
        _stream("fp32" if lanes.twin else t.y.dtype) if t.stream else "",
        *(_strip_function(t, number, kind) for number, kind in enumerate(t.strips)),
        f"""{ENTRY}
  (void)s, (void)scratch;
  for (ts_i64 item = begin; item < end; item++) {{
    ts_i64 n = item / {t.items_per_image}, at = item % {t.items_per_image}, first = at % {t.chunks} * {t.chunk};
    ts_i64 stop = first + {t.chunk} < {lanes.blocks} ? first + {t.chunk} : {lanes.blocks};
    at /= {t.chunks};
""",
        *calls,
        "  }\n",
        _FENCE if t.stream else "",
        "}\n",
    ])  # fmt: skip


def _tile_texts(t: GroupedTile, number: int) -> Iterator[tuple[str, AxisPhase, tuple[Columns, ...]]]:
    """The name of every text of a tile of strip ``number``, its phase, and the columns that it is for."""
    for w_number, width in enumerate(t.widths):
        for t_number, columns in enumerate(t.column_tiles(width)):
            yield f"{MARK}_tile{number}_{w_number}_{t_number}", width, tuple(columns)


def _strip_function(t: GroupedTile, number: int, kind: Strips) -> str:
    """All tiles of one strip of rows, with the functions of its tiles before it."""
    x, y, depth, height = t.x.strides, t.y.strides, kind.depth, kind.height
    rows = kind.input_rows(t.problem.filter[1])
    functions = [
        TileText(t, kind, width, columns, tail).lines(f"{name}{'t' if tail else ''}", rows)
        for name, width, columns in _tile_texts(t, number)
        for tail in t.lanes.kinds
    ]
    first = f"({kind.first} + strip * {kind.rows})"
    outside = "0" if not t.zero_products else f"{MARK}_zeros" if t.zero_row else "x"
    places = "".join(f"      {{{row.depth}, {row.height}}},\n" for row in rows)
    found = f"""  static const int place[{len(rows)}][2] = {{
{places}  }};
  for (int i = 0; i < {len(rows)}; i++) {{
    ts_i64 dd = d * {depth.in_step} + place[i][0];
    ts_i64 hh = {first} * {height.in_step} + place[i][1];
    q[i] = dd >= 0 && dd < {depth.in_size} && hh >= 0 && hh < {height.in_size}\
 ? x + n * {x[0]} + dd * {x[2]} + hh * {x[3]} : {outside};
  }}
"""
    at = (
        f"n * {y[0]} + (d * {depth.out_step} + {depth.out_start}) * {y[2]}"
        f" + ({first} * {height.out_step} + {height.out_start}) * {y[3]}"
    )
    return "".join([
        *functions,
        f"TS_NOINLINE void {MARK}_strip{number}(const {MARK}_x *x, const ts_vf *w, {MARK}_y *y, const {MARK}_y *z,"
        f" const {MARK}_y *b, ts_i64 n, ts_i64 d, ts_i64 strip, ts_i64 first, ts_i64 stop) {{\n"
        "  (void)x, (void)z, (void)b, (void)d;\n"
        f"  const {MARK}_x *q[{max(1, len(rows))}];\n",
        found if rows else "",
        f"  y += {at};\n",
        f"  z += {at};\n" if t.problem.epilogue.residual else "",
        *_calls(t, number),
        "}\n",
    ])  # fmt: skip


def _calls(t: GroupedTile, number: int) -> list[str]:
    """The loops over all column tiles of a strip, in the order of memory within a phase."""
    tiles = ((name, width, one) for name, width, columns in _tile_texts(t, number) for one in columns)
    ordered = sorted(tiles, key=lambda tile: (tile[1].out_start, tile[2].start))
    return [_call(t, name, width, one) for name, width, one in ordered]


def _call(t: GroupedTile, name: str, width: AxisPhase, columns: Columns) -> str:
    """The loops over one kind of column tile: columns outside, channels inside, so that memory is read in order."""
    lanes, epilogue = t.lanes, t.problem.epilogue
    out = f"(u * {width.out_step} + {width.out_start}) * {t.y.strides[4]} + {lanes.first_output('c')}"
    arguments = (
        f"q, u * {width.in_step * t.x.strides[4]} + {lanes.first_input('c')}, u, w + c * {t.block_vectors}, y + {out}, "
        f"{f'z + {out}' if epilogue.residual else '0'}, {'b + ' + lanes.first_output('c') if epilogue.bias else '0'}"
    )
    calls = [f"{name}{'t' if tail else ''}({arguments});" for tail in lanes.kinds]
    call = calls[0] if len(calls) == 1 else f"if ({lanes.is_tail('c')}) {calls[1]} else {calls[0]}"
    return (
        f"  for (ts_i64 t = 0, u = {columns.start}; t < {columns.repeat}; t++, u += {columns.width})\n"
        f"    for (ts_i64 c = first; c < stop; c++) {{ {call} }}\n"
    )


def pack_body(t: GroupedTile) -> str:
    """Text of the packing kernel; an item is a block. Pointers: filter, packed filter as [tap][step][vector][lane]."""
    problem, lanes, steps = t.problem, t.lanes, t.problem.w.strides
    (depth, rows, cols), dtype = problem.filter, problem.w.dtype
    per = lanes.vectors * lanes.width
    if lanes.twin:
        single = f"item == {lanes.blocks - 1}" if lanes.tail and not lanes.twin_in(True) else "0"
        place = (
            f"ts_i64 out = 0, group = item * {per} + ({single} ? l : l % {lanes.width} * 2 + l / {lanes.width});"
            f" int there = group < {lanes.groups};"
        )
    elif lanes.splat:
        place = (
            f"ts_i64 group = item / {lanes.split}, out = item % {lanes.split} * {per} + l;"
            f" int there = out < {lanes.outer};"
        )
    else:
        place = (
            f"ts_i64 group = item * {lanes.per_block} + l / {lanes.outer}, out = l % {lanes.outer};"
            f" int there = l < {lanes.per_block * lanes.outer} && group < {lanes.groups};"
        )
    k, c = f"group * {lanes.outer} + out", "in"
    if problem.direction == "bwd":
        k, c = f"group * {lanes.inner} + in", "out"
    element = f"w[({k}) * {steps[0]} + ({c}) * {steps[1]} + t * {steps[2]} + r * {steps[3]} + s * {steps[4]}]"
    item = t.taps * lanes.steps * per
    if lanes.pairs:
        target = f"ts_u16 *out16 = (ts_u16 *)p[1] + begin * {item * 2};"
        copy = f"""for (int e = 0; e < 2; e++) {{ ts_i64 in = step * 2 + e;
              *out16++ = there && in < {lanes.inner} ? {element} : (unsigned short)0; }}"""
    else:
        target = f"ts_f32 *out32 = (ts_f32 *)p[1] + begin * {item};"
        copy = f"{{ ts_i64 in = step; *out32++ = there ? ts_get_{dtype}(&{element}) : 0.0f; }}"
    return f"""{ENTRY.replace(" *s,", " *s_,")}
  (void)s_, (void)scratch;
  const {C_TYPES[dtype]} *w = p[0];
  {target}
  for (ts_i64 item = begin; item < end; item++)
    for (ts_i64 t = 0; t < {depth}; t++) for (ts_i64 r = 0; r < {rows}; r++) for (ts_i64 s = 0; s < {cols}; s++)
      for (ts_i64 step = 0; step < {lanes.steps}; step++)
        for (ts_i64 l = 0; l < {per}; l++) {{
            {place}
            {copy}
        }}
}}
"""
