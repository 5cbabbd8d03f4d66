namespace @SYM@_scope {
@HEADER@
// Positions are the result's channels, its columns (channel, tap); the reduction runs over the output's pixels.
extern "C" __global__ void __launch_bounds__(THREADS, 1) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  if (GUARDED && *run.flag == 0) return;
  __shared__ ts_i64 xc[TN], out[TN], qx[Q], qy[Q];
  __shared__ int td[TN], th[TN], tw[TN], qd[Q], qh[Q], qw[Q];
  __shared__ Acc a[Q][TM], b[Q][TN];
  const int t = threadIdx.x, tm = t / TNT, tn = t % TNT;
  const ts_i64 taps = fd * fh * fw, columns = cn * taps, pixels = n * od * oh * ow;
  const ts_i64 blocks = (columns + TN - 1) / TN, rows = (kn + TM - 1) / TM, tiles = blocks * rows * groups;
  for (ts_i64 item = blockIdx.x; item < tiles; item += gridDim.x) {
    ts_i64 group = item;
    const ts_i64 n0 = split(group, blocks) * TN, m0 = split(group, rows) * TM;
    for (int i = t; i < TN; i += THREADS) {
      ts_i64 at = n0 + i;
      xc[i] = -1;
      if (at >= columns) continue;
      const ts_i64 s = split(at, fw), r = split(at, fh), d = split(at, fd);
      tw[i] = (int)(s * dw - padw), th[i] = (int)(r * dh - padh), td[i] = (int)(d * dd - padd);
      xc[i] = place_of(group * cn + at, x1, xv);
      out[i] = place_of(at, w1, wv) + d * w2 + r * w3 + s * w4;
    }
    Acc c[RM][RN] = {};
    for (ts_i64 k0 = 0; k0 < pixels; k0 += Q) {
      if (t < Q) {
        ts_i64 at = k0 + t;
        qy[t] = -1;
        if (at < pixels) {
          const ts_i64 pw = split(at, ow), ph = split(at, oh), pd = split(at, od);
          qw[t] = (int)(pw * sw), qh[t] = (int)(ph * sh), qd[t] = (int)(pd * sd);
          qx[t] = at * x0;
          qy[t] = at * y0 + pd * y2 + ph * y3 + pw * y4;
        }
      }
      __syncthreads();
      for (int i = t; i < TM * Q; i += THREADS) {
        const int m = y1 <= y4 ? i % TM : i / Q, q = y1 <= y4 ? i / TM : i % Q;
        const ts_i64 k = m0 + m;
        const bool there = qy[q] >= 0 && k < kn;
        a[q][m] = there ? (Acc)load_first(dy, qy[q] + place_of(group * kn + k, y1, yv)) : 0;
      }
      for (int i = t; i < TN * Q; i += THREADS) {
        const int m = x1 <= x4 ? i % TN : i / Q, q = x1 <= x4 ? i / TN : i % Q;
        Acc v = 0;
        if (qy[q] >= 0 && xc[m] >= 0) {
          const ts_i64 vd = qd[q] + td[m], vh = qh[q] + th[m], vw = qw[q] + tw[m];
          if (vd >= 0 && vd < id && vh >= 0 && vh < ih && vw >= 0 && vw < iw)
            v = (Acc)load_second(x, qx[q] + xc[m] + vd * x2 + vh * x3 + vw * x4);
        }
        b[q][m] = v;
      }
      TS_MULTIPLY(false)
    }
#pragma unroll
    for (int i = 0; i < RM; i++)
#pragma unroll
      for (int j = 0; j < RN; j++) {
        const ts_i64 k = m0 + tm + i * TMT;
        const int column = tn + j * TNT;
        if (k < kn && xc[column] >= 0) store(y, (group * kn + k) * w0 + out[column], (Signed)c[i][j]);
      }
    __syncthreads();
  }
}
} // namespace @SYM@_scope
