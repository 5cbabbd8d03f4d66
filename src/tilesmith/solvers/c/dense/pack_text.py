"""Packing: the strip of x that an item reads (each call), and the filter (once)."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.dense_items import NOTE_BYTES
from tilesmith.solvers.c.common.text import C_TYPES, ENTRY, braced
from tilesmith.solvers.c.dense.tile import DenseTile


def strip_text(t: DenseTile) -> str:
    """Text of ``@SYM@_strip(x, scratch, z, y, x, rows, cols)``: positions outside the input become zeros."""
    form, pixel = t.form, t.pixel
    depth, height, width = t.strip_size
    gz, gy, gx = form.spacing
    _, _, sc, sd, sh, sw = form.x_strides
    zd, zh, zw = form.x_size
    ct, xt = f"{MARK}_ct", C_TYPES[form.x_dtype]
    row = width * pixel
    step_y, step_x = form.step[1] // gy, form.step[2] // gx
    as_it_is = t.dot or form.x_dtype == "fp32"
    if sc != 1 and t.cb != 1:
        # Channels lie apart: read along the row, write one channel of each pixel.
        place = f"a + j * {sw * gx}LL"
        one = f"*({place})" if as_it_is else f"ts_get_{form.x_dtype}({place})"
        copy = f"""for (ts_i64 c = 0; c < {t.cb}; c++) {{
        const {xt} *a = s + c * {sc}LL;
        for (ts_i64 j = lo; j < hi; j++) d[j * {pixel} + c] = {one};
      }}"""
    elif as_it_is and gx == 1 and sw == t.cb == pixel:
        copy = f"__builtin_memcpy(d + lo * {pixel}, s + lo * {sw}LL, (ts_u64)((hi - lo) * {t.cb * t.element}));"
    elif as_it_is:
        copy = f"""for (ts_i64 j = lo; j < hi; j++)
        __builtin_memcpy(d + j * {pixel}, s + j * {sw * gx}LL, {t.cb * t.element});"""
    else:
        copy = f"""for (ts_i64 j = lo; j < hi; j++) {{
        const {xt} *a = s + j * {sw * gx}LL;
        {ct} *b = d + j * {pixel};
        int c = 0;
        for (; c + TS_LANES <= {t.cb}; c += TS_LANES) ts_store_fp32(b + c, ts_load_{form.x_dtype}(a + c));
        for (; c < {t.cb}; c++) b[c] = ts_get_{form.x_dtype}(a + c);
      }}"""
    return f"""TS_NOINLINE void {MARK}_strip(const {xt} *x, void *scratch, ts_i64 z0, ts_i64 y0, ts_i64 x0, ts_i64 rows,
                               ts_i64 cols) {{
  {ct} *d = ({ct} *)scratch;
  const ts_i64 h = (rows - 1) * {step_y} + {height - (t.rows - 1) * step_y},\
 width = (cols - 1) * {step_x} + {width - (t.cols - 1) * step_x};
  const ts_i64 size = {"x0 + cols" if form.flat else str(zw)};
  ts_i64 lo = x0 < 0 ? (-x0 + {gx - 1}) / {gx} : 0, hi = size <= x0 ? 0 : (size - x0 + {gx - 1}) / {gx};
  hi = hi > width ? width : hi;
  lo = lo > hi ? hi : lo;
  for (ts_i64 k = 0; k < {depth}; k++) {{
    ts_i64 z = z0 + k * {gz};
    for (ts_i64 i = 0; i < h; i++) {{
      ts_i64 y = y0 + i * {gy};
      {ct} *d = ({ct} *)scratch + (k * {height} + i) * {row};
      if (z < 0 || z >= {zd} || y < 0 || y >= {zh}) {{
        __builtin_memset(d, 0, {row * t.element});
        continue;
      }}
      const {xt} *s = x + z * {sd}LL + y * {sh}LL + x0 * {sw}LL;
      if (lo > 0) __builtin_memset(d, 0, (ts_u64)(lo * {pixel * t.element}));
      {copy}
      if (hi < width) __builtin_memset(d + hi * {pixel}, 0, (ts_u64)((width - hi) * {pixel * t.element}));
    }}
  }}
}}
"""


def compute_type(t: DenseTile) -> str:
    """The type of elements of the strip and of the packed filter."""
    return f"typedef {C_TYPES['bf16' if t.dot else 'fp32']} {MARK}_ct;\n"


def filter_text(t: DenseTile) -> str:
    """The text of the prepare kernel. Pointers: w, packed; integers: the filter's strides (group, k, c, d, h, w).

    An item is one segment of one block of output channels (of one phase, block of input channels and group).
    """
    form = t.form
    ct, wt, p = f"{MARK}_ct", C_TYPES[form.w_dtype], t.per_step
    taps: list[str] = []
    rows: list[str] = []
    for phase, start in zip(form.phases, t.phase_starts, strict=False):
        for number, segment in enumerate(t.segments(phase)):
            values = (len(taps), segment.length, start, number, t.reduction(phase), t.padded_run(t.run(phase)))
            rows.append(braced(values))
            taps += [braced(tap.index) for tap in phase.taps[segment.first : segment.first + segment.length]]
    convert = "*a" if t.dot or form.w_dtype == "fp32" else f"ts_get_{form.w_dtype}(a)"
    bad = "(*(const ts_u16 *)(b) & 0x7f80) == 0x7f80" if t.dot else "(ts_bits(*(b)) & 0x7f800000u) == 0x7f800000u"
    count = max(len(rows), 1)
    return f"""{compute_type(t)}typedef struct {{
  int tap, taps;
  ts_i64 w;
  int number;
  ts_i64 depth, run;
}} {MARK}_piece;
static const short {MARK}_taps[{max(len(taps), 1)}][3] = {{{", ".join(taps) or "{0}"}}};
static const {MARK}_piece {MARK}_pieces[{count}] = {{{", ".join(rows) or "{0}"}}};
{ENTRY}
  int bad = 0;
  (void)scratch;
  for (ts_i64 item = begin; item < end; item++) {{
    const {MARK}_piece *e = {MARK}_pieces + item % {count};
    ts_i64 rest = item / {count}, kb = rest % {t.blocks};
    rest /= {t.blocks};
    ts_i64 cb = rest % {t.c_blocks}, g = rest / {t.c_blocks};
    int nr = kb < {t.full_blocks} ? {t.nr} : {max(t.tail_vectors, 1) * t.lanes};
    int lanes = {form.k} - kb * {t.nr} < nr ? (int)({form.k} - kb * {t.nr}) : nr;
    {ct} *d = ({ct} *)((char *)p[1] + {NOTE_BYTES}) + (g * {t.c_blocks} + cb) * {t.phase_starts[-1]}LL + e->w
      + kb * e->depth * {t.nr} + e->number * e->run * nr;
    __builtin_memset(d, 0, (ts_u64)(e->run * nr * {t.element}));
    const {wt} *w = (const {wt} *)p[0] + g * s[0] + kb * {t.nr} * s[1] + cb * {t.cb} * s[2];
    for (int i = 0; i < e->taps; i++) {{
      const short *tap = {MARK}_taps[e->tap + i];
      const {wt} *from = w + tap[0] * s[3] + tap[1] * s[4] + tap[2] * s[5];
      for (ts_i64 c = 0; c < {t.cb}; c++) {{
        ts_i64 row = (ts_i64)i * {t.cb} + c;
        const {wt} *a = from + c * s[2];
        {ct} *b = d + row / {p} * ({p} * nr) + row % {p};
        for (int lane = 0; lane < lanes; lane++, a += s[1], b += {p}) {{
          *b = {convert};
          bad |= {bad};
        }}
      }}
    }}
  }}
  if (bad) *(volatile int *)p[1] = 1;
}}
"""
