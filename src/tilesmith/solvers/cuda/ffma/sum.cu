namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// Adds the partial sums of tiles that several blocks share, always in the same order, and finishes the results.
extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  Results run = {TS_RUN};
  wait_previous();
  constexpr int QUADS = BLOCK_M * BLOCK_N / 4, EACH = (QUADS + THREADS - 1) / THREADS;
  const int tile = blockIdx.x / EACH, quad = blockIdx.x % EACH * THREADS + threadIdx.x;
  const i64 begin = (i64)tile * run.steps, end = begin + run.steps;
  const int first = run.block_of(begin), last = run.block_of(end - 1);
  if (first == last || quad >= QUADS) return;
  int layer, m0, n0;
  run.place(run.waves * (int)run.blocks + tile, layer, m0, n0);
  const int row = m0 + quad / (BLOCK_N / 4), col = n0 + quad % (BLOCK_N / 4) * 4;
  if (row >= run.rows || col >= run.cols) return;
  typedef Pack<float, 4> Sums;
  Sums sum = ((const Sums *)run.part_of(first, run.first_step(first) > begin))[quad];
#pragma unroll 8
  for (int block = first + 1; block <= last; block++) {
    const Sums v = ((const Sums *)run.part_of(block, true))[quad];
#pragma unroll
    for (int e = 0; e < 4; e++) sum.v[e] += v.v[e];
  }
  run.finish(sum.v, run.out_base + run.place_of(layer, row, col), col, true, run.cols - col);
}
} // namespace @SYM@_scope
} // namespace ts_mma
