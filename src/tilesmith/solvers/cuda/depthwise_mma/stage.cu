constexpr int PLANES = THREADS / 32;
constexpr int LIVE = (R - 1) * DILATION_H / STRIDE_H + 1; // rows of results that a row of inputs touches
constexpr int ROWS_IN = KD * STRIDE_H;                    // rows of inputs by which the results advance one row
constexpr int UNITS = 2 * PRODUCTS / HALVES, COLUMNS = 16 * HALVES;
constexpr int PIXELS = (8 * HALVES - 1) * 2 * STRIDE_W + 4 * STEPS;
static_assert(2 * PRODUCTS % HALVES == 0, "units are whole");
static_assert(4 * STEPS > STRIDE_W + (S - 1) * DILATION_W, "a product's pixels reach the last tap");

// Of eight planes the same pixel lies in different banks, and rows of ldmatrix begin at multiples of 16 bytes.
TS_MMA_CONSTANT int plane_bytes(int pixels) { return pixels / 2 % 2 ? pixels / 2 * 16 : pixels / 2 * 16 + 16; }
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
  const int line = divided(at, run.column_blocks_m, run.column_blocks_s);
  const int n = divided(line, run.out_d_m, run.out_d_s);
  return {n, line - n * run.out_d, (at - line * run.column_blocks) * COLUMNS};
}

// One of the two tensors of pixels.
struct Image {
  const Element *from;
  i64 step_n;
  int step_depth, step_row, step_column, depth, height, width;
};
constexpr int NOWHERE = -(1 << 30);
// Those of WIDTH pixels in a row of each unit that a thread copies, four channels of each: the same in every row.
template <int WIDTH> struct Copies {
  static constexpr int TOTAL = UNITS * WIDTH, COUNT = (TOTAL + 31) / 32, PLANE = plane_bytes(WIDTH);
  const Element *from[COUNT]; // in row 0, until they advance
  int to[COUNT], depth[COUNT];

  // A unit begins at pixel `column * step - pad`, at depth `depth * step_d - pad_d`.
  TS_MMA_METHOD Copies(const Image &image, const Unit *units, int channel, int step, int pad, int step_d, int pad_d) {
    const int plane = threadIdx.x % PLANES, worker = threadIdx.x / PLANES;
#pragma unroll
    for (int m = 0; m < COUNT; m++) {
      const int i = worker + m * 32, unit = smaller(i / WIDTH, UNITS - 1), pixel = i - unit * WIDTH;
      const Unit u = units[unit];
      const int w = u.column * step + pixel - pad, d = u.depth * step_d - pad_d;
      const bool exists = channel >= 0 && u.n >= 0 && (u32)w < (u32)image.width;
      to[m] = (unit * PLANES + plane) * PLANE + pixel * 8;
      depth[m] = exists ? d : NOWHERE;
      from[m] = image.from + u.n * image.step_n + d * image.step_depth + w * image.step_column + channel;
    }
  }
  TS_MMA_METHOD void advance(const Image &image, int rows) {
#pragma unroll
    for (int m = 0; m < COUNT; m++) from[m] += (i64)rows * image.step_row;
  }
  // Row `h` of the image, the `ahead`-th from here, `further` deeper than the units say. What lies outside is zero.
  TS_MMA_METHOD void row(const Image &image, u32 at, int h, int ahead, bool exists, int further) const {
    const bool inside = exists && (u32)h < (u32)image.height;
    const i64 offset = ahead * image.step_row + further * image.step_depth;
#pragma unroll
    for (int m = 0; m < COUNT; m++) {
      if (TOTAL % 32 && m == COUNT - 1 && (int)threadIdx.x / PLANES + m * 32 >= TOTAL) break;
      const bool copied = inside && (u32)(depth[m] + further) < (u32)image.depth;
      copy_async<8>(at + to[m], from[m] + offset, copied ? 8 : 0); // nothing is read of 0 bytes
    }
  }
};
TS_MMA_DEVICE bool finite(Element v) { return (v.bits & INFINITE) != INFINITE; }
