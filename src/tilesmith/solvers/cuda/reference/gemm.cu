namespace @SYM@_scope {
@HEADER@
extern "C" __global__ void __launch_bounds__(THREADS, 1) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  if (GUARDED && *run.flag == 0) return;
  __shared__ Acc a[Q][TM], b[Q][TN];
  const int t = threadIdx.x, tm = t / TNT, tn = t % TNT;
  const ts_i64 blocks = (n + TN - 1) / TN, rows = (m + TM - 1) / TM, tiles = blocks * rows * batches;
  for (ts_i64 item = blockIdx.x; item < tiles; item += gridDim.x) {
    ts_i64 batch = item;
    const ts_i64 n0 = split(batch, blocks) * TN, of_rows = split(batch, rows) * TM;
    ts_i64 m0 = of_rows, end = m, depth = k, matrix = batch;
    if (ROW_GROUPS) { // `batch` counts the groups; behind the last one come the rows of none, which are 0
      ts_i64 first = 0;
      end = 0;
      for (ts_i64 i = 0; i <= batch; i++) {
        const ts_i64 last = i < groups ? run.ends[i] : m;
        first = end;
        end = last > m ? m : last > end ? last : end;
      }
      m0 = first + of_rows;
      if (m0 >= end) continue;
      if (batch == groups) depth = 0, matrix = 0;
      batch = 0;
    }
    Acc c[RM][RN] = {};
    for (ts_i64 k0 = 0; k0 < depth; k0 += Q) {
      for (int i = t; i < TM * Q; i += THREADS) {
        const int r = a2 <= a1 ? i / Q : i % TM, q = a2 <= a1 ? i % Q : i / TM;
        const bool there = m0 + r < end && k0 + q < k;
        a[q][r] = there ? (Acc)load_first(pa, batch * a0 + (m0 + r) * a1 + (k0 + q) * a2) : 0;
        if (FACTORS && there) a[q][r] *= run.sa[(m0 + r) / run.a_share * run.a_row + (k0 + q) / SCALE_K * run.a_along];
      }
      for (int i = t; i < TN * Q; i += THREADS) {
        const int r = b2 <= b1 ? i % TN : i / Q, q = b2 <= b1 ? i / TN : i % Q;
        const bool there = n0 + r < n && k0 + q < k;
        b[q][r] = there ? (Acc)load_second(pb, matrix * b0 + (k0 + q) * b1 + (n0 + r) * b2) : 0;
        if (FACTORS && there) b[q][r] *= run.sb[(n0 + r) / run.b_share * run.b_row + (k0 + q) / SCALE_K * run.b_along];
      }
      TS_MULTIPLY(false)
    }
#pragma unroll
    for (int i = 0; i < RM; i++)
#pragma unroll
      for (int j = 0; j < RN; j++) {
        const ts_i64 row = m0 + tm + i * TMT, channel = n0 + tn + j * TNT;
        if (row >= end || channel >= n) continue;
        const ts_i64 at = batch * c0 + row * c1 + channel * c2;
        Value v = (Signed)c[i][j];
        v *= (Value)alpha;
        if constexpr (SCALED) v *= run.scale[SCALE_AT_CHANNEL ? channel : 0];
        if (beta != 0) v += (Value)beta * load_result(y, at);
        store(y, at, finished(v, run, channel, at));
      }
    __syncthreads();
  }
}
} // namespace @SYM@_scope
