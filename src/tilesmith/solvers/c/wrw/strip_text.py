"""C text that copies strips of ``x`` and panels of ``dy`` for the dense weight gradient."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.wrw.tile import WrwTile


def strip_text(t: WrwTile) -> str:
    """``_strip`` copies input with its padding, ``_panel`` one block of ``k`` of ``dy``; both convert."""
    zero = f"TS_INLINE void {MARK}_zero({MARK}_e *d, ts_i64 n) {{ __builtin_memset(d, 0, (ts_u64)n * 4); }}\n"
    return zero + (_PAIRS if t.pairs else "") + _copy(t, "x") + _copy(t, "y") + _row(t) + _strip(t) + _panel(t)


# Two rows of bf16 in one: an element and the one below it.
_PAIRS = f"""\
TS_INLINE void {MARK}_upper({MARK}_e *d, ts_i64 n) {{ for (ts_i64 i = 0; i < n; i++) d[i] <<= 16; }}
TS_INLINE ts_vi {MARK}_pair(ts_vh a, ts_vh b) {{
  return __builtin_convertvector(a, ts_vi) | (ts_vi)(__builtin_convertvector(b, ts_vu) << 16);
}}
TS_INLINE ts_vh {MARK}_some(const ts_u16 *p, int n) {{
  ts_vh h = {{0}};
  if (p && n == TS_LANES) h = *(const ts_vh_at *)p;
  else if (p) h = ts_load_n_half(p, n);
  return h;
}}
"""


def _copy(t: WrwTile, name: str) -> str:
    """``n`` elements from ``a``, in pairs with those from ``b`` where rows go in pairs."""
    dtype = t.problem.x.dtype if name == "x" else t.problem.y.dtype
    if t.pairs:
        return f"""\
TS_INLINE void {MARK}_copy_{name}({MARK}_e *d, const ts_u16 *a, const ts_u16 *b, ts_i64 n) {{
  ts_i64 i = 0;
  for (; i + TS_LANES <= n; i += TS_LANES)
    *(ts_vi_at *)(d + i) = {MARK}_pair({MARK}_some(a + i, TS_LANES), {MARK}_some(b ? b + i : 0, TS_LANES));
  int m = (int)(n - i);
  if (m) ts_store_n_fp32(d + i, (ts_vf){MARK}_pair({MARK}_some(a + i, m), {MARK}_some(b ? b + i : 0, m)), m);
}}
"""
    return f"""\
TS_INLINE void {MARK}_copy_{name}({MARK}_e *d, const {MARK}_{name} *a, const {MARK}_{name} *b, ts_i64 n) {{
  ts_i64 i = 0;
  (void)b;
  for (; i + TS_LANES <= n; i += TS_LANES) ts_store_fp32(d + i, ts_load_{dtype}(a + i));
  int m = (int)(n - i);
  if (m) ts_store_n_fp32(d + i, ts_load_n_{dtype}(a + i, m), m);
}}
"""


def _row(t: WrwTile) -> str:
    """``n`` input pixels of one row from ``x0`` on."""
    pr = t.problem
    step, c, width = pr.x.strides[4], t.fan_c, pr.input[2]
    if pr.groups == 1 and step == pr.c:
        copy = f"{MARK}_copy_x(d + lo * {c}, a + (x0 + lo) * {c}, b ? b + (x0 + lo) * {c} : 0, (hi - lo) * {c});"
    else:
        source = f"a + (x0 + j) * {step}, b ? b + (x0 + j) * {step} : 0"
        copy = f"for (ts_i64 j = lo; j < hi; j++) {MARK}_copy_x(d + j * {c}, {source}, {c});"
    return f"""\
