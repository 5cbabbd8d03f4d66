"""C text of the dense weight gradient: strips, the register tile, and the sum that writes the result."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.grouped_kernel import PICK
from tilesmith.solvers.c.wrw_tiling import WrwTiling

C_TYPES = {"fp32": "ts_f32", "bf16": "ts_u16", "fp16": "ts_u16"}


def run_body(t: WrwTiling) -> str:
    """Pointers: dy, x, partial sums ``[split][group][tile][mr][nr]``. Integers: planes (images x depth), splits."""
    tail = t.run % t.mr
    parts = [
        f"typedef {'unsigned' if t.pairs else 'float'} {MARK}_e;\n"
        f"typedef {C_TYPES[t.problem.x.dtype]} {MARK}_x;\ntypedef {C_TYPES[t.problem.y.dtype]} {MARK}_y;\n",
        "" if t.direct else _pack_text(t),
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


def _item_function(t: WrwTiling) -> str:
    """All strips ``u0 .. u1 - 1`` for the tiles ``t0 .. t1 - 1`` of one group."""
    pr, (_, height, width) = t.problem, t.problem.output
    per = t.units_per_plane_group
    across = -(-width // t.cols)
    x, y = pr.x.strides, pr.y.strides
    table = lambda name, values: f"  static const ts_i64 {name}[] = {{{', '.join(map(str, values))}}};"  # noqa: E731
    o = [
        f"TS_NOINLINE void {MARK}_item(const {MARK}_y *y, const {MARK}_x *x, float *sums, char *scratch, ts_i64 all, ts_i64 g,"
        " ts_i64 u0, ts_i64 u1, ts_i64 t0, ts_i64 t1) {",
        table("line", _line_offsets(t)),
        *([table("last", _tail_offsets(t))] if t.tail_rows else []),
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
            f"    const float *xs = x + z * {x[0]} + oy * {pr.stride[1] * x[3]} + ox * {pr.stride[2] * x[4]} + g * {t.fan_c};",
            f"    const float *ds = y + z * {y[0]} + oy * {y[3]} + ox * {y[4]} + g * {t.fan_k};",
        ]
        d_at = f"ds + kb * {t.nr}"
    else:
        o += [
            f"    {MARK}_e *xs = (void *)scratch, *ds = xs + {-(-t.x_elements // 16) * 16};",
            f"    {MARK}_strip(xs, x + g * {t.fan_c}, z, planes, oy, rows, ox, cols);",
            f"    for (ts_i64 kb = k0; kb < k1; kb++) {MARK}_panel(ds + (kb - k0) * {t.d_block}, y + g * {t.fan_k}, kb, z, planes,"
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
        f"      {tile}(xm + line[l], {'xm + last[l]' if t.tail_rows else 'xm'}, {d_at}, sums + at * {t.tile_elements}, planes,"
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
        f"    {MARK}_item(p[0], p[1], (float *)p[2] + (split * {groups} + g) * {t.tiles * t.tile_elements}, scratch, all, g,",
        f"        units * split / splits, units * (split + 1) / splits, {t.tiles} * part / {t.parts},"
        f" {t.tiles} * (part + 1) / {t.parts});",
        "  }",
        "}",
        "",
    ])  # fmt: skip


def _pack_text(t: WrwTiling) -> str:
    """``_strip`` copies input with its padding, ``_panel`` one block of ``k`` of ``dy``; both convert."""
    pr = t.problem
    depth = pr.output[0]
    x, y = pr.x.strides, pr.y.strides
    whole_rows = pr.groups == 1 and x[4] == pr.c
    row = [
        f"TS_INLINE void {MARK}_row({MARK}_e *d, const {MARK}_x *a, const {MARK}_x *b, ts_i64 x0, ts_i64 n) {{",
        f"  ts_i64 lo = x0 < 0 ? -x0 : 0, hi = {pr.input[2]} - x0 < n ? {pr.input[2]} - x0 : n;",
        "  (void)b;",
        f"  if (!a || lo >= hi) {{ {MARK}_zero(d, n * {t.fan_c}); return; }}",
        f"  {MARK}_zero(d, lo * {t.fan_c});",
        f"  {MARK}_zero(d + hi * {t.fan_c}, (n - hi) * {t.fan_c});",
    ]
    if whole_rows:
        row.append(
            f"  {MARK}_copy_x(d + lo * {pr.c}, a + (x0 + lo) * {pr.c}, b ? b + (x0 + lo) * {pr.c} : 0, (hi - lo) * {pr.c});"
        )
    else:
        row.append(
            f"  for (ts_i64 j = lo; j < hi; j++) {MARK}_copy_x(d + j * {t.fan_c}, a + (x0 + j) * {x[4]},"
            f" b ? b + (x0 + j) * {x[4]} : 0, {t.fan_c});"
        )
    row.append("}")
    height = pr.input[1]
    source = lambda h: f"in_d && {h} >= 0 && {h} < {height} ? from + {h} * {x[3]} : 0"  # noqa: E731
    reach = (pr.filter[1] - 1) * pr.dilation[1] + 1
    strip = [
        f"TS_NOINLINE void {MARK}_strip({MARK}_e *d, const {MARK}_x *x, ts_i64 z, ts_i64 planes, ts_i64 oy, ts_i64 rows,"
        " ts_i64 ox, ts_i64 cols) {",
        f"  ts_i64 x0 = ox * {pr.stride[2]} - {pr.padding[2]}, n = (cols - 1) * {pr.stride[2]}"
        f" + {(pr.filter[2] - 1) * pr.dilation[2] + 1};",
        f"  for (ts_i64 i = 0; i < planes; i++) for (ts_i64 t = 0; t < {pr.filter[0]}; t++, d += {t.x_depth}) {{",
        f"    ts_i64 id = (z + i) % {depth} * {pr.stride[0]} + t * {pr.dilation[0]} - {pr.padding[0]};",
        f"    int in_d = id >= 0 && id < {pr.input[0]};",
        f"    const {MARK}_x *from = x + (z + i) / {depth} * {x[0]} + id * {x[2]};",
        f"    ts_i64 h0 = oy * {pr.stride[1]} - {pr.padding[1]};",
    ]
    if t.pairs:
        # A row of the strip holds an input row and the one that the next output row meets in its place.
        strip += [
            f"    for (ts_i64 r = 0; r < (rows / 2 * 2 - 2) * {pr.stride[1]} + {reach}; r++) {{",
            f"      ts_i64 h = h0 + r, h2 = h + {pr.stride[1]};",
            f"      const {MARK}_x *a = {source('h')}, *b = {source('h2')};",
            f"      {MARK}_row(d + r * {t.x_row}, a ? a : b, a ? b : 0, x0, n);",
            f"      if (!a && b) {MARK}_upper(d + r * {t.x_row}, n * {t.fan_c});",
            "    }",
        ]
        if t.tail_rows:
            strip += [
                f"    if (rows % 2) for (ts_i64 r = 0; r < {pr.filter[1]}; r++) {{",
                f"      ts_i64 h = h0 + (rows - 1) * {pr.stride[1]} + r * {pr.dilation[1]};",
                f"      {MARK}_row(d + ({t.strip_height} + r) * {t.x_row}, {source('h')}, 0, x0, n);",
                "    }",
            ]
    else:
        strip += [
            f"    for (ts_i64 r = 0; r < (rows - 1) * {pr.stride[1]} + {reach}; r++) {{",
            "      ts_i64 h = h0 + r;",
            f"      {MARK}_row(d + r * {t.x_row}, {source('h')}, 0, x0, n);",
            "    }",
        ]
    strip += ["  }", "}"]
    return "\n".join([_copies(t), *row, *strip, _panel(t, y)]) + "\n"


def _panel(t: WrwTiling, y: tuple[int, ...]) -> str:
    pr = t.problem
    depth = pr.output[0]
    rest = t.fan_k % t.nr
    count = f"(kb == {t.k_blocks - 1} ? {rest} : {t.nr})" if rest else f"{t.nr}"
    o = [
        f"TS_NOINLINE void {MARK}_panel({MARK}_e *d, const {MARK}_y *y, ts_i64 kb, ts_i64 z, ts_i64 planes, ts_i64 oy,"
        " ts_i64 rows, ts_i64 ox, ts_i64 cols) {",
        f"  ts_i64 n = {count};",
        f"  for (ts_i64 i = 0; i < planes; i++, d += {t.d_rows * t.cols * t.nr}) {{",
        f"    const {MARK}_y *from = y + (z + i) / {depth} * {y[0]} + (z + i) % {depth} * {y[2]} + oy * {y[3]} + ox * {y[4]}"
        f" + kb * {t.nr};",
    ]
    step = 2 if t.pairs else 1
    second = f"q + 1 < rows ? a + {y[3]} : 0" if t.pairs else "0"
    body = [f"{MARK}_copy_y(e, a + j * {y[4]}, b ? b + j * {y[4]} : 0, n);"]
    if rest:
        body.append(f"if (n < {t.nr}) {MARK}_zero(e + n, {t.nr} - n);")
    o += [
        f"    for (ts_i64 q = 0; q < rows; q += {step}) {{",
        f"      const {MARK}_y *a = from + q * {y[3]}, *b = {second};",
        f"      {MARK}_e *e = d + q / {step} * {t.cols * t.nr};",
        "      (void)b;",
        f"      for (ts_i64 j = 0; j < cols; j++, e += {t.nr}) {{ {' '.join(body)} }}",
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(o)


def _copies(t: WrwTiling) -> str:
    o = [f"TS_INLINE void {MARK}_zero({MARK}_e *d, ts_i64 n) {{ __builtin_memset(d, 0, (ts_u64)n * 4); }}"]
    if t.pairs:
        o += [
            f"TS_INLINE void {MARK}_upper({MARK}_e *d, ts_i64 n) {{ for (ts_i64 i = 0; i < n; i++) d[i] <<= 16; }}",
            f"TS_INLINE ts_vi {MARK}_pair(ts_vh a, ts_vh b) {{",
            "  return __builtin_convertvector(a, ts_vi) | (ts_vi)(__builtin_convertvector(b, ts_vu) << 16);",
            "}",
            f"TS_INLINE ts_vh {MARK}_some(const ts_u16 *p, int n) {{",
            "  ts_vh h = {0};",
            "  if (p && n == TS_LANES) h = *(const ts_vh_at *)p;",
            "  else if (p) h = ts_load_n_half(p, n);",
            "  return h;",
            "}",
        ]
        for name in "xy":
            o += [
                f"TS_INLINE void {MARK}_copy_{name}({MARK}_e *d, const ts_u16 *a, const ts_u16 *b, ts_i64 n) {{",
                "  ts_i64 i = 0;",
                "  for (; i + TS_LANES <= n; i += TS_LANES)",
                f"    *(ts_vi_at *)(d + i) = {MARK}_pair({MARK}_some(a + i, TS_LANES), {MARK}_some(b ? b + i : 0, TS_LANES));",
                "  int m = (int)(n - i);",
                "  if (m) ts_store_n_fp32(d + i, (ts_vf)"
                f"{MARK}_pair({MARK}_some(a + i, m), {MARK}_some(b ? b + i : 0, m)), m);",
                "}",
            ]
        return "\n".join(o)
    for name, dtype in (("x", t.problem.x.dtype), ("y", t.problem.y.dtype)):
        o += [
            f"TS_INLINE void {MARK}_copy_{name}({MARK}_e *d, const {MARK}_{name} *a, const {MARK}_{name} *b, ts_i64 n) {{",
            "  ts_i64 i = 0;",
            "  (void)b;",
            f"  for (; i + TS_LANES <= n; i += TS_LANES) ts_store_fp32(d + i, ts_load_{dtype}(a + i));",
            "  int m = (int)(n - i);",
            f"  if (m) ts_store_n_fp32(d + i, ts_load_n_{dtype}(a + i, m), m);",
            "}",
        ]
    return "\n".join(o)


def reduce_body(t: WrwTiling) -> str:
    """Sums the splits of one tile an item and writes it with the filter's strides. Pointers: partial sums, dw.

    Tiles have ``k`` in lanes, filters mostly ``c``: blocks of lanes x lanes are transposed in registers.
    """
    pr, w, n = t.problem, t.problem.w, t.lanes
    lines = ", ".join(str(e.t * w.strides[2] + e.r * w.strides[3] + e.s * w.strides[4]) for e in t.lines)
    whole = pr.groups * t.tiles * t.tile_elements
    in_order = w.strides[1] == 1 and (not t.merged or pr.filter[2] == 1 or w.strides[4] == t.fan_c)
    if in_order:
        write = [
            f"          {C_TYPES[w.dtype]} *at_k = to + (k + j) * {w.strides[0]} + m * {t.mr} + i;",
            f"          if (count == {n}) ts_store_{w.dtype}(at_k, v[j]); else ts_store_n_{w.dtype}(at_k, v[j], count);",
        ]
    else:
        place = (
            f"e / {t.fan_c} * {w.strides[4]} + e % {t.fan_c} * {w.strides[1]}" if t.merged else f"e * {w.strides[1]}"
        )
        write = [
            f"          {C_TYPES[w.dtype]} *at_k = to + (k + j) * {w.strides[0]}, part[{n}];",
            f"          ts_store_{w.dtype}(part, v[j]);",
            f"          for (int l = 0; l < count; l++) {{ ts_i64 e = m * {t.mr} + i + l; at_k[{place}] = part[l]; }}",
        ]
    return "\n".join([
        PICK,
        _transpose(n),
        f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{",
        "  (void)scratch;",
        f"  static const ts_i64 line[] = {{{lines}}};",
        "  for (ts_i64 item = begin; item < end; item++) {",
        f"    ts_i64 g = item / {t.tiles}, at = item % {t.tiles}, kb = at / {t.line_tiles};",
        f"    ts_i64 l = at % {t.line_tiles} / {t.m_blocks}, m = at % {t.m_blocks};",
        f"    int rows = (int)({t.run} - m * {t.mr} < {t.mr} ? {t.run} - m * {t.mr} : {t.mr});",
        f"    int cols = (int)({t.fan_k} - kb * {t.nr} < {t.nr} ? {t.fan_k} - kb * {t.nr} : {t.nr});",
        f"    const float *from = (const float *)p[0] + item * {t.tile_elements};",
        f"    {C_TYPES[w.dtype]} *to = ({C_TYPES[w.dtype]} *)p[1] + line[l] + (g * {t.fan_k} + kb * {t.nr}) * {w.strides[0]};",
        f"    for (int k = 0; k < cols; k += {n})",
        f"      for (int i = 0; i < rows; i += {n}) {{",
        f"        int count = rows - i < {n} ? rows - i : {n}, wide = cols - k < {n} ? cols - k : {n};",
        f"        ts_vf v[{n}];",
        f"        for (int j = 0; j < {n}; j++) v[j] = (ts_vf){{0}};",
        "        for (ts_i64 q = 0; q < s[0]; q++)",
        f"          for (int j = 0; j < count; j++) v[j] += ts_load_fp32(from + q * {whole} + (i + j) * {t.nr} + k);",
        f"        {MARK}_transpose(v);",
        "        for (int j = 0; j < wide; j++) {",
        *write,
        "        }",
        "      }",
        "  }",
        "}",
        "",
    ])  # fmt: skip


def _transpose(n: int) -> str:
    """``v[i][j]`` becomes ``v[j][i]``: halves of pairs of vectors change places, at every distance once."""
    o = [f"TS_INLINE void {MARK}_transpose(ts_vf *v) {{", "  ts_vf a;"]
    distance = n // 2
    while distance:
        low = ", ".join(str(n + (i ^ distance) if i & distance else i) for i in range(n))
        high = ", ".join(str(n + i if i & distance else i ^ distance) for i in range(n))
        for i in range(n):
            if not i & distance:
                one, two = f"v[{i}]", f"v[{i + distance}]"
                o.append(f"  a = {MARK}_PICK({one}, {two}, {low});")
                o.append(f"  {two} = {MARK}_PICK({one}, {two}, {high}), {one} = a;")
        distance //= 2
    return "\n".join([*o, "}"])
