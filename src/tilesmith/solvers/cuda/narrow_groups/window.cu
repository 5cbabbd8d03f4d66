// A piece is 16 bytes of a pixel. A window of a volume is one of each plane that the filter meets, behind one another.
constexpr int PIECE = 16 / sizeof(Element), PIECES = BUNDLE_IN / PIECE;
constexpr int CHUNKS = SUPERS * BUNDLE_IN / LOAD_IN, PIXELS = FILTER_D * WINDOW_H * WINDOW_W, TILE = TILE_H * TILE_W;
constexpr int LOADS = (PIXELS * CHUNKS + THREADS - 1) / THREADS;
constexpr int FEW = 8;
static_assert(PIECE % LOAD_IN == 0, "loads are pieces or equal parts of them");
constexpr bool SAME_CHUNK = THREADS % CHUNKS == 0; // then a thread's pixels are as far apart

// Where a window's pixel lies in shared memory. The pixels of a row lie by their residue modulo the step, so that those
// which neighbours of a tile read at a tap are neighbours.
TS_MMA_CONSTANT int pixel_at(u32 h, u32 w) {
  return (h * PITCH_W + w % STEP_W * ((WINDOW_W + STEP_W - 1) / STEP_W) + w / STEP_W) * PIXEL_BYTES;
}
// The same of a tile's pixel at the first tap.
TS_MMA_CONSTANT int tile_pixel_at(u32 p) { return pixel_at(p / TILE_W * STEP_H, p % TILE_W * STEP_W); }

// The first pixel of a tile.
struct Tile {
  int n, d, h, w;
};
TS_MMA_DEVICE Tile tile_at(const Run &run, int t) {
  const int rest = divided(t, run.tiles_w_m, run.tiles_w_s), slice = divided(rest, run.tiles_h_m, run.tiles_h_s);
  const int n = DEEP ? divided(slice, run.out_d_m, run.out_d_s) : slice, d = DEEP ? slice - n * run.out_d : 0;
  return {n, d, (rest - slice * run.tiles_h) * TILE_H, (t - rest * run.tiles_w) * TILE_W};
}
// Copies the window of a tile: the channels of a block's bundles, zeros beyond the image and the last channel.
TS_MMA_DEVICE void load_window(const Run &run, int block, const Tile &at, u32 to) {
  const int h0 = at.h * STEP_H + run.corner_h, w0 = at.w * STEP_W + run.corner_w;
  const Element *const image = run.x + at.n * run.in_n;
  u32 thread = threadIdx.x;
  constexpr int LOAD = LOAD_IN * sizeof(Element);
  if (LOADS > FEW) compute_anew(thread); // addresses of few loads are kept for all tiles
#pragma unroll(LOADS > FEW ? COPIES : LOADS)
  for (int i = 0; i < LOADS; i++) {
    // NOTE: unsigned, and within an image 32 bits: divisions, comparisons and addresses take a third of the instructions.
    const u32 j = i * THREADS + thread;
    const u32 p = SAME_CHUNK ? thread / CHUNKS + i * (THREADS / CHUNKS) : j / CHUNKS;
    const u32 q = SAME_CHUNK ? thread % CHUNKS : j % CHUNKS;
    if ((i + 1) * THREADS > PIXELS * CHUNKS && p >= PIXELS) break;
    const u32 row = p / WINDOW_W, plane = DEEP ? source_plane(at.d, row / WINDOW_H) : 0;
    const u32 h = h0 + (DEEP ? row % WINDOW_H : row), w = w0 + p % WINDOW_W, c = (block * CHUNKS + q) * LOAD_IN;
    const int left = larger(smaller((run.channels - (int)c) * (int)sizeof(Element), LOAD), 0);
    const bool inside = h < (u32)run.in_h && w < (u32)run.in_w && (!DEEP || plane < (u32)run.in_d);
    const u32 of_plane = DEEP ? plane * run.in_depth : 0;
    const u32 from = inside && left > 0 ? of_plane + h * run.in_row + w * run.in_column + c : 0;
    copy_async<LOAD>(to + pixel_at(row, p % WINDOW_W) + q * LOAD, image + from, inside ? left : 0);
  }
}
