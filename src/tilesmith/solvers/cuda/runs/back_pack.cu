// Packs the filter as products of 16 x 8 take it: for each row of phases and 8 elements of a position, a lane's words of
// two steps of 16 pieces side by side. What does not exist is zero.
constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W, PIECES = (CHANNELS + 7) / 8, K_STEPS = (TAPS * PIECES + 1) / 2;
constexpr int K_PAIRS = (K_STEPS + 1) / 2, TILES_N = STEP / 8;

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= run.words) return;
  const int word = at % 4, lane = at / 4 % 32, pair = at / 128 % K_PAIRS;
  const int column = at / (128 * K_PAIRS) % TILES_N * 8 + lane / 4, phase = at / (128 * K_PAIRS * TILES_N);
  const int q = (pair * 2 + word / 2) * 2 + word % 2, tap = q / PIECES, k = q % PIECES * 8 + lane % 4 * 2;
  const int d = phase / STRIDE_H + STRIDE_D * (tap / (TAPS_H * TAPS_W)), w = column + STEP * (tap % TAPS_W);
  const int h = phase % STRIDE_H + STRIDE_H * (tap / TAPS_W % TAPS_H);
  const bool exists = tap < TAPS && d < FILTER_D && h < FILTER_H && w < RUN;
  const Element *const from = run.filter + ((i64)d * run.w_d + (i64)h * run.w_h + w);
  Pack<Element, 2> v = {};
#pragma unroll
  for (int e = 0; e < 2; e++)
    if (exists && k + e < CHANNELS) v.v[e] = from[(i64)(k + e) * run.w_k];
  ((Pack<Element, 2> *)run.packed)[at] = v;
}
