"""C text that copies strips of ``x`` and panels of ``dy`` for the dense weight gradient."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.wrw.tiling import WrwTiling


def strip_text(t: WrwTiling) -> str:
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
            f"  {MARK}_copy_x(d + lo * {pr.c}, a + (x0 + lo) * {pr.c}, b ? b + (x0 + lo) * {pr.c} : 0, (hi -"
            f" lo) * {pr.c});"
        )
    else:
        row.append(
            f"  for (ts_i64 j = lo; j < hi; j++) {MARK}_copy_x(d + j * {t.fan_c}, a + (x0 + j) * {x[4]},"
            f" b ? b + (x0 + j) * {x[4]} : 0, {t.fan_c});"
        )
    row.append("}")
    height = pr.input[1]

    def source(h: str) -> str:
        return f"in_d && {h} >= 0 && {h} < {height} ? from + {h} * {x[3]} : 0"

    reach = (pr.filter[1] - 1) * pr.dilation[1] + 1
    strip = [
        f"TS_NOINLINE void {MARK}_strip({MARK}_e *d, const {MARK}_x *x, ts_i64 z, ts_i64 planes, ts_i64 oy,"
        f" ts_i64 rows,"
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
        f"    const {MARK}_y *from = y + (z + i) / {depth} * {y[0]} + (z + i) % {depth} * {y[2]} + oy * {y[3]}"
        f" + ox * {y[4]}"
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
                f"    *(ts_vi_at *)(d + i) = {MARK}_pair({MARK}_some(a + i, TS_LANES), {MARK}_some(b ? b + i :"
                f" 0, TS_LANES));",
                "  int m = (int)(n - i);",
                "  if (m) ts_store_n_fp32(d + i, (ts_vf)"
                f"{MARK}_pair({MARK}_some(a + i, m), {MARK}_some(b ? b + i : 0, m)), m);",
                "}",
            ]
        return "\n".join(o)
    for name, dtype in (("x", t.problem.x.dtype), ("y", t.problem.y.dtype)):
        o += [
            f"TS_INLINE void {MARK}_copy_{name}({MARK}_e *d, const {MARK}_{name} *a, const {MARK}_{name} *b,"
            f" ts_i64 n) {{",
            "  ts_i64 i = 0;",
            "  (void)b;",
            f"  for (; i + TS_LANES <= n; i += TS_LANES) ts_store_fp32(d + i, ts_load_{dtype}(a + i));",
            "  int m = (int)(n - i);",
            f"  if (m) ts_store_n_fp32(d + i, ts_load_n_{dtype}(a + i, m), m);",
            "}",
        ]
    return "\n".join(o)
