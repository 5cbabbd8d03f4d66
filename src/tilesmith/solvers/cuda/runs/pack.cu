// Packs the filter as products of 16 x 8 take it: for each block of columns, phase and 16 elements of a run, a lane's
// words of all taps and columns side by side. What does not exist is zero.
constexpr int PHASES = STRIDE_H < FILTER_H ? STRIDE_H : FILTER_H, STEPS = FILTER_D * PHASES;
constexpr int TAPS = (FILTER_H + STRIDE_H - 1) / STRIDE_H, K_STEPS = (LEAD + RUN + 15) / 16, TILES_N = BLOCK_N / 8;

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= run.words) return;
  const int lane = at / 4 % 32, word = at / 128 % QUADS * 4 + at % 4, k_step = at / (128 * QUADS) % K_STEPS;
  const int step = at / (128 * QUADS * K_STEPS) % STEPS, block = at / (128 * QUADS * K_STEPS) / STEPS;
  const int t = word / 2 / TILES_N, n = block * BLOCK_N + word / 2 % TILES_N * 8 + lane / 4;
  const int k = k_step * 16 + word % 2 * 8 + lane % 4 * 2 - LEAD, r = step % PHASES + t * STRIDE_H;
  const Element *const row = run.filter + ((i64)n * run.w_k + (i64)(step / PHASES) * run.w_d + (i64)r * run.w_h);
  Pack<Element, 2> v = {};
#pragma unroll
  for (int e = 0; e < 2; e++)
    if (t < TAPS && n < COLS && r < FILTER_H && k + e >= 0 && k + e < RUN) v.v[e] = row[k + e];
  ((Pack<Element, 2> *)run.packed)[at] = v;
}
