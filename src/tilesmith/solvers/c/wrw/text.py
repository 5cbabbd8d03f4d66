"""C text of the dense weight gradient: the register tile and the loops around it."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.grouped.kernel import C_TYPES
from tilesmith.solvers.c.wrw.strip_text import strip_text
from tilesmith.solvers.c.wrw.tiling import WrwTiling


def run_body(t: WrwTiling) -> str:
    """Pointers: dy, x, partial sums ``[split][group][tile][mr][nr]``. Integers: planes (images x depth), splits."""
    tail = t.run % t.mr
    parts = [
        f"typedef {'unsigned' if t.pairs else 'float'} {MARK}_e;\n"
        f"typedef {C_TYPES[t.problem.x.dtype]} {MARK}_x;\ntypedef {C_TYPES[t.problem.y.dtype]} {MARK}_y;\n",
        "" if t.direct else strip_text(t),
        _tile_function(t, f"{MARK}_tile", t.mr) if t.run >= t.mr else "",
        _tile_function(t, f"{MARK}_rest", tail) if tail else "",
        _item_function(t),
        _entry(t),
    ]
    return "".join(parts)


def _tile_function(t: WrwTiling, name: str, mr: int) -> str:
    """``p[mr][nr] (+)= sum over the strip``; ``xt`` is where the last row without a partner begins."""
    x_pixel, x_row, x_plane, d_pixel, d_row, d_plane = _steps(t)
    cells = [(i, v) for i in range(mr) for v in range(t.nv)]
    o = [
        f"TS_NOINLINE void {name}(const {MARK}_e *x, const {MARK}_e *xt, const {MARK}_e *d, float *p, ts_i64 planes,"
        " ts_i64 rows, ts_i64 whole, ts_i64 cols, int first) {",
        "  (void)xt, (void)whole;",
        *(f"  ts_vf a{i}_{v} = {{0}};" for i, v in cells),
        f"  for (ts_i64 z = 0; z < planes; z++, x += {x_plane}, xt += {x_plane}, d += {d_plane})",
        "    for (ts_i64 q = 0; q < rows; q++) {",
        f"      const {MARK}_e *xx = {f'q == whole ? xt : x + q * {x_row}' if t.pairs else f'x + q * {x_row}'};",
        f"      const {MARK}_e *dd = d + q * {d_row};",
        f"      for (ts_i64 j = 0; j < cols; j++, xx += {x_pixel}, dd += {d_pixel}) {{",
    ]
    if t.pairs:
        o += [f"        ts_vi d{v} = *(const ts_vi_at *)(dd + {v * t.lanes});" for v in range(t.nv)]
        for i in range(mr):
            o.append(f"        {{ ts_vi b = (ts_vi){{0}} + (int)xx[{i}];")
            o += [f"          a{i}_{v} = ts_dot_bf16(a{i}_{v}, b, d{v});" for v in range(t.nv)] + ["        }"]
    else:
        o += [f"        ts_vf d{v} = ts_load_fp32(dd + {v * t.lanes});" for v in range(t.nv)]
        for i in range(mr):
            o.append(f"        {{ float b = xx[{i}];")
            o += [f"          a{i}_{v} += d{v} * b;" for v in range(t.nv)] + ["        }"]
    o += ["      }", "    }", "  if (!first) {"]
    o += [f"    a{i}_{v} += ts_load_fp32(p + {i * t.nr + v * t.lanes});" for i, v in cells] + ["  }"]
    o += [f"  ts_store_fp32(p + {i * t.nr + v * t.lanes}, a{i}_{v});" for i, v in cells] + ["}"]
    return "\n".join(o) + "\n"


def _steps(t: WrwTiling) -> tuple[int, int, int, int, int, int]:
    """From one output pixel, row and plane to the next, in ``x`` and in ``dy``."""
    stride = t.problem.stride
    if t.direct:
        x, y = t.problem.x.strides, t.problem.y.strides
        return stride[2] * x[4], stride[1] * x[3], x[0], y[4], y[3], y[0]
    rows_a_step = 2 if t.pairs else 1
    d_row = t.cols * t.nr
    return stride[2] * t.fan_c, rows_a_step * stride[1] * t.x_row, t.x_plane, t.nr, d_row, t.d_rows * d_row


def _line_offsets(t: WrwTiling) -> list[int]:
    """Where each line begins, from the first input of the strip."""
    dilation, x = t.problem.dilation, t.problem.x.strides
    if t.direct:
        return [e.t * dilation[0] * x[2] + e.r * dilation[1] * x[3] + e.s * dilation[2] * x[4] for e in t.lines]
    return [e.t * t.x_depth + e.r * dilation[1] * t.x_row + e.s * dilation[2] * t.fan_c for e in t.lines]


def _tail_offsets(t: WrwTiling) -> list[int]:
    """Where each line begins for the last row without a partner."""
    step = t.problem.dilation[2] * t.fan_c
    return [e.t * t.x_depth + (t.strip_height + e.r) * t.x_row + e.s * step for e in t.lines]


def _table(name: str, values: list[int]) -> str:
    return f"  static const ts_i64 {name}[] = {{{', '.join(map(str, values))}}};"


def _item_function(t: WrwTiling) -> str:
    """All strips ``u0 .. u1 - 1`` for the tiles ``t0 .. t1 - 1`` of one group."""
    pr, (_, height, width) = t.problem, t.problem.output
    per = t.units_per_plane_group
    across = -(-width // t.cols)
    x, y = pr.x.strides, pr.y.strides
    o = [
        f"TS_NOINLINE void {MARK}_item(const {MARK}_y *y, const {MARK}_x *x, float *sums, char *scratch, ts_i64"
        f" all, ts_i64 g,"
        " ts_i64 u0, ts_i64 u1, ts_i64 t0, ts_i64 t1) {",
        _table("line", _line_offsets(t)),
        *([_table("last", _tail_offsets(t))] if t.tail_rows else []),
        f"  ts_i64 k0 = t0 / {t.line_tiles}, k1 = (t1 - 1) / {t.line_tiles} + 1;",
        "  (void)scratch, (void)k0, (void)k1;",
        "  for (ts_i64 u = u0; u < u1; u++) {",
        f"    ts_i64 z = u / {per} * {t.planes}, oy = u % {per} / {across} * {t.rows}, ox = u % {across} * {t.cols};",
        f"    ts_i64 planes = all - z < {t.planes} ? all - z : {t.planes};",
        f"    ts_i64 rows = {height} - oy < {t.rows} ? {height} - oy : {t.rows};",
        f"    ts_i64 cols = {width} - ox < {t.cols} ? {width} - ox : {t.cols};",
    ]
    if t.direct:
        o += [
            f"    const float *xs = x + z * {x[0]} + oy * {pr.stride[1] * x[3]} + ox * {pr.stride[2] * x[4]} +"
            f" g * {t.fan_c};",
            f"    const float *ds = y + z * {y[0]} + oy * {y[3]} + ox * {y[4]} + g * {t.fan_k};",
        ]
        d_at = f"ds + kb * {t.nr}"
    else:
        o += [
            f"    {MARK}_e *xs = (void *)scratch, *ds = xs + {-(-t.x_elements // 16) * 16};",
            f"    {MARK}_strip(xs, x + g * {t.fan_c}, z, planes, oy, rows, ox, cols);",
            f"    for (ts_i64 kb = k0; kb < k1; kb++) {MARK}_panel(ds + (kb - k0) * {t.d_block}, y + g *"
            f" {t.fan_k}, kb, z, planes,"
            " oy, rows, ox, cols);",
        ]
        d_at = f"ds + (kb - k0) * {t.d_block}"
    steps, whole = ("(rows + 1) / 2", "rows / 2") if t.pairs else ("rows", "rows")
    tail = t.run % t.mr
    tile = f"{MARK}_tile" if t.run >= t.mr else f"{MARK}_rest"
    if tail and t.run >= t.mr:
        tile = f"(m == {t.m_blocks - 1} ? {MARK}_rest : {MARK}_tile)"
    o += [
        "    for (ts_i64 at = t0; at < t1; at++) {",
        f"      ts_i64 kb = at / {t.line_tiles}, l = at % {t.line_tiles} / {t.m_blocks}, m = at % {t.m_blocks};",
        f"      const {MARK}_e *xm = xs + m * {t.mr};",
        f"      {tile}(xm + line[l], {'xm + last[l]' if t.tail_rows else 'xm'}, {d_at}, sums + at *"
        f" {t.tile_elements}, planes,"
        f" {steps}, {whole}, cols, u == u0);",
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(o) + "\n"


def _entry(t: WrwTiling) -> str:
    groups = t.problem.groups
    return "\n".join([
        f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{",
        f"  ts_i64 all = s[0], splits = s[1], units = (all + {t.planes - 1}) / {t.planes} * {t.units_per_plane_group};",
        "  for (ts_i64 item = begin; item < end; item++) {",
        f"    ts_i64 split = item % splits, part = item / splits % {t.parts}, g = item / splits / {t.parts};",
        f"    {MARK}_item(p[0], p[1], (float *)p[2] + (split * {groups} + g) * {t.tiles * t.tile_elements},"
        f" scratch, all, g,",
        f"        units * split / splits, units * (split + 1) / splits, {t.tiles} * part / {t.parts},"
        f" {t.tiles} * (part + 1) / {t.parts});",
        "  }",
        "}",
        "",
    ])  # fmt: skip
