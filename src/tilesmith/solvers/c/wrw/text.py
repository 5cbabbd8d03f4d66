"""C text of the dense weight gradient: the register tile, the loops around it, and the sum that ends it."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.text import C_TYPES, ENTRY, PICK, element_types, pick
from tilesmith.solvers.c.wrw.strip_text import strip_text
from tilesmith.solvers.c.wrw.tile import WrwTile


def run_body(t: WrwTile) -> str:
    """Pointers: dy, x, partial sums ``[split][group][tile][mr][nr]``. Integers: planes (images x depth), splits."""
    tail, groups = t.run % t.mr, t.problem.groups
    parts = [
        f"typedef {'unsigned' if t.pairs else 'float'} {MARK}_e;\n",
        element_types(t.problem.x.dtype, t.problem.y.dtype),
        "" if t.direct else strip_text(t),
        _tile_function(t, f"{MARK}_tile", t.mr) if t.run >= t.mr else "",
        _tile_function(t, f"{MARK}_rest", tail) if tail else "",
        _item_function(t),
        f"""{ENTRY}
  ts_i64 all = s[0], splits = s[1], units = (all + {t.planes - 1}) / {t.planes} * {t.units_per_plane_group};
  for (ts_i64 item = begin; item < end; item++) {{
    ts_i64 split = item % splits, part = item / splits % {t.parts}, g = item / splits / {t.parts};
    {MARK}_item(p[0], p[1], (float *)p[2] + (split * {groups} + g) * {t.tiles * t.tile_elements}, scratch, all, g,
        units * split / splits, units * (split + 1) / splits, {t.tiles} * part / {t.parts},\
 {t.tiles} * (part + 1) / {t.parts});
  }}
}}
""",
    ]
    return "".join(parts)


def _tile_function(t: WrwTile, name: str, mr: int) -> str:
    """``p[mr][nr] (+)= sum over the strip``; ``xt`` is where the last row without a partner begins."""
    x_pixel, x_row, x_plane, d_pixel, d_row, d_plane = _steps(t)
    cells = [(i, v) for i in range(mr) for v in range(t.nv)]
    start = f"x + q * {x_row}"
    o = [
        f"TS_NOINLINE void {name}(const {MARK}_e *x, const {MARK}_e *xt, const {MARK}_e *d, float *p, ts_i64 planes,"
        " ts_i64 rows, ts_i64 whole, ts_i64 cols, int first) {",
        "  (void)xt, (void)whole;",
        *(f"  ts_vf a{i}_{v} = {{0}};" for i, v in cells),
        f"  for (ts_i64 z = 0; z < planes; z++, x += {x_plane}, xt += {x_plane}, d += {d_plane})",
        "    for (ts_i64 q = 0; q < rows; q++) {",
        f"      const {MARK}_e *xx = {f'q == whole ? xt : {start}' if t.pairs else start};",
        f"      const {MARK}_e *dd = d + q * {d_row};",
        f"      for (ts_i64 j = 0; j < cols; j++, xx += {x_pixel}, dd += {d_pixel}) {{",
    ]
    for v in range(t.nv):
        at = f"dd + {v * t.lanes}"
        o.append(f"        ts_vi d{v} = *(const ts_vi_at *)({at});" if t.pairs else (
            f"        ts_vf d{v} = ts_load_fp32({at});"
        ))  # fmt: skip
    for i in range(mr):
        o.append(f"        {{ {f'ts_vi b = (ts_vi){{0}} + (int)xx[{i}]' if t.pairs else f'float b = xx[{i}]'};")
        for v in range(t.nv):
            product = f"= ts_dot_bf16(a{i}_{v}, b, d{v})" if t.pairs else f"+= d{v} * b"
            o.append(f"          a{i}_{v} {product};")
        o.append("        }")
    o += ["      }", "    }", "  if (!first) {"]
    o += [f"    a{i}_{v} += ts_load_fp32(p + {i * t.nr + v * t.lanes});" for i, v in cells] + ["  }"]
    o += [f"  ts_store_fp32(p + {i * t.nr + v * t.lanes}, a{i}_{v});" for i, v in cells] + ["}"]
    return "\n".join(o) + "\n"


def _steps(t: WrwTile) -> tuple[int, int, int, int, int, int]:
    """From one output pixel, row and plane to the next, in ``x`` and in ``dy``."""
    stride = t.problem.stride
    if t.direct:
        x, y = t.problem.x.strides, t.problem.y.strides
        return stride[2] * x[4], stride[1] * x[3], x[0], y[4], y[3], y[0]
    rows_a_step = 2 if t.pairs else 1
    d_row = t.cols * t.nr
    return stride[2] * t.fan_c, rows_a_step * stride[1] * t.x_row, t.x_plane, t.nr, d_row, t.d_rows * d_row


def _line_offsets(t: WrwTile) -> list[int]:
    """Where each line begins, from the first input of the strip."""
    depth, row, column = t.problem.dilation
    if t.direct:
        x = t.problem.x.strides
        return [e.t * depth * x[2] + e.r * row * x[3] + e.s * column * x[4] for e in t.lines]
    return [e.t * t.x_depth + e.r * row * t.x_row + e.s * column * t.fan_c for e in t.lines]


def _tail_offsets(t: WrwTile) -> list[int]:
    """Where each line begins for the last row without a partner."""
    step = t.problem.dilation[2] * t.fan_c
    return [e.t * t.x_depth + (t.strip_height + e.r) * t.x_row + e.s * step for e in t.lines]


def _table(name: str, values: list[int]) -> str:
    return f"  static const ts_i64 {name}[] = {{{', '.join(map(str, values))}}};\n"


def _item_function(t: WrwTile) -> str:
    """All strips ``u0 .. u1 - 1`` for the tiles ``t0 .. t1 - 1`` of one group."""
    pr, (_, height, width) = t.problem, t.problem.output
    per = t.units_per_plane_group
    across = -(-width // t.cols)
    x, y = pr.x.strides, pr.y.strides
    if t.direct:
        d_at = f"ds + kb * {t.nr}"
        operands = f"""\
    const float *xs = x + z * {x[0]} + oy * {pr.stride[1] * x[3]} + ox * {pr.stride[2] * x[4]} + g * {t.fan_c};
    const float *ds = y + z * {y[0]} + oy * {y[3]} + ox * {y[4]} + g * {t.fan_k};
