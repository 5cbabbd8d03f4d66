// Backward weights: rows of a product are elements of a run, its columns channels of dy, and it sums over the results of
// a row. A row of x meets TAPS rows of dy. A block has WARPS_A phases, and adds up its share of the rows.
constexpr int TILES_M = (K_STEPS + WARPS_E - 1) / WARPS_E, TILES_N = BLOCK_N / 8, EACH_Y = COPY_Y / 2;
constexpr int DY_CHUNKS = (((TILE_W - 1) * PIXEL + BLOCK_N) * 2 + COPY_Y - 1) / COPY_Y;
static_assert(WARPS == WARPS_A * WARPS_E && DY_BYTES >= DY_CHUNKS * COPY_Y && TILE_W % 16 == 0, "as counted");
static_assert(STAGE_BYTES >= WARPS_A * ROW_BYTES + TAPS * DY_BYTES && STAGES * STAGE_BYTES == SHARED_BYTES, "all fit");

// A row of x, by the results that see it with the first tap.
struct Item {
  int n, d, band, w;
};
TS_MMA_DEVICE Item item_of(const Run &run, int i) {
  const int w = i % run.tiles_w, line = i / run.tiles_w, band = line % run.bands, image = line / run.bands;
  return {image / run.out_d, image % run.out_d, band, w * TILE_W};
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 ring = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_a = warp / WARPS_E, warp_e = warp % WARPS_E;
  const int group = blockIdx.x % run.groups, slice = blockIdx.x / run.groups;
  const int column = group % run.blocks_n * BLOCK_N, first_step = group / run.blocks_n * WARPS_A;
  wait_previous();

  const auto load = [&](int i, int stage) {
    if (i < run.items) {
      const Item item = item_of(run, i);
      const u32 to = ring + stage * STAGE_BYTES;
      const int top = item.band * STRIDE_H - run.pad_h, front = item.d * STRIDE_D - run.pad_d;
#pragma unroll 4
      for (int i = threadIdx.x; i < WARPS_A * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, step = first_step + row;
        const int h = top + step % PHASES, d = front + step / PHASES * DILATION_D;
        const bool seen = step < STEPS && (u32)d < (u32)run.in_d && (u32)h < (u32)run.in_h;
        const i64 line = item.n * run.x_n + d * run.x_d + h * run.x_h;
        copy_chunk(run, to + row * ROW_BYTES, line, seen, item.w * STEP - PAD, i % CHUNKS);
      }
      const int end = (run.out_w - 1 - item.w) * PIXEL + COLS - column; // of the row, from the tile's first pixel
#pragma unroll 2
      for (int i = threadIdx.x; i < TAPS * DY_CHUNKS; i += THREADS) {
        const int t = i / DY_CHUNKS, at = i % DY_CHUNKS * EACH_Y, h = item.band - t;
        const int valid = (u32)h < (u32)run.out_h ? larger(smaller(end - at, EACH_Y), 0) * 2 : 0;
        const i64 line = item.n * run.y_n + item.d * run.y_d + h * run.y_h;
        const Element *const from = valid ? run.dy + (line + (i64)item.w * PIXEL + column + at) : run.dy;
        const u32 place = stage * STAGE_BYTES + WARPS_A * ROW_BYTES + t * DY_BYTES + at * 2;
        if constexpr (COPY_Y > 2) copy_async<COPY_Y>(ring + place, from, valid);
        else *(Element *)(memory + place) = valid ? *from : Element();
      }
    }
    copy_commit();
  };
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++) load(slice + s * run.slices, s);

  float sums[TAPS][TILES_M][TILES_N][4] = {};
  const u32 mine = warp_a * ROW_BYTES + (lane % 8 + lane / 16 * 8) * STEP * 2 + lane / 8 % 2 * 16 + warp_e * 32;
  int stage = 0;
#pragma unroll 1
  for (int i = slice; i < run.items; i += run.slices) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    load(i + (STAGES - 1) * run.slices, stage == 0 ? STAGES - 1 : stage - 1);
    const Item item = item_of(run, i);
    const u32 window = ring + stage * STAGE_BYTES + mine;
    const unsigned char *const dy = memory + stage * STAGE_BYTES + WARPS_A * ROW_BYTES +
                                    (lane % 4 * 2 * PIXEL + lane / 4) * 2;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    bool exists[TAPS], all = true;
#pragma unroll
    for (int t = 0; t < TAPS; t++) exists[t] = (u32)(item.band - t) < (u32)run.out_h, all = all && exists[t];
#pragma unroll 1
    for (int k = 0; k < TILE_W / 16; k++) {
      const int left = run.out_w - item.w - k * 16;
      if (left <= 0) break;
      u32 b[TAPS][TILES_N][2];
#pragma unroll
      for (int t = 0; t < TAPS; t++)
#pragma unroll
        for (int j = 0; j < TILES_N; j++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const unsigned char *const from = dy + t * DY_BYTES + ((k * 16 + half * 8) * PIXEL + j * 8) * 2;
            b[t][j][half] = *(const u16 *)from | (u32) * (const u16 *)(from + PIXEL * 2) << 16;
          }
      // Behind the last result of a row x may be no number: it must not meet the zeros of dy.
      const int p = lane % 4 * 2;
      const u32 keep_low = (p < left ? 0xffffu : 0u) | (p + 1 < left ? 0xffff0000u : 0u);
      const u32 keep_high = (p + 8 < left ? 0xffffu : 0u) | (p + 9 < left ? 0xffff0000u : 0u);
#pragma unroll
      for (int m = 0; m < TILES_M; m++) {
        if ((m + 1) * WARPS_E > K_STEPS && m * WARPS_E + warp_e >= K_STEPS) continue;
        u32 a[4];
        load_tiles<true>(a, window + (m * WARPS_E * 32) + k * (16 * STEP * 2));
        if (RAGGED) a[0] &= keep_low, a[1] &= keep_low, a[2] &= keep_high, a[3] &= keep_high;
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
          // A row of dy that does not exist is left out, not zero.
          if (TAPS > 1 && !all && !exists[t]) continue;
#pragma unroll
          for (int j = 0; j < TILES_N; j++) multiply(Element(), sums[t][m][j], a, b[t][j][0], b[t][j][1]);
        }
      }
    }
  }
  copy_wait<0>();
  float *const to = run.partial + ((i64)blockIdx.x * WARPS + warp) * (TAPS * TILES_M * TILES_N * 128) + lane;
#pragma unroll
  for (int t = 0; t < TAPS; t++)
#pragma unroll
    for (int m = 0; m < TILES_M; m++)
#pragma unroll
      for (int j = 0; j < TILES_N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) to[(((t * TILES_M + m) * TILES_N + j) * 4 + e) * 32] = sums[t][m][j][e];
}
