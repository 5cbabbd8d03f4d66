"""The kernel around the tiles: items, channel blocks, phases, and the walk over an item's pixels."""

from __future__ import annotations

from tilesmith.codegen.c.epilogue import vector_activation
from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.dense_items import NOTE_BYTES, item_text
from tilesmith.solvers.c.common.text import C_TYPES, ENTRY, braced
from tilesmith.solvers.c.common.tile_registers import PIXELS, REGISTER, WIDE
from tilesmith.solvers.c.tiles.pack_text import strip_text
from tilesmith.solvers.c.tiles.tile import DIRECT, MatrixTile
from tilesmith.solvers.c.tiles.tile_text import out_text, tile_name, tile_text


def kernel_text(t: MatrixTile, guarded: bool) -> str:
    """The text of the run kernel.

    Pointers: x, packed, [bias], [residual], y; integers: images, columns, column blocks.
    """
    parts = [
        _declarations(t),
        vector_activation(t.form.epilogue) if t.form.epilogue.activation != "none" else "",
        strip_text(t) if t.pack != DIRECT else "",
    ]
    for tail in t.tails:
        parts += [tile_text(t, tiles_m, tail) for tiles_m in range(1, t.value["tiles_m"] + 1)]
        parts += [out_text(t, tail), _walk_text(t, tail)]
    return "".join([*parts, _main_text(t, guarded)])


def _declarations(t: MatrixTile) -> str:
    form = t.form
    segments: list[int] = []
    rows: list[str] = []
    for phase, start in zip(form.phases, t.phase_starts, strict=False):
        found = [t.offset(phase.taps[first]) for first in t.segments(phase)]
        # How long a flat form is, is said at run time: one text serves every length.
        count = (*phase.count[:2], 0) if form.flat else phase.count
        rows.append(braced((*phase.first, *count, len(segments), len(found), start, t.reduction(phase))))
        segments += found
    return f"""typedef struct {{
  int oz, oy, ox, od, oh, ow, seg, nseg;
  ts_i64 w, depth;
}} {MARK}_phase;
static const {MARK}_phase {MARK}_phases[{len(rows)}] = {{{", ".join(rows)}}};
static const int {MARK}_segments[{max(len(segments), 1)}] = {{{", ".join(map(str, segments)) or "0"}}};
"""


def _walk_text(t: MatrixTile, tail: bool) -> str:
    """All tiles of one item, phase and channel block."""
    epilogue, y, rows = t.form.epilogue, C_TYPES[t.form.y_dtype], t.value["tile_rows"]
    (down, right), (y_down, y_right) = t.tile_step, t.result_step
    arguments = ["const ts_u16 *x", "const ts_u16 *w", "const int *seg", "int nseg", f"{y} *y"]
    arguments += [f"const {y} *bias"] * epilogue.bias + [f"const {y} *z"] * epilogue.residual
    arguments += ["int nr", "int nc", "ts_tiles *tiles", "ts_f32 *c"] + ["int far"] * t.far
    many = t.value["tiles_m"]
    if t.line:
        count = f"const int all = (nr - 1) * {t.line} + nc, count = (all + {rows - 1}) / {rows};"
        place = f"""const int at = (q + m) * {rows};
      const int start = {f"at + {rows} > all ? all - {rows} : at" if t.pack == DIRECT else "at"};
      from[m] = x + (ts_i64)start * {right};"""
        index = f"const int at = (q + m) * {rows};"
        first = f"at + {rows} > all ? at + {rows} - all : 0" if t.pack == DIRECT else "0"
        left = "all - at"
        result = f"(ts_i64)(at / {t.line}) * {y_down} + (ts_i64)(at % {t.line}) * {y_right}"
    else:
        count = f"const int across = (nc + {rows - 1}) / {rows}, count = nr * across;"
        place = f"""const int i = (q + m) / across, j = (q + m) % across * {rows};
      const int start = {f"j + {rows} > nc ? nc - {rows} : j" if t.pack == DIRECT else "j"};
      from[m] = x + (ts_i64)i * {down} + (ts_i64)start * {right};"""
        index = f"const int i = (q + m) / across, j = (q + m) % across * {rows};"
        first = f"j + {rows} > nc ? j + {rows} - nc : 0" if t.pack == DIRECT else "0"
        left = "nc - j"
        result = f"(ts_i64)i * {y_down} + (ts_i64)j * {y_right}"
    tiles_n = t.tiles_n(tail)
    more = ", bias" * epilogue.bias + ", z + at_y" * epilogue.residual + f", at % {max(t.line, 1)}, nc" * t.gaps
    suffix = "t" if tail else ""
    calls = []
    for tiles_m in range(many, 0, -1):
        names = ", ".join(f"from[{m}]" for m in range(tiles_m))
        call = f"{tile_name(tiles_m, tail)}({names}, w, seg, nseg, tiles, c{', far' * t.far});"
        calls.append(f"if (most == {tiles_m}) {call}" if tiles_m > 1 else call)
    chosen = "\n    else ".join(calls)
    return f"""TS_NOINLINE void {MARK}_walk{suffix}({", ".join(arguments)}) {{
  {count}
  for (int q = 0; q < count; q += {many}) {{
    const int most = count - q < {many} ? count - q : {many};
    const ts_u16 *from[{many}];
    for (int m = 0; m < most; m++) {{
      {place}
    }}
    {chosen}
    for (int m = 0; m < most; m++) {{
      {index}
      const int skip = {first}, left = {left};
      const ts_i64 at_y = {result};
      {MARK}_out{suffix}(c + (m * {PIXELS} + skip) * {tiles_n * WIDE}, left < {rows} ? left : {rows}, y + at_y{more});
    }}
  }}
}}
"""


