"""CUDA text of the reference kernels: each problem as a small matrix product with operands gathered element by element.

A block of 256 threads computes tiles of ``TM`` x ``TN`` results, ``Q`` elements of the reduction at a time: both
operands are gathered (and converted) into shared memory, and each thread multiplies ``RM`` x ``RN`` of them. Sizes and
strides are all run-time values, so one text serves every problem of its direction and dtypes.
"""

from __future__ import annotations

THREADS = 256

# What every direction shares; ``@ACC@`` is double, or unsigned for integers.
COMMON = """
__device__ inline ts_i64 @SYM@_channel(ts_i64 c, ts_i64 stride, ts_i64 vector) {
  return vector == 1 ? c * stride : c / vector * stride + c % vector;
}

/* at becomes at / by; the remainder is returned. Most numbers are small, and dividing those is ten times faster. */
__device__ inline ts_i64 @SYM@_split(ts_i64 &at, ts_i64 by) {
  const ts_i64 from = at;
  at = ((from | by) >> 32) == 0 ? (ts_i64)((unsigned)from / (unsigned)by) : from / by;
  return from - at * by;
}
"""

PRODUCT = """
      __syncthreads();
      for (int q = 0; q < @Q@; q++) {
        @ACC@ av[@RM@], bv[@RN@];
#pragma unroll
        for (int i = 0; i < @RM@; i++) av[i] = a[q][tm + i * @TMT@];
#pragma unroll
        for (int j = 0; j < @RN@; j++) bv[j] = b[q][tn + j * @TNT@];
#pragma unroll
        for (int i = 0; i < @RM@; i++) {
@EXISTS@
#pragma unroll
          for (int j = 0; j < @RN@; j++) c[i][j] += av[i] * bv[j];
        }
      }
      __syncthreads();
"""

OPEN = """
  __shared__ @ACC@ a[@Q@][@TM@], b[@Q@][@TN@];
  const int t = threadIdx.x, tm = t / @TNT@, tn = t % @TNT@;
"""

# fwd and bwd. A group has ``on`` result channels and ``rn`` source channels; the reduction is (tap, source channel).
CONV = """
/* Where the element lies that a tap meets at position o of the result, or -1. */
__device__ inline ts_i64 @SYM@_locate(ts_i64 o, ts_i64 tap, ts_i64 s, ts_i64 p, ts_i64 d, ts_i64 size) {
@LOCATE@
}

extern "C" __global__ void __launch_bounds__(256, 1) @SYM@(@PARAMETERS@) {
@GUARD@
  __shared__ ts_i64 image[@TM@], out[@TM@], so[@Q@], wo[@Q@];
  __shared__ int pd[@TM@], ph[@TM@], pw[@TM@], qd[@Q@], qh[@Q@], qw[@Q@];
@BWD_FLAGS@
@OPEN@
  const ts_i64 positions = n * od * oh * ow, depth = rn * fd * fh * fw;
  const ts_i64 blocks = (on + @TN@ - 1) / @TN@, tiles = (positions + @TM@ - 1) / @TM@ * blocks * groups;
  for (ts_i64 item = blockIdx.x; item < tiles; item += gridDim.x) {
    ts_i64 m0 = item;
    const ts_i64 n0 = @SYM@_split(m0, blocks) * @TN@, group = @SYM@_split(m0, groups);
    m0 *= @TM@;
    for (int i = t; i < @TM@; i += 256) {
      ts_i64 at = m0 + i;
      image[i] = -1;
      if (at >= positions) continue;
      pw[i] = (int)@SYM@_split(at, ow), ph[i] = (int)@SYM@_split(at, oh), pd[i] = (int)@SYM@_split(at, od);
      image[i] = at * src0;
      out[i] = at * out0 + pd[i] * out2 + ph[i] * out3 + pw[i] * out4;
    }
    @ACC@ c[@RM@][@RN@] = {};
    for (ts_i64 k0 = 0; k0 < depth; k0 += @Q@) {
      if (t < @Q@) {
        ts_i64 at = k0 + t;
        qd[t] = -1;
        if (at < depth) {
          const ts_i64 r = @SYM@_split(at, rn);
          qw[t] = (int)@SYM@_split(at, fw), qh[t] = (int)@SYM@_split(at, fh), qd[t] = (int)at;
          so[t] = @SYM@_channel(group * rn + r, src1, srcv);
          wo[t] = at * w2 + qh[t] * w3 + qw[t] * w4 + @W_SOURCE@;
        }
      }
      __syncthreads();
      for (int i = t; i < @TM@ * @Q@; i += 256) {
        const int m = src1 <= src4 ? i / @Q@ : i % @TM@, q = src1 <= src4 ? i % @Q@ : i / @TM@;
        ts_i64 at = -1;
        if (image[m] >= 0 && qd[q] >= 0) {
          const ts_i64 vd = @SYM@_locate(pd[m], qd[q], sd, padd, dd, id);
          const ts_i64 vh = @SYM@_locate(ph[m], qh[q], sh, padh, dh, ih);
          const ts_i64 vw = @SYM@_locate(pw[m], qw[q], sw, padw, dw, iw);
          if ((vd | vh | vw) >= 0) at = image[m] + so[q] + vd * src2 + vh * src3 + vw * src4;
        }
        a[q][m] = at < 0 ? 0 : (@ACC@)ts_load_@SRC@(src, at);
@BWD_NOTE@
      }
      for (int i = t; i < @TN@ * @Q@; i += 256) {
        const int m = i / @Q@, q = i % @Q@;
        const ts_i64 channel = n0 + m;
        b[q][m] = qd[q] < 0 || channel >= on ? 0 : (@ACC@)ts_load_@W@(w, wo[q] + @W_RESULT@);
      }
@PRODUCT@
    }
#pragma unroll
    for (int i = 0; i < @RM@; i++)
#pragma unroll
      for (int j = 0; j < @RN@; j++) {
        const int m = tm + i * @TMT@;
        ts_i64 channel = n0 + tn + j * @TNT@;
        if (image[m] < 0 || channel >= on) continue;
        channel += group * on;
        const ts_i64 at = out[m] + @SYM@_channel(channel, out1, outv);
        @VALUE@ v = @SIGNED@c[i][j];@SCALE@
@EPILOGUE@
        ts_store_@OUT@(y, at, v);
      }
    __syncthreads();
  }
}
"""

