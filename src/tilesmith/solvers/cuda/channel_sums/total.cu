// Adds the parts of each channel, always in the same order: the shares of the blocks, FOLD pixels of a row in each of
// them, and the pixels behind the last row.
namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
constexpr int THREADS = LANES * SHARES;

extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  __shared__ float gathered[THREADS];
  const int t = threadIdx.x, share = t / LANES, channel = blockIdx.x * LANES + t % LANES;
  float sum = 0.0f;
  if (channel < run.channels) {
    // The columns of a row are whole rows of channels: parts lie that far apart.
#pragma unroll 4
    for (int part = share; part < run.parts; part += SHARES) sum += run.partial[(i64)part * run.channels + channel];
    for (int pixel = share; pixel < run.left; pixel += SHARES)
      sum += widened(run.dy[run.left_from + (i64)pixel * run.channels + channel]);
  }
  gathered[t] = sum;
#pragma unroll
  for (int half = SHARES / 2; half > 0; half /= 2) {
    __syncthreads();
    if (share < half) gathered[t] += gathered[t + half * LANES];
  }
  if (share == 0 && channel < run.channels) narrow(run.db[channel], gathered[t]);
}
} // namespace @SYM@_scope
} // namespace ts_mma
