// Adds up the slices' sums of `kernel.cu`: GROUPS threads for each quad, always in the same order.
// NOTE: few threads of few registers, so that blocks start soon. Blocks that start as each SM of the kernel ahead becomes
// free (`ts_launch_next`) cost 0.3-1 us more than they save.
extern "C" __global__ void __launch_bounds__(THREADS, 9) @SYM@(TS_PARAMETERS) {
  __shared__ Quad gathered[GROUPS][WIDTH];
  Run run = TS_RUN;
  const int at = threadIdx.x % WIDTH, share = threadIdx.x / WIDTH;
  const ts_u32 quads = run.block_m * run.block_n / 4, strip = run.block_n / 8;
  const ts_u32 i = blockIdx.x * WIDTH + at, tile = i / quads, quad = i - tile * quads, unit = quad / 32, lane = quad % 32;
  const ts_u32 of = tile / run.tiles_n, unit_row = unit / strip;
  Work w = {};
  w.n = tile - of * run.tiles_n;
  w.layer = of / run.all_m, w.m = of - w.layer * run.all_m;
  const bool inside = w.layer < run.layers;
  split_layer(run, w);
  if (GROUPED && BIAS) run.bias += w.group * run.cols;
  const int row = w.m * run.block_m + unit_row * 16 + lane / 4;
  const int column = w.n * run.block_n + (unit - unit_row * strip) * 8 + lane % 4 * 2;
  const ts_i64 low = inside ? row_at(run, w, row) : -1, high = inside ? row_at(run, w, row + 8) : -1;
  const ts_i64 off = column_at(run, column);
  const bool wanted = off >= 0 && (low >= 0 || high >= 0), both = EVEN || column_at(run, column + 1) >= 0;
  const Quad *from = (const Quad *)run.partial + i;
  const ts_i64 slice = (ts_i64)run.layers * run.all_m * run.tiles_n * quads;
  ts_wait_previous();
  if (FACTORED) run.alpha *= *run.row_factors * *run.column_factors;
  Quad sum;
  add_slices<EACH < 8 ? EACH : 8>(from, slice, 0, share, wanted, sum);
  if (GROUPS > 1) {
    gathered[share][at] = sum;
    __syncthreads();
    if (share) return;
    add_shares(gathered, at, sum);
  }
  if (!wanted) return;
  if (low >= 0) {
    Value first = sum.x, second = sum.y;
    finish(run, first, second, row, column, low + off, both);
    store_two(run, first, second, low + off, both);
  }
  if (high >= 0) {
    Value first = sum.z, second = sum.w;
    finish(run, first, second, row + 8, column, high + off, both);
    store_two(run, first, second, high + off, both);
  }
}
