"""C text of the bias gradient: sums of rows, and the sum of the shares."""

from __future__ import annotations

from tilesmith.solvers.c.bgrad.tile import BgradTile
from tilesmith.solvers.c.common.text import C_TYPES, ENTRY

# Terms that one fp32 sum takes before it is folded: keeps the rounding of long sums small.
_RUN = 256


def run_body(t: BgradTile) -> str:
    """Pointers: dy, sums ``[split][pitch]``. Integers: rows of all images, splits."""
    y, (_, _, d, h, _) = t.problem.y, t.problem.y.shape
    kind = C_TYPES[y.dtype]
    return f"""{ENTRY}
  (void)scratch;
  const {kind} *y = p[0];
  for (ts_i64 item = begin; item < end; item++) {{
    float *sum = (float *)p[1] + item * {t.pitch};
    __builtin_memset(sum, 0, {t.pitch * 4});
    for (ts_i64 row = s[0] * item / s[1]; row < s[0] * (item + 1) / s[1]; row++) {{
      const {kind} *at = y + row / {d * h} * {y.strides[0]} + row / {h} % {d} * {y.strides[2]}\
 + row % {h} * {y.strides[3]};
{_channels_in_lanes(t) if y.channels_last else _pixels_in_lanes(t)}\
    }}
  }}
}}
"""


def _vectors(t: BgradTile, line: str) -> str:
    """``line`` with ``#`` filled for each vector."""
    return "".join(line.replace("#", str(v)) + "\n" for v in range(t.vectors))


def _channels_in_lanes(t: BgradTile) -> str:
    """The pixels of a row are added in runs, a run to the sums."""
    y, k, width = t.problem.y, t.problem.k, t.problem.y.shape[4]
    kind, step, wide = C_TYPES[y.dtype], y.strides[4], f"{t.vectors} * TS_LANES"
    add = "ts_store_fp32(sum + c + # * TS_LANES, ts_load_fp32(sum + c + # * TS_LANES) + a#);"
    return f"""\
      for (ts_i64 from = 0; from < {width}; from += {_RUN}) {{
        ts_i64 to = from + {_RUN} < {width} ? from + {_RUN} : {width}, c = 0;
        for (; c + {wide} <= {k}; c += {wide}) {{
          const {kind} *e = at + from * {step} + c;
{_vectors(t, "          ts_vf a# = {0};")}\
          for (ts_i64 j = from; j < to; j++, e += {step}) {{
{_vectors(t, f"            a# += ts_load_{y.dtype}(e + # * TS_LANES);")}\
          }}
{_vectors(t, f"          {add}")}\
        }}
        for (; c < {k}; c += TS_LANES) {{
          const {kind} *e = at + from * {step};
          ts_vf a = {{0}};
          if (c + TS_LANES <= {k})
            for (ts_i64 j = from; j < to; j++, e += {step}) a += ts_load_{y.dtype}(e + c);
          else
            for (ts_i64 j = from; j < to; j++, e += {step}) a += ts_load_n_{y.dtype}(e + c, (int)({k} - c));
          ts_store_fp32(sum + c, ts_load_fp32(sum + c) + a);
        }}
      }}
"""


def _pixels_in_lanes(t: BgradTile) -> str:
    """Each channel's row is summed, then its lanes."""
    y, width, wide = t.problem.y, t.problem.y.shape[4], f"{t.vectors} * TS_LANES"
    others = "".join(f"        a0 += a{v};\n" for v in range(1, t.vectors))
    return f"""\
      for (ts_i64 c = 0; c < {t.problem.k}; c++) {{
        const {C_TYPES[y.dtype]} *e = at + c * {y.strides[1]};
        ts_i64 j = 0;
{_vectors(t, "        ts_vf a# = {0};")}\
        for (; j + {wide} <= {width}; j += {wide}) {{
{_vectors(t, f"          a# += ts_load_{y.dtype}(e + j + # * TS_LANES);")}\
        }}
        for (; j + TS_LANES <= {width}; j += TS_LANES) a0 += ts_load_{y.dtype}(e + j);
        if (j < {width}) a0 += ts_load_n_{y.dtype}(e + j, (int)({width} - j));
{others}\
        float lane[TS_LANES], all = 0.0f;
        ts_store_fp32(lane, a0);
        for (int l = 0; l < TS_LANES; l++) all += lane[l];
        sum[c] += all;
      }}
"""


def fold_body(t: BgradTile) -> str:
    """Adds the splits. Pointers: sums, result."""
    dtype, k = t.problem.y.dtype, t.problem.k
    return f"""{ENTRY}
  (void)scratch, (void)begin, (void)end;
  const float *sum = p[0];
  {C_TYPES[dtype]} *b = p[1];
  for (ts_i64 c = 0; c < {k}; c += TS_LANES) {{
    ts_vf v = ts_load_fp32(sum + c);
    for (ts_i64 q = 1; q < s[0]; q++) v += ts_load_fp32(sum + q * {t.pitch} + c);
    if (c + TS_LANES <= {k}) ts_store_{dtype}(b + c, v);
    else ts_store_n_{dtype}(b + c, v, (int)({k} - c));
  }}
}}
"""
