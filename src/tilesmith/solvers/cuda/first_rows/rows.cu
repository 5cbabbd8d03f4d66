// Rows of x as they lie in memory, in pieces of 16 bytes. What a result reads of a row is one run of elements.
constexpr int THREADS = WARPS * 32, STEP = STRIDE_W * C; // elements from a run to the next pixel's
constexpr int WINDOW_ROWS = IN_D * IN_H, PITCH = ROW_CHUNKS * 16, WINDOW = WINDOW_ROWS * PITCH;

// A tile's image and its first result.
struct Tile {
  int n, d, h, w;
};

// Zeros beyond the image.
TS_MMA_DEVICE void load_window(const Run &run, u32 to, const Tile &t) {
  const int front = t.d * STRIDE_D - run.pad_d, top = t.h * STRIDE_H - run.pad_h;
  const int begin = (t.w * STRIDE_W - run.pad_w) * C - SHIFT, end = run.in_w * C; // eights of a row's elements
  const Element *const image = run.x + (i64)t.n * run.x_n;
  constexpr int ITEMS = WINDOW_ROWS * ROW_CHUNKS;
#pragma unroll 4
  for (int i = threadIdx.x; i < ITEMS; i += THREADS) {
    const int row = i / ROW_CHUNKS, d = front + row / IN_H * DILATION_D, h = top + row % IN_H;
    const int e = begin + i % ROW_CHUNKS * 8;
    const bool seen = (u32)d < (u32)run.in_d && (u32)h < (u32)run.in_h && e >= 0;
    const int valid = seen && e < end ? (end - e < 8 ? end - e : 8) : 0;
    // Within an image 32 bits index.
    const Element *const from = image + (valid ? d * run.x_d + h * run.x_h + e : 0);
    if constexpr (VECTOR == 1) {
      u32 held[8];
#pragma unroll
      for (int k = 0; k < 8; k++)
        held[k] = k < valid ? load_bits<2>(from + k, 2) : 0;
      shared_store16(to + i * 16, held[0] | held[1] << 16, held[2] | held[3] << 16, held[4] | held[5] << 16,
                     held[6] | held[7] << 16);
    } else {
#pragma unroll
      for (int k = 0; k < 8; k += VECTOR) {
        const int left = valid - k, count = left < 0 ? 0 : left > VECTOR ? VECTOR : left;
        copy_async<VECTOR * 2>(to + i * 16 + k * 2, count ? from + k : from, count * 2);
      }
    }
  }
}
