// Packs the filter as the kernel keeps it: for each step of 16 products its two halves, of each half all columns, of
// each column 8 elements. What does not exist is zero.
extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= run.elements) return;
  const int column = at / 8 % COLUMNS, step = at / (COLUMNS * 16);
  const int channel = (step / (TAPS_W * STEPS) * STEPS + step % STEPS) * 16 + at / (8 * COLUMNS) % 2 * 8 + at % 8;
  // The first input of a window meets the last tap.
  const int th = column / BLOCK_N, tw = TAPS_W - 1 - step / STEPS % TAPS_W;
  // A lane keeps pairs of columns; EACH of its own follow each other for each tap along D.
  const int n = column % BLOCK_N, own = n / 8 * 2 + n % 2, td = own / EACH, m = own % EACH * 4 + n % 8 / 2;
  const int phase = m / COLS, aw = phase % STRIDE_W, ah = phase / STRIDE_W % STRIDE_H;
  const int ad = phase / (STRIDE_W * STRIDE_H);
  int d = ad + STRIDE_D * td - LEAD_D, h = ah + STRIDE_H * th - LEAD_H, w = aw + STRIDE_W * tw - LEAD_W;
  const bool exists = td < TAPS_D && m < GROUP && channel < CHANNELS && (u32)d < (u32)FILTER_D &&
                      (u32)h < (u32)FILTER_H && (u32)w < (u32)FILTER_W;
  if (TURNED) d = FILTER_D - 1 - d, h = FILTER_H - 1 - h, w = FILTER_W - 1 - w;
  Element v = {};
  if (exists)
    v = run.filter[(i64)channel * run.filter_channel + (i64)(m % COLS) * run.filter_column + (i64)d * run.filter_d +
                   (i64)h * run.filter_h + (i64)w * run.filter_w];
  run.packed[at] = v;
}