LOCATE = {
    "fwd": "  const ts_i64 i = o * s - p + tap * d;\n  return i < size ? i : -1;",
    # Products with elements outside the image do not exist; a stride leaves gaps between those inside.
    "bwd": (
        "  ts_i64 i = o + p - tap * d;\n  if (i < 0) return -1;\n"
        "  return @SYM@_split(i, s) == 0 && i < size ? i : -1;"
    ),
}

# wrw: positions are the result's channels, its columns (channel, tap); the reduction runs over the output's pixels.
WRW = """
extern "C" __global__ void __launch_bounds__(256, 1) @SYM@(@PARAMETERS@) {
@GUARD@
  __shared__ ts_i64 xc[@TN@], out[@TN@], qx[@Q@], qy[@Q@];
  __shared__ int td[@TN@], th[@TN@], tw[@TN@], qd[@Q@], qh[@Q@], qw[@Q@];
@OPEN@
  const ts_i64 taps = fd * fh * fw, columns = cn * taps, pixels = n * od * oh * ow;
  const ts_i64 blocks = (columns + @TN@ - 1) / @TN@, rows = (kn + @TM@ - 1) / @TM@, tiles = blocks * rows * groups;
  for (ts_i64 item = blockIdx.x; item < tiles; item += gridDim.x) {
    ts_i64 group = item;
    const ts_i64 n0 = @SYM@_split(group, blocks) * @TN@, m0 = @SYM@_split(group, rows) * @TM@;
    for (int i = t; i < @TN@; i += 256) {
      ts_i64 at = n0 + i;
      xc[i] = -1;
      if (at >= columns) continue;
      const ts_i64 s = @SYM@_split(at, fw), r = @SYM@_split(at, fh), d = @SYM@_split(at, fd);
      tw[i] = (int)(s * dw - padw), th[i] = (int)(r * dh - padh), td[i] = (int)(d * dd - padd);
      xc[i] = @SYM@_channel(group * cn + at, x1, xv);
      out[i] = @SYM@_channel(at, w1, wv) + d * w2 + r * w3 + s * w4;
    }
    @ACC@ c[@RM@][@RN@] = {};
    for (ts_i64 k0 = 0; k0 < pixels; k0 += @Q@) {
      if (t < @Q@) {
        ts_i64 at = k0 + t;
        qy[t] = -1;
        if (at < pixels) {
          const ts_i64 pw = @SYM@_split(at, ow), ph = @SYM@_split(at, oh), pd = @SYM@_split(at, od);
          qw[t] = (int)(pw * sw), qh[t] = (int)(ph * sh), qd[t] = (int)(pd * sd);
          qx[t] = at * x0;
          qy[t] = at * y0 + pd * y2 + ph * y3 + pw * y4;
        }
      }
      __syncthreads();
      for (int i = t; i < @TM@ * @Q@; i += 256) {
        const int m = y1 <= y4 ? i % @TM@ : i / @Q@, q = y1 <= y4 ? i / @TM@ : i % @Q@;
        const ts_i64 k = m0 + m;
        const bool there = qy[q] >= 0 && k < kn;
        a[q][m] = there ? (@ACC@)ts_load_@Y@(dy, qy[q] + @SYM@_channel(group * kn + k, y1, yv)) : 0;
      }
      for (int i = t; i < @TN@ * @Q@; i += 256) {
        const int m = x1 <= x4 ? i % @TN@ : i / @Q@, q = x1 <= x4 ? i / @TN@ : i % @Q@;
        @ACC@ v = 0;
        if (qy[q] >= 0 && xc[m] >= 0) {
          const ts_i64 vd = qd[q] + td[m], vh = qh[q] + th[m], vw = qw[q] + tw[m];
          if (vd >= 0 && vd < id && vh >= 0 && vh < ih && vw >= 0 && vw < iw)
            v = (@ACC@)ts_load_@X@(x, qx[q] + xc[m] + vd * x2 + vh * x3 + vw * x4);
        }
        b[q][m] = v;
      }
@PRODUCT@
    }
#pragma unroll
    for (int i = 0; i < @RM@; i++)
#pragma unroll
      for (int j = 0; j < @RN@; j++) {
        const ts_i64 k = m0 + tm + i * @TMT@;
        const int column = tn + j * @TNT@;
        if (k < kn && xc[column] >= 0)
          ts_store_@W@(y, (group * kn + k) * w0 + out[column], @SIGNED@c[i][j]);
      }
    __syncthreads();
  }
}
"""