def _main_text(t: MatrixTile, guarded: bool) -> str:
    form = t.form
    y = C_TYPES[form.y_dtype]
    xs, ys = form.x_strides, form.y_strides
    first = form.first_tap
    names = iter(range(2, form.slots))
    bias = f"  const {y} *bias0 = (const {y} *)p[{next(names)}];\n" if form.epilogue.bias else ""
    residual = f"  const {y} *z0 = (const {y} *)p[{next(names)}];\n" if form.epilogue.residual else ""
    if t.pack == DIRECT:
        steps = [step * stride for step, stride in zip(form.step, xs[3:], strict=True)]
        base = f"oz * {steps[0]}LL + oy * {steps[1]}LL + ox * {steps[2]}LL"
        read = f"    const ts_u16 *xb = x0 + n * {xs[0]}LL + g * {xs[1]}LL + {base};\n"
    else:
        read = f"""    const ts_u16 *xb = (const ts_u16 *)((char *)scratch + {t.sum_bytes});
    if (held != nb) {{
      held = nb;
      {MARK}_strip(x0 + n * {xs[0]}LL + g * {xs[1]}LL, (ts_u16 *)xb,
        oz * {form.step[0]} + {first[0]}, oy * {form.step[1]} + {first[1]}, ox * {form.step[2]} + {first[2]},
        rows, cols);
    }}
"""
    offset = f"kb * {t.nr} + oz0 * {ys[3]}LL + oy0 * {ys[4]}LL + ox0 * {ys[5]}LL"
    more = ""
    if form.epilogue.bias:
        more += f", bias0 + g * {form.bias_group}LL + kb * {t.nr}"
    if form.epilogue.residual:
        more += f", z0 + (yb - y0) + {offset}"
    call = (
        f"(xb, w + (ts_i64)kb * f->depth * {t.nr}, {MARK}_segments + f->seg, f->nseg, yb + {offset}{more}, nr, nc,"
        f" tiles, c{f', kb == kg * {t.blocks} / {t.block_groups}' * t.far});"
    )
    calls = [f"{MARK}_walk{'t' if tail else ''}{call}" for tail in t.tails]
    chosen = calls[0] if len(calls) == 1 else f"if (kb < {t.full_blocks}) {calls[0]}\n        else {calls[1]}"
    columns = "s[1]" if form.flat else str(form.count[2])
    col_blocks = "s[2]" if form.flat else str(t.col_blocks)
    guard = "  if (*(const int *)p[1]) return; /* a filter element is not finite: the reference kernel does it */\n"
    return f"""{ENTRY}
{guard if guarded else ""}  const ts_u16 *x0 = (const ts_u16 *)p[0];
  const ts_u16 *w0 = (const ts_u16 *)((const char *)p[1] + {NOTE_BYTES});
{bias}{residual}  {y} *y0 = ({y} *)p[{form.slots - 1}];
  const ts_i64 columns = {columns}, col_blocks = {col_blocks};
  const ts_i64 places = s[0] * {form.groups * form.count[0] * t.row_blocks} * col_blocks;
  ts_tiles *tiles = (ts_tiles *)(((ts_uptr)scratch + 63) / 64 * 64);
  ts_f32 *c = (ts_f32 *)((char *)tiles + {8 * REGISTER});
  ts_i64 held = -1;
  (void)held; (void)places;
  TS_TILE_BEGIN({t.value['tile_rows']}, {t.first_registers[1]});
  for (ts_i64 item = begin; item < end; item++) {{
{item_text(t, y)}{read}    for (int ph = 0; ph < {len(form.phases)}; ph++) {{
      const {MARK}_phase *f = {MARK}_phases + ph;
      int nr = f->oh - oy < rows ? (int)(f->oh - oy) : (int)rows;
      int nc = {"(int)cols" if form.flat else "f->ow - ox < cols ? (int)(f->ow - ox) : (int)cols"};
      if (oz >= f->od || nr <= 0 || nc <= 0) continue;
      ts_i64 oz0 = oz * {form.out_step[0]} + f->oz, oy0 = oy * {form.out_step[1]} + f->oy;
      ts_i64 ox0 = ox * {form.out_step[2]} + f->ox;
      const ts_u16 *w = w0 + g * {t.phase_starts[-1]}LL + f->w;
      for (ts_i64 kb = kg * {t.blocks} / {t.block_groups}; kb < (kg + 1) * {t.blocks} / {t.block_groups}; kb++) {{
        {chosen}
      }}
    }}
  }}
  TS_TILE_END();
}}
"""
