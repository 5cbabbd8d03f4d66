// Adds up the slices' sums of weights, which lie as the registers of `kernel.cu` held them: LANES threads for each
// group of four, always in the same order.
namespace @SYM@_scope {
@CONSTANTS@
@PLACE@
constexpr int WIDTH = 256 / LANES, EACH = (SLICES + LANES - 1) / LANES;

extern "C" __global__ void __launch_bounds__(256, 2) @SYM@(@PARAMETERS@) {
  __shared__ float4 gathered[LANES][WIDTH];
  const Run run = {@VALUES@};
  const int at = threadIdx.x % WIDTH, lane = threadIdx.x / WIDTH;
  const ts_i64 i = (ts_i64)blockIdx.x * WIDTH + at, count = (ts_i64)run.units * BLOCK_QUADS;
  ts_wait_previous();
  float4 parts[EACH], sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int k = 0; k < EACH; k++) {
    const int slice = k * LANES + lane;
    parts[k] = slice < SLICES && i < count ? __ldcs((const float4 *)run.partial + slice * count + i) : sum;
  }
#pragma unroll
  for (int k = 0; k < EACH; k++) sum.x += parts[k].x, sum.y += parts[k].y, sum.z += parts[k].z, sum.w += parts[k].w;
  if (LANES > 1) {
    gathered[lane][at] = sum;
    __syncthreads();
    if (lane) return;
#pragma unroll
    for (int k = 1; k < LANES; k++) {
      const float4 v = gathered[k][at];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
  }
  if (i >= count) return;
  const int unit = (int)(i / BLOCK_QUADS), quad = (int)(i - (ts_i64)unit * BLOCK_QUADS), of_wg = quad / 128;
  const int rest = ts_quotient(unit, run.by_blocks_k);
  const Unit u = unit_at(run, unit - rest * run.blocks_k, rest);
  const int wg = of_wg / (LINES_EACH * QUADS), of = of_wg % (LINES_EACH * QUADS), thread = quad & 127;
  if (finish(run, u, wg, of, thread, sum)) mend(run, u, wg, of, thread);
}
} // namespace @SYM@_scope