# bgrad: a block sums one channel at a time, in an order that does not depend on the device.
BGRAD = """
extern "C" __global__ void __launch_bounds__(256, 1) @SYM@(@PARAMETERS@) {
@GUARD@
  __shared__ @ACC@ sums[256];
  const int t = threadIdx.x;
  const ts_i64 pixels = n * od * oh * ow;
  for (ts_i64 channel = blockIdx.x; channel < k; channel += gridDim.x) {
    const ts_i64 base = @SYM@_channel(channel, y1, yv);
    @ACC@ sum = 0;
    for (ts_i64 pixel = t; pixel < pixels; pixel += 256) {
      ts_i64 at = pixel;
      const ts_i64 pw = @SYM@_split(at, ow), ph = @SYM@_split(at, oh), pd = @SYM@_split(at, od);
      sum += (@ACC@)ts_load_@Y@(dy, base + at * y0 + pd * y2 + ph * y3 + pw * y4);
    }
    sums[t] = sum;
    for (int half = 128; half > 0; half /= 2) {
      __syncthreads();
      if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0) ts_store_@W@(y, channel, @SIGNED@sums[0]);
    __syncthreads();
  }
}
"""

GEMM = """
extern "C" __global__ void __launch_bounds__(256, 1) @SYM@(@PARAMETERS@) {
@GUARD@
@OPEN@
  const ts_i64 blocks = (n + @TN@ - 1) / @TN@, rows = (m + @TM@ - 1) / @TM@, tiles = blocks * rows * batches;
  for (ts_i64 item = blockIdx.x; item < tiles; item += gridDim.x) {
    ts_i64 batch = item;
    const ts_i64 n0 = @SYM@_split(batch, blocks) * @TN@, m0 = @SYM@_split(batch, rows) * @TM@;
    @ACC@ c[@RM@][@RN@] = {};
    for (ts_i64 k0 = 0; k0 < k; k0 += @Q@) {
      for (int i = t; i < @TM@ * @Q@; i += 256) {
        const int r = a2 <= a1 ? i / @Q@ : i % @TM@, q = a2 <= a1 ? i % @Q@ : i / @TM@;
        const bool there = m0 + r < m && k0 + q < k;
        a[q][r] = there ? (@ACC@)ts_load_@A@(pa, batch * a0 + (m0 + r) * a1 + (k0 + q) * a2) : 0;
      }
      for (int i = t; i < @TN@ * @Q@; i += 256) {
        const int r = b2 <= b1 ? i % @TN@ : i / @Q@, q = b2 <= b1 ? i / @TN@ : i % @Q@;
        const bool there = n0 + r < n && k0 + q < k;
        b[q][r] = there ? (@ACC@)ts_load_@B@(pb, batch * b0 + (k0 + q) * b1 + (n0 + r) * b2) : 0;
      }
@PRODUCT@
    }
#pragma unroll
    for (int i = 0; i < @RM@; i++)
#pragma unroll
      for (int j = 0; j < @RN@; j++) {
        const ts_i64 row = m0 + tm + i * @TMT@, channel = n0 + tn + j * @TNT@;
        if (row >= m || channel >= n) continue;
        const ts_i64 at = batch * c0 + row * c1 + channel * c2;
        @VALUE@ v = @SIGNED@c[i][j];
        v *= (@VALUE@)alpha;@SCALE@
        if (beta != 0) v += (@VALUE@)beta * ts_load_@OUT@(y, at);
@EPILOGUE@
        ts_store_@OUT@(y, at, v);
      }
    __syncthreads();
  }
}
"""