"""
    else:
        d_at = f"ds + (kb - k0) * {t.d_block}"
        operands = f"""\
    {MARK}_e *xs = (void *)scratch, *ds = xs + {-(-t.x_elements // 16) * 16};
    {MARK}_strip(xs, x + g * {t.fan_c}, z, planes, oy, rows, ox, cols);
    for (ts_i64 kb = k0; kb < k1; kb++) {MARK}_panel({d_at}, y + g * {t.fan_k}, kb, z, planes, oy, rows, ox, cols);
"""
    steps, whole = ("(rows + 1) / 2", "rows / 2") if t.pairs else ("rows", "rows")
    tile = f"{MARK}_tile" if t.run >= t.mr else f"{MARK}_rest"
    if t.run % t.mr and t.run >= t.mr:
        tile = f"(m == {t.m_blocks - 1} ? {MARK}_rest : {MARK}_tile)"
    return f"""\
TS_NOINLINE void {MARK}_item(const {MARK}_y *y, const {MARK}_x *x, float *sums, char *scratch, ts_i64 all, ts_i64 g,\
 ts_i64 u0, ts_i64 u1, ts_i64 t0, ts_i64 t1) {{
{_table("line", _line_offsets(t))}{_table("last", _tail_offsets(t)) if t.tail_rows else ""}\
  ts_i64 k0 = t0 / {t.line_tiles}, k1 = (t1 - 1) / {t.line_tiles} + 1;
  (void)scratch, (void)k0, (void)k1;
  for (ts_i64 u = u0; u < u1; u++) {{
    ts_i64 z = u / {per} * {t.planes}, oy = u % {per} / {across} * {t.rows}, ox = u % {across} * {t.cols};
    ts_i64 planes = all - z < {t.planes} ? all - z : {t.planes};
    ts_i64 rows = {height} - oy < {t.rows} ? {height} - oy : {t.rows};
    ts_i64 cols = {width} - ox < {t.cols} ? {width} - ox : {t.cols};
{operands}\
    for (ts_i64 at = t0; at < t1; at++) {{
      ts_i64 kb = at / {t.line_tiles}, l = at % {t.line_tiles} / {t.m_blocks}, m = at % {t.m_blocks};
      const {MARK}_e *xm = xs + m * {t.mr};
      {tile}(xm + line[l], {"xm + last[l]" if t.tail_rows else "xm"}, {d_at}, sums + at * {t.tile_elements}, planes,\
 {steps}, {whole}, cols, u == u0);
    }}
  }}
}}
"""


def sum_body(t: WrwTile) -> str:
    """Sums the splits of one tile an item and writes it with the filter's strides. Pointers: partial sums, dw.

    Tiles have ``k`` in lanes, filters mostly ``c``: blocks of lanes x lanes are transposed in registers.
    """
    pr, w, n = t.problem, t.problem.w, t.lanes
    kind, step = C_TYPES[w.dtype], w.strides
    lines = ", ".join(str(e.t * step[2] + e.r * step[3] + e.s * step[4]) for e in t.lines)
    if step[1] == 1 and (not t.merged or pr.filter[2] == 1 or step[4] == t.fan_c):
        write = f"""\
          {kind} *at_k = to + (k + j) * {step[0]} + m * {t.mr} + i;
          if (count == {n}) ts_store_{w.dtype}(at_k, v[j]); else ts_store_n_{w.dtype}(at_k, v[j], count);
"""
    else:
        place = f"e / {t.fan_c} * {step[4]} + e % {t.fan_c} * {step[1]}" if t.merged else f"e * {step[1]}"
        write = f"""\
          {kind} *at_k = to + (k + j) * {step[0]}, part[{n}];
          ts_store_{w.dtype}(part, v[j]);
          for (int l = 0; l < count; l++) {{ ts_i64 e = m * {t.mr} + i + l; at_k[{place}] = part[l]; }}
"""
    return f"""{PICK}
{_transpose(n)}
{ENTRY}
  (void)scratch;
  static const ts_i64 line[] = {{{lines}}};
  for (ts_i64 item = begin; item < end; item++) {{
    ts_i64 g = item / {t.tiles}, at = item % {t.tiles}, kb = at / {t.line_tiles};
    ts_i64 l = at % {t.line_tiles} / {t.m_blocks}, m = at % {t.m_blocks};
    int rows = (int)({t.run} - m * {t.mr} < {t.mr} ? {t.run} - m * {t.mr} : {t.mr});
    int cols = (int)({t.fan_k} - kb * {t.nr} < {t.nr} ? {t.fan_k} - kb * {t.nr} : {t.nr});
    const float *from = (const float *)p[0] + item * {t.tile_elements};
    {kind} *to = ({kind} *)p[1] + line[l] + (g * {t.fan_k} + kb * {t.nr}) * {step[0]};
    for (int k = 0; k < cols; k += {n})
      for (int i = 0; i < rows; i += {n}) {{
        int count = rows - i < {n} ? rows - i : {n}, wide = cols - k < {n} ? cols - k : {n};
        ts_vf v[{n}];
        for (int j = 0; j < {n}; j++) v[j] = (ts_vf){{0}};
        for (ts_i64 q = 0; q < s[0]; q++)
          for (int j = 0; j < count; j++) v[j] += ts_load_fp32(from + q * {pr.groups * t.tiles * t.tile_elements}\
 + (i + j) * {t.nr} + k);
        {MARK}_transpose(v);
        for (int j = 0; j < wide; j++) {{
{write}\
        }}
      }}
  }}
}}
"""


def _transpose(n: int) -> str:
    """``v[i][j]`` becomes ``v[j][i]``: halves of pairs of vectors change places, at every distance once."""
    o = [f"TS_INLINE void {MARK}_transpose(ts_vf *v) {{", "  ts_vf a;"]
    distance = n // 2
    while distance:
        low = [n + (i ^ distance) if i & distance else i for i in range(n)]
        high = [n + i if i & distance else i ^ distance for i in range(n)]
        for i in range(n):
            if not i & distance:
                one, two = f"v[{i}]", f"v[{i + distance}]"
                o.append(f"  a = {pick(one, two, low)};")
                o.append(f"  {two} = {pick(one, two, high)}, {one} = a;")
        distance //= 2
    return "\n".join([*o, "}"])
