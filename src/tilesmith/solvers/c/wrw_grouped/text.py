"""C text of the weight gradient of narrow groups: lanes are result channels, sums of all taps stay in registers.

One output row of one block of channels at a time: its sums are kept in registers and added to memory at its end. Where
a filter has more taps than registers, the row is read once for each part of them (``passes``).
"""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.axis import Columns, column_tiles, spots
from tilesmith.solvers.c.common.text import (
    C_TYPES,
    ENTRY,
    PICK,
    channels_of_a_pixel,
    element_types,
    load,
    operand,
    row_of_zeros,
)
from tilesmith.solvers.c.wrw_grouped.tile import Cell, WrwGroupedTile


def run_body(t: WrwGroupedTile) -> str:
    """Pointers: dy, x, sums ``[split][block][cell][lane]``. Integers: rows of all images, splits."""
    pr, m = t.problem, t.lanes
    x, y, (_, height, _) = pr.x.strides, pr.y.strides, pr.filter
    calls, first = [], 0
    for number, cells in enumerate(t.passes):
        sums = f"sums + (c * {t.cells} + {first}) * {m.width}, row == r0"
        arguments = f"q, {m.first_input('c')}, at + {m.first_output('c')}, {sums}"
        call = [f"{MARK}_row{number}{'t' if tail else ''}({arguments});" for tail in m.kinds]
        calls.append("      " + (call[0] if len(call) == 1 else f"if ({m.is_tail('c')}) {call[1]} else {call[0]}"))
        first += len(cells)
    item = f"""\
TS_NOINLINE void {MARK}_item(const {MARK}_y *y, const {MARK}_x *x, float *sums, ts_i64 r0, ts_i64 r1, ts_i64 c0,\
 ts_i64 c1) {{
  const {MARK}_x *q[{pr.filter[0] * height}];
  for (ts_i64 row = r0; row < r1; row++) {{
    ts_i64 n = row / {pr.output[0] * pr.output[1]}, od = row / {pr.output[1]} % {pr.output[0]},\
 oh = row % {pr.output[1]};
    for (int t = 0; t < {pr.filter[0]}; t++) for (int r = 0; r < {height}; r++) {{
      ts_i64 d = od * {pr.stride[0]} + t * {pr.dilation[0]} - {pr.padding[0]};
      ts_i64 h = oh * {pr.stride[1]} + r * {pr.dilation[1]} - {pr.padding[1]};
      q[t * {height} + r] = d >= 0 && d < {pr.input[0]} && h >= 0 && h < {pr.input[1]}\
 ? x + n * {x[0]} + d * {x[2]} + h * {x[3]} : {f"{MARK}_zeros" if t.zero_row else "x"};
    }}
    const {MARK}_y *at = y + n * {y[0]} + od * {y[2]} + oh * {y[3]};
    for (ts_i64 c = c0; c < c1; c++) {{
"""
    entry = f"""\
    }}
  }}
}}
{ENTRY}
  (void)scratch;
  for (ts_i64 item = begin; item < end; item++) {{
    ts_i64 split = item / {t.chunks}, c0 = item % {t.chunks} * {t.chunk}, c1 = c0 + {t.chunk};
    {MARK}_item(p[0], p[1], (float *)p[2] + split * {m.blocks * t.block}, s[0] * split / s[1],
        s[0] * (split + 1) / s[1], c0, c1 < {m.blocks} ? c1 : {m.blocks});
  }}
}}
"""
    rows = [_row_function(t, number, tail) for number in range(len(t.passes)) for tail in m.kinds]
    head = [PICK, element_types(pr.x.dtype, pr.y.dtype), row_of_zeros(t.zero_row)]
    return "".join([*head, *rows, item, *(f"{call}\n" for call in calls), entry])


