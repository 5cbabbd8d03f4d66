namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// Backward weights: rows of a product are channels of two pieces (8 channels of a tap), its columns results of a
// bundle of groups, and it sums over pixels. Channels of different groups of a bundle are multiplied too, and left out
// by the kernel that adds the blocks' sums.
constexpr int CHUNKS_Y = SUPERS * (BUNDLE_OUT / LOAD_OUT), LOADS_Y = (TILE * CHUNKS_Y + THREADS - 1) / THREADS;
constexpr int ALL = (TILE + 31) / 32 * 32, TAPS = FILTER_H * FILTER_W;
static_assert(WARPS_M * TILES_M * 2 >= TAPS * PIECES && PARTS_N * TILES_N * 8 >= BUNDLE_OUT, "as counted");
static_assert(STAGE_BYTES >= WINDOW_BYTES + ALL * RESULT_BYTES && TABLE >= STAGES * STAGE_BYTES, "as counted");
static_assert(TABLE + ALL * 4 <= SHARED_BYTES, "all fit");

TS_MMA_DEVICE void load_results(const Run &run, int block, const Tile &at, u32 to) {
  const Element *const image = run.dy + at.n * run.out_n + (DEEP ? at.d * run.out_depth : 0);
  u32 thread = threadIdx.x;
  if (LOADS_Y > FEW) compute_anew(thread);
#pragma unroll(LOADS_Y > FEW ? 4 : LOADS_Y)
  for (int i = 0; i < LOADS_Y; i++) {
    const u32 j = i * THREADS + thread, p = j / CHUNKS_Y, q = j % CHUNKS_Y;
    if ((i + 1) * THREADS > TILE * CHUNKS_Y && p >= TILE) break;
    const u32 h = at.h + p / TILE_W, w = at.w + p % TILE_W, k = (block * CHUNKS_Y + q) * LOAD_OUT;
    const int left = larger(smaller((run.results - (int)k) * 2, LOAD_OUT * 2), 0);
    const bool inside = h < (u32)run.out_h && w < (u32)run.out_w;
    const u32 from = inside && left > 0 ? h * run.out_row + w * run.out_column + k : 0;
    copy_async<LOAD_OUT * 2>(to + p * RESULT_BYTES + q * (LOAD_OUT * 2), image + from, inside ? left : 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 base = shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = warp % PARTS_N, super = warp / PARTS_N % SUPERS, piece0 = warp / (PARTS_N * SUPERS) * TILES_M * 2;
  const int block = blockIdx.x % run.blocks, share = blockIdx.x / run.blocks, stride = run.shares;
  // Where a pixel of dy finds its window's first pixel; what lies behind the last pixel of dy is zeros.
  for (int p = threadIdx.x; p < ALL; p += THREADS)
    *(u32 *)(memory + TABLE + p * 4) = p < TILE ? tile_pixel_at(p) : 0;
  for (int i = threadIdx.x; i < (ALL - TILE) * (RESULT_BYTES / 16) * STAGES; i += THREADS) {
    const int stage = i / ((ALL - TILE) * (RESULT_BYTES / 16)), at = i % ((ALL - TILE) * (RESULT_BYTES / 16));
    shared_store16(base + stage * STAGE_BYTES + WINDOW_BYTES + TILE * RESULT_BYTES + at * 16, 0, 0, 0, 0);
  }
  launch_next();
  wait_previous();
  const auto load = [&](int t, u32 to) {
    const Tile at = tile_at(run, t);
    load_window(run, block, at, to);
    load_results(run, block, at, to + WINDOW_BYTES);
  };
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++) {
    if (share + s * stride < run.tiles) load(share + s * stride, base + s * STAGE_BYTES);
    copy_commit();
  }
  // This lane's rows of matrices: pixels 0 to 7 or 8 to 15 of a product, of its first piece or its second.
  const int pixel = lane % 8 + lane / 16 * 8;
  u32 from[TILES_M];
#pragma unroll
  for (int i = 0; i < TILES_M; i++) {
    const int piece = piece0 + i * 2 + lane / 8 % 2, tap = piece / PIECES;
    const int row = tap / FILTER_W, of_plane = DEEP ? row / PLANE_H * WINDOW_H : 0;
    const int at = pixel_at(of_plane + (DEEP ? row % PLANE_H : row) * DILATION_H, tap % FILTER_W * DILATION_W);
    from[i] = (tap < TAPS ? at + piece % PIECES * 16 : 0) + super * BUNDLE_IN * 2; // sums of what is none are left out
  }
  float sums[TILES_M][TILES_N][4] = {};
  int now = 0;
#pragma unroll 1
  for (int t = share; t < run.tiles; t += stride) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    const int ahead = t + (STAGES - 1) * stride;
    if (ahead < run.tiles) load(ahead, base + (now == 0 ? STAGES - 1 : now - 1) * STAGE_BYTES);
    copy_commit();
    const u32 window = base + now * STAGE_BYTES;
    const u32 results = window + WINDOW_BYTES + lane * RESULT_BYTES + super * BUNDLE_OUT * 2 + part * TILES_N * 16;
    now = now + 1 == STAGES ? 0 : now + 1;
#pragma unroll UNROLL
    for (int k = 0; k < ALL / 32; k++) {
      u32 b[TILES_N][4];
#pragma unroll
      for (int j = 0; j < TILES_N; j++) load_tiles<true>(b[j], results + k * 32 * RESULT_BYTES + j * 16);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        if (ALL - TILE >= 16 && half == 1 && k == ALL / 32 - 1) continue;
        const u32 row = window + shared_word(base + TABLE + (k * 32 + half * 16 + pixel) * 4);
#pragma unroll
        for (int i = 0; i < TILES_M; i++) {
          u32 a[4];
          load_tiles<true>(a, row + from[i]);
#pragma unroll
          for (int j = 0; j < TILES_N; j++) multiply(Element(), sums[i][j], a, b[j][half * 2], b[j][half * 2 + 1]);
        }
      }
    }
  }
  copy_wait<0>();
  float *const to = run.partial + ((i64)blockIdx.x * (THREADS / 32) + warp) * (TILES_M * TILES_N * 128) + lane;
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) to[((i * TILES_N + j) * 4 + e) * 32] = sums[i][j][e];
}
} // namespace @SYM@_scope
} // namespace ts_mma
