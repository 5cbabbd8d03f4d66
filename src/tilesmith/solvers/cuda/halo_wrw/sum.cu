// Adds up the slices' sums of weights, which lie as the registers of `kernel.cu` held them.
extern "C" __global__ void __launch_bounds__(THREADS, 2) @SYM@(TS_PARAMETERS) {
  __shared__ float4 gathered[GROUPS][WIDTH];
  const Run run = TS_RUN;
  const int at = threadIdx.x % WIDTH, share = threadIdx.x / WIDTH;
  const ts_i64 i = (ts_i64)blockIdx.x * WIDTH + at, count = (ts_i64)run.units * BLOCK_QUADS;
  ts_wait_previous();
  float4 sum;
  add_slices((const float4 *)run.partial, count, i, share, i < count, sum);
  if (GROUPS > 1) {
    gathered[share][at] = sum;
    __syncthreads();
    if (share) return;
    add_shares(gathered, at, sum);
  }
  if (i >= count) return;
  const int unit = (int)(i / BLOCK_QUADS), quad = (int)(i - (ts_i64)unit * BLOCK_QUADS), of_wg = quad / 128;
  const int rest = ts_quotient(unit, run.by_blocks_k);
  const Unit u = unit_at(run, unit - rest * run.blocks_k, rest);
  const int wg = of_wg / (LINES_EACH * QUADS), of = of_wg % (LINES_EACH * QUADS), thread = quad & 127;
  if (finish(run, u, wg, of, thread, sum)) mend(run, u, wg, of, thread);
}
