namespace @SYM@_scope {
@HEADER@
// A block sums one channel at a time, in an order that does not depend on the device.
extern "C" __global__ void __launch_bounds__(THREADS, 1) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  if (GUARDED && *run.flag == 0) return;
  __shared__ Acc sums[THREADS];
  const int t = threadIdx.x;
  const ts_i64 pixels = n * od * oh * ow;
  for (ts_i64 channel = blockIdx.x; channel < k; channel += gridDim.x) {
    const ts_i64 base = place_of(channel, y1, yv);
    Acc sum = 0;
    for (ts_i64 pixel = t; pixel < pixels; pixel += THREADS) {
      ts_i64 at = pixel;
      const ts_i64 pw = split(at, ow), ph = split(at, oh), pd = split(at, od);
      sum += (Acc)load_first(dy, base + at * y0 + pd * y2 + ph * y3 + pw * y4);
    }
    sums[t] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
      __syncthreads();
      if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0) store(y, channel, (Signed)sums[0]);
    __syncthreads();
  }
}
} // namespace @SYM@_scope
