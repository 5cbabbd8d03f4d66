// For each plane and row of the filter what zeros times its elements add to a sum: 0, or NaN where one of them is an Inf or
// NaN. A block looks at each.
namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
TS_MMA_DEVICE bool is_number(u32 two) {
  return (two & EXPONENT) != EXPONENT && (two >> 16 & EXPONENT) != EXPONENT;
}

extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int plane = blockIdx.x / run.rows, channel = blockIdx.x - plane * run.rows, thread = threadIdx.x;
  wait_previous();
  const u16 *row = run.filter + channel * run.filter_row;
  bool numbers = true;
  for (int t = plane * PLANE; t < (plane + 1) * PLANE; t++) {
    const u16 *tap = row + tap_filter[t] * run.filter_tap;
    for (int i = thread * 8; i < run.channels; i += THREADS * 8) {
      const uint4 v = *(const uint4 *)(tap + i);
      numbers = numbers && is_number(v.x) && is_number(v.y) && is_number(v.z) && is_number(v.w);
    }
  }
  const bool nan = __syncthreads_or(!numbers);
  if (thread == 0) run.beyond[blockIdx.x] = nan ? __uint_as_float(0x7fffffffu) : 0.0f;
}
} // namespace @SYM@_scope
} // namespace ts_mma
