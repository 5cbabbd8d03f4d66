constexpr int PLANES = THREADS / 32;
constexpr int LIVE = (R - 1) * DILATION_H / STRIDE_H + 1; // rows of results that a row of inputs touches
constexpr int ROWS_IN = KD * STRIDE_H;                    // rows of inputs by which the results advance one row
constexpr int UNITS = 2 * PRODUCTS / HALVES, COLUMNS = 16 * HALVES;
constexpr int PIXELS = (8 * HALVES - 1) * 2 * STRIDE_W + 4 * STEPS;
static_assert(2 * PRODUCTS % HALVES == 0, "units are whole");
static_assert(4 * STEPS > STRIDE_W + (S - 1) * DILATION_W, "a product's pixels reach the last tap");

// Of eight planes the same pixel lies in different banks, and rows of ldmatrix begin at multiples of 16 bytes.
TS_MMA_CONSTANT int plane_bytes(int pixels) { return (pixels + 1) / 2 % 2 ? (pixels + 1) / 2 * 16 : pixels / 2 * 16 + 16; }
// The row of the filter, counted from `r`, that is the first to read row `e` of those that a stride spans.
TS_MMA_CONSTANT bool reads(int r, int e) { return r * DILATION_H % STRIDE_H == e; }
TS_MMA_CONSTANT bool row_used(int e) {
  for (int r = 0; r < R; r++)
    if (reads(r, e)) return true;
  return false;
}

// Pixels side by side at one depth of an image: `n` is -1 if it does not exist.
struct Unit {
  int n, depth, column;
};
TS_MMA_DEVICE Unit unit_at(const Run &run, int at) {
  if (at >= run.unit_count) return {-1, 0, 0};
  const int line = at / run.column_blocks, n = line / run.out_d;
  return {n, line - n * run.out_d, (at - line * run.column_blocks) * COLUMNS};
}

// One of the two tensors of pixels in shared memory, a plane of pixels for each four channels.
struct Image {
  const Element *from;
  i64 step_n;
  int step_depth, step_row, step_column, depth, height, width;
};
// Copies pixels from `left` on of row `h` of `units` to `to`. What lies outside the image becomes zero.
template <int COUNT> TS_MMA_DEVICE void copy_pixel(const Image &image, u32 to, int channel, int n, int d, int h, int w) {
  const bool exists = channel >= 0 && n >= 0 && (u32)d < (u32)image.depth && (u32)h < (u32)image.height &&
                      (u32)w < (u32)image.width;
  const Element *from = image.from;
  if (exists)
    from += n * image.step_n + d * image.step_depth + h * image.step_row + w * image.step_column + channel;
  copy_async<COUNT>(to, from, exists ? COUNT : 0);
}
TS_MMA_DEVICE bool finite(Element v) { return (v.bits & INFINITE) != INFINITE; }
