"""C text of the weight gradient of narrow groups: lanes are result channels, sums of all taps stay in registers.

One output row of one block of channels at a time: its sums are kept in registers and added to memory at its end. Where
a filter has more taps than registers, the row is read once for each part of them (``passes``).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.codegen.symbols import MARK
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.c.grouped.axis import AxisPhase, Columns, Tap, column_tiles
from tilesmith.solvers.c.grouped.kernel import C_TYPES, PICK
from tilesmith.solvers.c.grouped.lanes import LaneMap

Cell = tuple[int, int, int]  # filter row t * R + r, filter column s, step (channel of the group)


@dataclass(frozen=True)
class WrwGroupedTiling:
    """``passes`` are the taps summed at once; an item is a share of the rows and ``chunk`` blocks of channels."""

    problem: ConvGeometry
    lanes: LaneMap
    cols: int
    passes: tuple[tuple[Cell, ...], ...]
    chunk: int
    splits: int

    @property
    def cells(self) -> int:
        """Sums of one lane."""
        return sum(len(cells) for cells in self.passes)

    @property
    def chunks(self) -> int:
        return -(-self.lanes.blocks // self.chunk)

    @property
    def partial_bytes(self) -> int:
        return 4 * self.splits * self.lanes.blocks * self.cells * self.lanes.width

    @property
    def width(self) -> AxisPhase:
        pr = self.problem
        taps = tuple(Tap(s, s * pr.dilation[2] - pr.padding[2]) for s in range(pr.filter[2]))
        return AxisPhase(pr.output[2], 0, 1, pr.stride[2], pr.input[2], taps)

    @property
    def statements(self) -> int:
        """Multiply-adds in the kernel's text."""
        columns = sum(tile.width for tile in column_tiles(self.width, self.cols))
        return columns * self.cells * (2 if self.lanes.tail else 1)

    @property
    def zero_row(self) -> int:
        """Length of the row of zeros above and below the image; 0 where no row leaves it."""
        pr = self.problem
        leaves = any((*pr.padding[:2], *pr.padding_high[:2]))
        return (pr.input[2] - 1) * pr.x.strides[4] + pr.c if leaves else 0


def passes(filter_: tuple[int, int, int], steps: int, budget: int) -> tuple[tuple[Cell, ...], ...]:
    """The taps in parts of at most ``budget`` sums, whole filter rows where they fit."""
    depth, height, width = filter_
    rows = range(depth * height)
    one_row = width * steps
    if one_row <= budget:
        many = budget // one_row
        parts = [rows[i : i + many] for i in range(0, len(rows), many)]
        return tuple(tuple((r, s, c) for r in part for s in range(width) for c in range(steps)) for part in parts)
    cells = [(s, c) for s in range(width) for c in range(steps)]
    return tuple(tuple((r, s, c) for s, c in cells[i : i + budget]) for r in rows for i in range(0, one_row, budget))