TS_INLINE void {MARK}_row({MARK}_e *d, const {MARK}_x *a, const {MARK}_x *b, ts_i64 x0, ts_i64 n) {{
  ts_i64 lo = x0 < 0 ? -x0 : 0, hi = {width} - x0 < n ? {width} - x0 : n;
  (void)b;
  if (!a || lo >= hi) {{ {MARK}_zero(d, n * {c}); return; }}
  {MARK}_zero(d, lo * {c});
  {MARK}_zero(d + hi * {c}, (n - hi) * {c});
  {copy}
}}
"""


def _strip(t: WrwTile) -> str:
    pr, (depth, down, across) = t.problem, t.problem.stride
    x, height, planes = pr.x.strides, pr.input[1], pr.output[0]

    def source(h: str) -> str:
        return f"in_d && {h} >= 0 && {h} < {height} ? from + {h} * {x[3]} : 0"

    if t.pairs:
        # A row of the strip holds an input row and the one that the next output row meets in its place.
        rows = f"""\
    for (ts_i64 r = 0; r < (rows / 2 * 2 - 2) * {down} + {t.reach(1)}; r++) {{
      ts_i64 h = h0 + r, h2 = h + {down};
      const {MARK}_x *a = {source("h")}, *b = {source("h2")};
      {MARK}_row(d + r * {t.x_row}, a ? a : b, a ? b : 0, x0, n);
      if (!a && b) {MARK}_upper(d + r * {t.x_row}, n * {t.fan_c});
    }}
"""
        if t.tail_rows:
            rows += f"""\
    if (rows % 2) for (ts_i64 r = 0; r < {pr.filter[1]}; r++) {{
      ts_i64 h = h0 + (rows - 1) * {down} + r * {pr.dilation[1]};
      {MARK}_row(d + ({t.strip_height} + r) * {t.x_row}, {source("h")}, 0, x0, n);
    }}
"""
    else:
        rows = f"""\
    for (ts_i64 r = 0; r < (rows - 1) * {down} + {t.reach(1)}; r++) {{
      ts_i64 h = h0 + r;
      {MARK}_row(d + r * {t.x_row}, {source("h")}, 0, x0, n);
    }}
"""
    return f"""\
TS_NOINLINE void {MARK}_strip({MARK}_e *d, const {MARK}_x *x, ts_i64 z, ts_i64 planes, ts_i64 oy, ts_i64 rows,\
 ts_i64 ox, ts_i64 cols) {{
  ts_i64 x0 = ox * {across} - {pr.padding[2]}, n = (cols - 1) * {across} + {t.reach(2)};
  for (ts_i64 i = 0; i < planes; i++) for (ts_i64 t = 0; t < {pr.filter[0]}; t++, d += {t.x_depth}) {{
    ts_i64 id = (z + i) % {planes} * {depth} + t * {pr.dilation[0]} - {pr.padding[0]};
    int in_d = id >= 0 && id < {pr.input[0]};
    const {MARK}_x *from = x + (z + i) / {planes} * {x[0]} + id * {x[2]};
    ts_i64 h0 = oy * {down} - {pr.padding[1]};
{rows}\
  }}
}}
"""


def _panel(t: WrwTile) -> str:
    y, planes, rest = t.problem.y.strides, t.problem.output[0], t.fan_k % t.nr
    count = f"(kb == {t.k_blocks - 1} ? {rest} : {t.nr})" if rest else f"{t.nr}"
    step, second = (2, f"q + 1 < rows ? a + {y[3]} : 0") if t.pairs else (1, "0")
    zero = f" if (n < {t.nr}) {MARK}_zero(e + n, {t.nr} - n);" if rest else ""
    copy = f"{MARK}_copy_y(e, a + j * {y[4]}, b ? b + j * {y[4]} : 0, n);{zero}"
    return f"""\
TS_NOINLINE void {MARK}_panel({MARK}_e *d, const {MARK}_y *y, ts_i64 kb, ts_i64 z, ts_i64 planes, ts_i64 oy,\
 ts_i64 rows, ts_i64 ox, ts_i64 cols) {{
  ts_i64 n = {count};
  for (ts_i64 i = 0; i < planes; i++, d += {t.d_rows * t.cols * t.nr}) {{
    const {MARK}_y *from = y + (z + i) / {planes} * {y[0]} + (z + i) % {planes} * {y[2]} + oy * {y[3]} + ox * {y[4]}\
 + kb * {t.nr};
    for (ts_i64 q = 0; q < rows; q += {step}) {{
      const {MARK}_y *a = from + q * {y[3]}, *b = {second};
      {MARK}_e *e = d + q / {step} * {t.cols * t.nr};
      (void)b;
      for (ts_i64 j = 0; j < cols; j++, e += {t.nr}) {{ {copy} }}
    }}
  }}
}}
"""
