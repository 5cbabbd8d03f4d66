// Packs the filter for blocks of columns, and for each of them its blocks of channels: rows of BLOCK_N columns, each of
// whole steps of 16 products. What does not exist is zero.
constexpr int LENGTH = STEPS * 16, ROW_COLUMNS = STRIDE_W * COLS;
struct Tap {
  int d, h, w;
};

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= run.elements) return;
  // Warpgroups take halves of steps one after the other, warps a column's steps.
  const int in_half = at / 8 / BLOCK_N % (2 * STEPS), k = WGMMA ? in_half * 8 + at % 8 : at % LENGTH;
  const int n = WGMMA ? at / 8 % BLOCK_N : at / LENGTH % BLOCK_N;
  const int chunk = at / (LENGTH * BLOCK_N) % CHUNKS, block = at / (LENGTH * BLOCK_N * CHUNKS);
  const Piece piece = piece_at(k / 16, k / 8 % 2);
  const int place = piece.tap, channel = chunk * BLOCK_C + piece.piece * 8 + k % 8;
  Tap tap;
  bool exists = place < TAPS && channel < CHANNELS;
  if (ROWS_ON_N) {
    const int i = n / COLS, row = i / STRIDE_W; // the first input of a window meets the last tap
    tap = {row / FILTER_H, row % FILTER_H, i % STRIDE_W + STRIDE_W * (TAPS_W - 1 - place)};
    exists = exists && tap.d < FILTER_D && tap.w < FILTER_W;
  } else if (TAPS_ON_N) {
    const int i = n / COLS;
    tap = {i / (FILTER_W * FILTER_H), i / FILTER_W % FILTER_H, i % FILTER_W};
    exists = exists && tap.d < FILTER_D;
  } else {
    const int row = n / ROW_COLUMNS, phase = block * PHASE_ROWS + row;
    // The first input of a window meets the last tap.
    const int d = TAPS_D - 1 - place / (TAPS_H * TAPS_W), h = TAPS_H - 1 - place / TAPS_W % TAPS_H;
    const int w = TAPS_W - 1 - place % TAPS_W;
    tap = {phase / STRIDE_H + STRIDE_D * d, phase % STRIDE_H + STRIDE_H * h, n / COLS % STRIDE_W + STRIDE_W * w};
    exists = exists && row < PHASE_ROWS && tap.d < FILTER_D && tap.h < FILTER_H && tap.w < FILTER_W;
  }
  if (TURNED) tap = {FILTER_D - 1 - tap.d, FILTER_H - 1 - tap.h, FILTER_W - 1 - tap.w};
  Element v = {};
  if (exists)
    v = run.filter[(i64)channel * run.filter_channel + (i64)(n % COLS) * run.filter_column + (i64)tap.d * run.filter_d +
                   (i64)tap.h * run.filter_h + (i64)tap.w * run.filter_w];
  run.packed[at] = v;
}
