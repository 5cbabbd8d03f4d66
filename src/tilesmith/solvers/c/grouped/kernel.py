"""The kernels of a direct grouped convolution: the filter's packing, and the loops around the tiles.

An item is one strip of result rows and one chunk of channel blocks in one image; it runs over all columns. The batch
size is the number of items alone, so one kernel serves every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tilesmith.codegen.c.epilogue import vector_activation
from tilesmith.codegen.symbols import MARK
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.c.grouped.axis import AxisPhase, axis_phases, column_tiles
from tilesmith.solvers.c.grouped.lanes import LaneMap
from tilesmith.solvers.c.grouped.tile import TileFacts, tile_function, tile_rows

C_TYPES = {"fp32": "ts_f32", "bf16": "ts_u16", "fp16": "ts_u16"}

# gcc and clang name the same shuffle differently.
PICK = f"""#ifdef __clang__
#define {MARK}_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define {MARK}_PICK(a, b, ...) __builtin_shuffle(a, b, (ts_vi){{__VA_ARGS__}})
#endif
"""


# Past the caches, where the address allows. NOTE: such stores are weakly ordered: the kernel ends with a fence.
_STREAM = f"""TS_INLINE void {MARK}_STREAM(void *p, ts_vf v) {{
#if defined(__AVX__)
  @T@ h = @NARROW@(v);
  if (((ts_uptr)p & (sizeof h - 1)) == 0) {{
    __asm__ volatile("vmovntps %1, %0" : "=m"(*(@T@_at *)p) : "v"(h));
    return;
  }}
#endif
  ts_store_@D@(p, v);
}}
"""


def _stream(name: str) -> str:
    narrow = "" if name == "fp32" else f"ts_narrow_{name}"
    return (
        _STREAM.replace("@T@", "ts_vf" if name == "fp32" else "ts_vh").replace("@NARROW@", narrow).replace("@D@", name)
    )


@dataclass(frozen=True)
class Schedule:
    """Result rows and columns of a tile, channel blocks of an item.

    ``stream``: stores pass the caches by. ``ahead``: the next strip's inputs are fetched early.
    """

    rows: int
    columns: int
    chunk: int
    stream: bool
    ahead: bool


def source_and_result(problem: ConvGeometry) -> tuple[TensorView, TensorView]:
    """What the direction reads and writes."""
    return (problem.x, problem.y) if problem.direction == "fwd" else (problem.y, problem.x)


@dataclass(frozen=True)
class Strips:
    """``repeat`` strips of ``rows`` result rows from row ``first`` of a phase on, for every depth of the phase."""

    depth: AxisPhase
    height: AxisPhase
    first: int
    rows: int
    repeat: int

    @property
    def count(self) -> int:
        return self.depth.count * self.repeat


def strips(problem: ConvGeometry, rows: int) -> tuple[Strips, ...]:
    """The strips of one image: whole ones, and one of the rows that are left, for each phase."""
    found = []
    for depth, height in product(axis_phases(problem, 0), axis_phases(problem, 1)):
        whole = height.count // rows * rows
        if whole:
            found.append(Strips(depth, height, 0, rows, height.count // rows))
        if whole < height.count:
            found.append(Strips(depth, height, whole, height.count - whole, 1))
    return tuple(found)


def items_per_image(problem: ConvGeometry, lanes: LaneMap, schedule: Schedule) -> int:
    chunks = -(-lanes.blocks // schedule.chunk)
    return sum(s.count for s in strips(problem, schedule.rows)) * chunks


def zero_row_elements(problem: ConvGeometry) -> int:
    """Length of the row of zeros that ``fwd`` reads above and below the image; 0 where no row leaves it."""
    if problem.direction != "fwd" or not any((*problem.padding[:2], *problem.padding_high[:2])):
        return 0
    return (problem.input[2] - 1) * problem.x.strides[4] + problem.c


def run_body(problem: ConvGeometry, lanes: LaneMap, schedule: Schedule) -> str:
    """Text of the kernel; pointers: what is read, packed filter, [bias], [residual], result."""
    x, y = source_and_result(problem)
    facts = TileFacts(
        lanes=lanes, x_dtype=x.dtype, y_dtype=y.dtype, x_step=x.strides[4], x_row=x.strides[3], y_row=0, y_step=0,
        taps=problem.filter, zero_products=problem.direction == "fwd", epilogue=problem.epilogue,
        stream=schedule.stream, ahead=schedule.ahead,
    )  # fmt: skip
    head = f"typedef {C_TYPES[x.dtype]} {MARK}_x;\ntypedef {C_TYPES[y.dtype]} {MARK}_y;\n"
    if problem.epilogue.activation != "none":
        head += vector_activation(problem.epilogue)
    zeros = zero_row_elements(problem)
    if zeros:
        head += f"static {MARK}_x {MARK}_zeros[{zeros}] __attribute__((aligned(64)));\n"
    parts = [head, "" if lanes.splat else PICK, _stream("fp32" if lanes.twin else y.dtype) if schedule.stream else ""]
    kinds = strips(problem, schedule.rows)
    for number, kind in enumerate(kinds):
        parts.append(_strip_function(number, problem, facts, schedule, kind, bool(zeros)))
    chunks = -(-lanes.blocks // schedule.chunk)
    b, z = "p[2]" if problem.epilogue.bias else "0", "0"
    if problem.epilogue.residual:
        z = f"p[{2 + problem.epilogue.bias}]"
    last = 2 + problem.epilogue.bias + problem.epilogue.residual
    o = [
        f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{",
        "  (void)s, (void)scratch;",
        "  for (ts_i64 item = begin; item < end; item++) {",
        f"    ts_i64 n = item / {items_per_image(problem, lanes, schedule)}, at = item % "
        f"{items_per_image(problem, lanes, schedule)}, first = at % {chunks} * {schedule.chunk};",
        f"    ts_i64 stop = first + {schedule.chunk} < {lanes.blocks} ? first + {schedule.chunk} : {lanes.blocks};",
        f"    at /= {chunks};",
    ]
    for number, kind in enumerate(kinds):
        o.append(f"    if (at >= 0 && at < {kind.count})")
        where = f"at / {kind.repeat}, at % {kind.repeat}, first, stop"
        o.append(f"      {MARK}_strip{number}(p[0], p[1], p[{last}], {z}, {b}, n, {where});")
        o.append(f"    at -= {kind.count};")
    fence = ["#if defined(__AVX__)", '  __asm__ volatile("sfence" ::: "memory");', "#endif"] if schedule.stream else []
    parts.append("\n".join([*o, "  }", *fence, "}"]) + "\n")
    return "".join(parts)


def _strip_function(
    number: int, problem: ConvGeometry, facts: TileFacts, schedule: Schedule, kind: Strips, zeros: bool,
) -> str:  # fmt: skip
    """All tiles of one strip of rows, with the functions of its tiles before it."""
    x, y = source_and_result(problem)
    lanes, depth, height = facts.lanes, kind.depth, kind.height
    rows = tile_rows(depth, height, kind.rows, problem.filter[1])
    functions, calls = [], []
    for w_number, width in enumerate(axis_phases(problem, 2)):
        tile = TileFacts(**{
            **facts.__dict__, "y_row": height.out_step * y.strides[3], "y_step": width.out_step * y.strides[4]
        })  # fmt: skip
        for t_number, columns in enumerate(column_tiles(width, schedule.columns)):
            name = f"{MARK}_tile{number}_{w_number}_{t_number}"
            for tail in (False, True) if lanes.tail else (False,):
                if tail or not _always_tail(lanes):
                    kernel = f"{name}{'t' if tail else ''}"
                    functions.append(tile_function(kernel, tile, rows, kind.rows, height.in_step, width, columns, tail))
            calls += _call(name, lanes, x, y, problem, width, columns.start, columns.width, columns.repeat)
    o = [
        f"TS_NOINLINE void {MARK}_strip{number}(const {MARK}_x *x, const ts_vf *w, {MARK}_y *y, const {MARK}_y *z,"
        f" const {MARK}_y *b, ts_i64 n, ts_i64 d, ts_i64 strip, ts_i64 first, ts_i64 stop) {{",
        "  (void)x, (void)z, (void)b, (void)d;",
        f"  const {MARK}_x *q[{max(1, len(rows))}];",
    ]
    if rows:
        o.append(f"  static const int place[{len(rows)}][2] = {{")
        o += [f"      {{{row.depth}, {row.height}}}," for row in rows]
        o += [
            "  };",
            f"  for (int i = 0; i < {len(rows)}; i++) {{",
            f"    ts_i64 dd = d * {depth.in_step} + place[i][0];",
            f"    ts_i64 hh = ({kind.first} + strip * {kind.rows}) * {height.in_step} + place[i][1];",
            f"    q[i] = dd >= 0 && dd < {depth.in_size} && hh >= 0 && hh < {height.in_size}"
            f" ? x + n * {x.strides[0]} + dd * {x.strides[2]} + hh * {x.strides[3]} : {_nothing(facts, zeros)};",
            "  }",
        ]
    at = (
        f"n * {y.strides[0]} + (d * {depth.out_step} + {depth.out_start}) * {y.strides[2]}"
        f" + (({kind.first} + strip * {kind.rows}) * {height.out_step} + {height.out_start}) * {y.strides[3]}"
    )
    o += [f"  y += {at};"] + ([f"  z += {at};"] if problem.epilogue.residual else [])
    return "".join(functions) + "\n".join([*o, *calls, "}"]) + "\n"


def _nothing(facts: TileFacts, zeros: bool) -> str:
    """A row outside the image; without padding there is none in ``fwd``."""
    if not facts.zero_products:
        return "0"
    return f"{MARK}_zeros" if zeros else "x"


def _always_tail(lanes: LaneMap) -> bool:
    return lanes.tail and (lanes.split == 1 if lanes.splat else lanes.blocks == 1)


def _call(
    name: str, lanes: LaneMap, x: TensorView, y: TensorView, problem: ConvGeometry,
    width: AxisPhase, start: int, columns: int, repeat: int,
) -> list[str]:  # fmt: skip
    """The loops over one kind of column tile: columns outside, channels inside, so that memory is read in order."""
    taps = problem.filter[0] * problem.filter[1] * problem.filter[2]
    block = taps * lanes.steps * lanes.vectors
    out = f"(u * {width.out_step} + {width.out_start}) * {y.strides[4]} + {lanes.first_output('c')}"
    arguments = (
        f"q, u * {width.in_step * x.strides[4]} + {lanes.first_input('c')}, w + c * {block}, y + {out}, "
        f"{f'z + {out}' if problem.epilogue.residual else '0'}, "
        f"{'b + ' + lanes.first_output('c') if problem.epilogue.bias else '0'}"
    )
    if _always_tail(lanes):
        call = f"{name}t({arguments});"
    elif lanes.tail:
        call = f"if ({lanes.is_tail('c')}) {name}t({arguments}); else {name}({arguments});"
    else:
        call = f"{name}({arguments});"
    return [
        f"  for (ts_i64 t = 0, u = {start}; t < {repeat}; t++, u += {columns})",
        f"    for (ts_i64 c = first; c < stop; c++) {{ {call} }}",
    ]


def packed_bytes(problem: ConvGeometry, lanes: LaneMap) -> int:
    taps = problem.filter[0] * problem.filter[1] * problem.filter[2]
    return lanes.blocks * taps * lanes.steps * lanes.vectors * lanes.width * 4


def pack_body(problem: ConvGeometry, lanes: LaneMap) -> str:
    """Text of the packing kernel; an item is a block. Pointers: filter, packed filter as [tap][step][vector][lane]."""
    w, (depth, rows, cols) = problem.w, problem.filter
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
    k, c = (
        (f"group * {lanes.outer} + out", "in") if problem.direction == "fwd" else (f"group * {lanes.inner} + in", "out")
    )
    steps = w.strides
    element = f"w[({k}) * {steps[0]} + ({c}) * {steps[1]} + t * {steps[2]} + r * {steps[3]} + s * {steps[4]}]"
    if lanes.pairs:
        store = [
            "            for (int e = 0; e < 2; e++) { ts_i64 in = step * 2 + e;",
            f"              *out16++ = there && in < {lanes.inner} ? {element} : (unsigned short)0; }}",
        ]
        target = f"  ts_u16 *out16 = (ts_u16 *)p[1] + begin * {depth * rows * cols * lanes.steps * per * 2};"
    else:
        store = [f"            {{ ts_i64 in = step; *out32++ = there ? ts_get_{w.dtype}(&{element}) : 0.0f; }}"]
        target = f"  ts_f32 *out32 = (ts_f32 *)p[1] + begin * {depth * rows * cols * lanes.steps * per};"
    return "\n".join([
        f"void {MARK}(void *const *p, const ts_i64 *s_, void *scratch, ts_i64 begin, ts_i64 end) {{",
        "  (void)s_, (void)scratch;",
        f"  const {C_TYPES[w.dtype]} *w = p[0];",
        target,
        "  for (ts_i64 item = begin; item < end; item++)",
        f"    for (ts_i64 t = 0; t < {depth}; t++) for (ts_i64 r = 0; r < {rows}; r++) for (ts_i64 s = 0; s <"
        f" {cols}; s++)",
        f"      for (ts_i64 step = 0; step < {lanes.steps}; step++)",
        f"        for (ts_i64 l = 0; l < {per}; l++) {{",
        f"            {place}",
        *store,
        "        }",
        "}",
        "",
    ])  # fmt: skip
