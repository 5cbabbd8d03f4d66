namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// Adds the blocks' sums: 8 threads a result, always in the same order.
extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  __shared__ float gathered[8][32];
  const int at = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.0f;
  if (at < run.results) {
#pragma unroll 4
    for (int s = threadIdx.y; s < run.parts; s += 8) sum += partial[(i64)s * run.results + at];
  }
  gathered[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || at >= run.results) return;
#pragma unroll
  for (int k = 1; k < 8; k++) sum += gathered[k][threadIdx.x];
  const int tap = at / run.channels, c = at - tap * run.channels, r = tap / run.columns, s = tap - r * run.columns;
  narrow(dw[c * run.w_channel + r * run.w_row + s * run.w_column], sum);
}
} // namespace @SYM@_scope
} // namespace ts_mma