def run_body(t: WrwGroupedTiling) -> str:
    """Pointers: dy, x, sums ``[split][block][cell][lane]``. Integers: rows of all images, splits."""
    pr, m = t.problem, t.lanes
    x, y = pr.x.strides, pr.y.strides
    parts = [
        PICK,
        f"typedef {C_TYPES[pr.x.dtype]} {MARK}_x;\ntypedef {C_TYPES[pr.y.dtype]} {MARK}_y;\n",
        f"static {MARK}_x {MARK}_zeros[{t.zero_row}] __attribute__((aligned(64)));\n" if t.zero_row else "",
    ]
    kinds = [True] if m.tail and m.blocks == 1 else [False, True] if m.tail else [False]
    for number in range(len(t.passes)):
        parts += [_row_function(t, number, tail) for tail in kinds]
    o = [
        f"TS_NOINLINE void {MARK}_item(const {MARK}_y *y, const {MARK}_x *x, float *sums, ts_i64 r0, ts_i64 r1,"
        f" ts_i64 c0,"
        " ts_i64 c1) {",
        f"  const {MARK}_x *q[{pr.filter[0] * pr.filter[1]}];",
        "  for (ts_i64 row = r0; row < r1; row++) {",
        f"    ts_i64 n = row / {pr.output[0] * pr.output[1]}, od = row / {pr.output[1]} % {pr.output[0]}, oh ="
        f" row % {pr.output[1]};",
        f"    for (int t = 0; t < {pr.filter[0]}; t++) for (int r = 0; r < {pr.filter[1]}; r++) {{",
        f"      ts_i64 d = od * {pr.stride[0]} + t * {pr.dilation[0]} - {pr.padding[0]};",
        f"      ts_i64 h = oh * {pr.stride[1]} + r * {pr.dilation[1]} - {pr.padding[1]};",
        f"      q[t * {pr.filter[1]} + r] = d >= 0 && d < {pr.input[0]} && h >= 0 && h < {pr.input[1]}"
        f" ? x + n * {x[0]} + d * {x[2]} + h * {x[3]} : {f'{MARK}_zeros' if t.zero_row else 'x'};",
        "    }",
        f"    const {MARK}_y *at = y + n * {y[0]} + od * {y[2]} + oh * {y[3]};",
        "    for (ts_i64 c = c0; c < c1; c++) {",
    ]
    first = 0
    for number, cells in enumerate(t.passes):
        arguments = (
            f"q, {m.first_input('c')}, at + {m.first_output('c')},"
            f" sums + (c * {t.cells} + {first}) * {m.width}, row == r0"
        )
        call = [f"{MARK}_row{number}{'t' if tail else ''}({arguments});" for tail in kinds]
        o.append("      " + (call[0] if len(call) == 1 else f"if ({m.is_tail('c')}) {call[1]} else {call[0]}"))
        first += len(cells)
    o += ["    }", "  }", "}"]
    o += [
        f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{",
        "  (void)scratch;",
        "  for (ts_i64 item = begin; item < end; item++) {",
        f"    ts_i64 split = item / {t.chunks}, c0 = item % {t.chunks} * {t.chunk}, c1 = c0 + {t.chunk};",
        f"    {MARK}_item(p[0], p[1], (float *)p[2] + split * {m.blocks * t.cells * m.width}, s[0] * split / s[1],",
        f"        s[0] * (split + 1) / s[1], c0, c1 < {m.blocks} ? c1 : {m.blocks});",
        "  }",
        "}",
    ]
    return "".join(parts) + "\n".join(o) + "\n"


def _row_function(t: WrwGroupedTiling, number: int, tail: bool) -> str:
    """Sums over one output row for the taps of one pass."""
    cells, width, m = t.passes[number], t.width, t.lanes
    o = [
        f"TS_NOINLINE void {MARK}_row{number}{'t' if tail else ''}(const {MARK}_x *const *q, ts_i64 in, const"
        f" {MARK}_y *y,"
        " float *p, int first) {",
        *(f"  ts_vf a{i} = {{0}};" for i in range(len(cells))),
    ]
    rows = sorted({r for r, _, _ in cells})
    o += [f"  const {MARK}_x *x{r} = q[{r}] + in; (void)x{r};" for r in rows]
    for columns in column_tiles(width, t.cols):
        o += [f"  for (ts_i64 i = 0, u = {columns.start}; i < {columns.repeat}; i++, u += {columns.width}) {{"]
        o += [*_columns(t, cells, columns, tail), "  }"]
    o.append("  if (!first) {")
    o += [f"    a{i} += ts_load_fp32(p + {i * m.width});" for i in range(len(cells))] + ["  }"]
    o += [f"  ts_store_fp32(p + {i * m.width}, a{i});" for i in range(len(cells))] + ["}"]
    return "\n".join(o) + "\n"


def _columns(t: WrwGroupedTiling, cells: tuple[Cell, ...], columns: Columns, tail: bool) -> list[str]:
    """One tile of output columns: its ``dy`` in registers, each input loaded once."""
    pr, m, width = t.problem, t.lanes, t.width
    index = {cell: i for i, cell in enumerate(cells)}
    n = m.lanes(tail)[0]
    units = m.units(tail)
    o = [f"    const {MARK}_y *e = y + u * {pr.y.strides[4]};"]
    for j in range(columns.width):
        o.append(f"    ts_vf d{j} = {_read(pr.y.dtype, f'e + {j * pr.y.strides[4]}', n, m.width)};")
    o.append(f"    ts_i64 at = u * {width.in_step * pr.x.strides[4]}; (void)at;")
    # Rows innermost: neighbouring multiply-adds then go to different sums and need not wait for each other.
    for p in width.positions(columns.width):
        for r in sorted({r for r, _, _ in cells}):
            meets = [
                (j, tap.index)
                for tap in width.taps
                for j in range(columns.width)
                if j * width.in_step + tap.offset == p
            ]
            steps = sorted({c for row, s, c in cells if row == r and s in {s for _, s in meets}})
            if not steps:
                continue
            inside = columns.inside or 0 <= columns.start * width.in_step + p < width.in_size
            o.append("    {")
            for k in range(-(-units // m.width) if inside else 1):
                place = f"x{r} + at + ({p * pr.x.strides[4] + k * m.width})"
                value = _read(pr.x.dtype, place, min(m.width, units - k * m.width), m.width) if inside else "(ts_vf){0}"
                o.append(f"      ts_vf v{k} = {value};")
            sources = "v0, v0" if units <= m.width else "v0, v1"
            for step in steps:
                picks = [m.source(lane, step, tail) for lane in range(m.width)]
                plain = not inside or (units <= m.width and picks[:n] == list(range(n)))
                shuffled = f"{MARK}_PICK({sources}, {', '.join(map(str, picks))})"
                o.append(f"      {{ ts_vf v = {'v0' if plain else shuffled};")
                o += [f"        a{index[r, s, step]} += v * d{j};" for j, s in meets if (r, s, step) in index]
                o.append("      }")
            o.append("    }")
    return o


def _read(dtype: str, at: str, n: int, width: int) -> str:
    return f"ts_load_{dtype}({at})" if n == width else f"ts_load_n_{dtype}({at}, {n})"


def reduce_body(t: WrwGroupedTiling) -> str:
    """Sums the splits of one block an item, writes it with the filter's strides. Pointers: sums, dw."""
    w, m, height = t.problem.w, t.lanes, t.problem.filter[1]
    places = [
        r // height * w.strides[2] + r % height * w.strides[3] + s * w.strides[4] + c * w.strides[1]
        for cells in t.passes
        for r, s, c in cells
    ]
    block = t.cells * m.width
    return "\n".join([
        f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{",
        "  (void)scratch;",
        f"  static const ts_i64 place[{t.cells}] = {{{', '.join(map(str, places))}}};",
        "  for (ts_i64 item = begin; item < end; item++) {",
        f"    ts_i64 k = item * {m.per_block * m.outer}, n = {t.problem.k} - k < {m.per_block * m.outer}"
        f" ? {t.problem.k} - k : {m.per_block * m.outer};",
        f"    const float *from = (const float *)p[0] + item * {block};",
        f"    {C_TYPES[w.dtype]} *to = ({C_TYPES[w.dtype]} *)p[1] + k * {w.strides[0]};",
        f"    for (int i = 0; i < {t.cells}; i++, from += {m.width}) {{",
        "      ts_vf v = ts_load_fp32(from);",
        f"      for (ts_i64 q = 1; q < s[0]; q++) v += ts_load_fp32(from + q * {m.blocks * block});",
        "      float sum[TS_LANES];",
        "      ts_store_fp32(sum, v);",
        f"      for (int l = 0; l < n; l++) ts_put_{w.dtype}(to + l * {w.strides[0]} + place[i], sum[l]);",
        "    }",
        "  }",
        "}",
        "",
    ])  # fmt: skip