def _row_function(t: WrwGroupedTile, number: int, tail: bool) -> str:
    """Sums over one output row for the taps of one pass."""
    cells, width = t.passes[number], t.lanes.width
    o = [
        f"TS_NOINLINE void {MARK}_row{number}{'t' if tail else ''}(const {MARK}_x *const *q, ts_i64 in,"
        f" const {MARK}_y *y, float *p, int first) {{",
        *(f"  ts_vf a{i} = {{0}};" for i in range(len(cells))),
        *(f"  const {MARK}_x *x{r} = q[{r}] + in; (void)x{r};" for r in sorted({r for r, _, _ in cells})),
    ]
    for columns in column_tiles(t.width, t.cols):
        o += [f"  for (ts_i64 i = 0, u = {columns.start}; i < {columns.repeat}; i++, u += {columns.width}) {{"]
        o += [*_columns(t, cells, columns, tail), "  }"]
    o.append("  if (!first) {")
    o += [f"    a{i} += ts_load_fp32(p + {i * width});" for i in range(len(cells))] + ["  }"]
    o += [f"  ts_store_fp32(p + {i * width}, a{i});" for i in range(len(cells))] + ["}"]
    return "\n".join(o) + "\n"


def _columns(t: WrwGroupedTile, cells: tuple[Cell, ...], columns: Columns, tail: bool) -> list[str]:
    """One tile of output columns: its ``dy`` in registers, each input loaded once."""
    x, y, m = t.problem.x, t.problem.y, t.lanes
    index = {cell: i for i, cell in enumerate(cells)}
    # The barrier ends gcc's mixing of one tile's instructions with another's: tiles that are alike are stored in less.
    o = [f'    const {MARK}_y *e = y + u * {y.strides[4]}; __asm__ volatile("" : "+r"(e));']
    for j in range(columns.width):
        o.append(f"    ts_vf d{j} = {load(y.dtype, f'e + {j * y.strides[4]}', m.lanes(tail)[0], m.width)};")
    o.append(f"    ts_i64 at = u * {t.width.in_step * x.strides[4]}; (void)at;")
    # Rows innermost: neighbouring multiply-adds then go to different sums and need not wait for each other.
    for spot in spots(t.width, columns):
        met = {s for _, s in spot.meets}
        for r in sorted({r for r, _, _ in cells}):
            steps = sorted({c for row, s, c in cells if row == r and s in met})
            if not steps:
                continue
            pixel = channels_of_a_pixel(m, x.dtype, "v", f"x{r} + at", spot.at * x.strides[4], tail, spot.inside)
            o += ["    {", *(f"      {line}" for line in pixel)]
            for step in steps:
                o.append(f"      {{ ts_vf v = {operand(m, 'v', step, tail, spot.inside)};")
                o += [f"        a{index[r, s, step]} += v * d{j};" for j, s in spot.meets if (r, s, step) in index]
                o.append("      }")
            o.append("    }")
    return o


def reduce_body(t: WrwGroupedTile) -> str:
    """Sums the splits of one block an item, writes it with the filter's strides. Pointers: sums, dw."""
    w, m, height = t.problem.w, t.lanes, t.problem.filter[1]
    places = [
        r // height * w.strides[2] + r % height * w.strides[3] + s * w.strides[4] + c * w.strides[1]
        for cells in t.passes
        for r, s, c in cells
    ]
    kind, channels = C_TYPES[w.dtype], m.per_block * m.outer
    return f"""{ENTRY}
  (void)scratch;
  static const ts_i64 place[{t.cells}] = {{{", ".join(map(str, places))}}};
  for (ts_i64 item = begin; item < end; item++) {{
    ts_i64 k = item * {channels}, n = {t.problem.k} - k < {channels} ? {t.problem.k} - k : {channels};
    const float *from = (const float *)p[0] + item * {t.block};
    {kind} *to = ({kind} *)p[1] + k * {w.strides[0]};
    for (int i = 0; i < {t.cells}; i++, from += {m.width}) {{
      ts_vf v = ts_load_fp32(from);
      for (ts_i64 q = 1; q < s[0]; q++) v += ts_load_fp32(from + q * {m.blocks * t.block});
      float sum[TS_LANES];
      ts_store_fp32(sum, v);
      for (int l = 0; l < n; l++) ts_put_{w.dtype}(to + l * {w.strides[0]} + place[i], sum[l]);
    }}
  }}
}}
"""
