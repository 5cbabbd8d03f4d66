// Backward weights: rows of a product are elements of a run, its columns channels of dy, and it sums over the results of
// a row. A row of x meets TAPS rows of dy. A block has WARPS_A phases, and adds up its share of the rows.
constexpr int TILES_M = (K_STEPS + WARPS_E - 1) / WARPS_E, TILES_N = BLOCK_N / 8;
constexpr int DY_ROW = TILE_W / 16 * TILES_N * 16; // in units of 16 bytes
static_assert(WARPS == WARPS_A * WARPS_E && DY_BYTES == DY_ROW * 16 && TILE_W % 16 == 0, "as counted");
static_assert(STAGE_BYTES >= WARPS_A * ROW_BYTES + TAPS * DY_BYTES + BARRIER_BYTES &&
                  STAGES * STAGE_BYTES == SHARED_BYTES,
              "all fit");

// This warp has read a stage.
TS_MMA_DEVICE void stage_read(u32 stage) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(stage + READ_AT, 1);
}

typedef Pack<float, 4> Quad;

// A row of x, by the results that see it with the first tap.
struct Item {
  int n, d, band, w;
};
TS_MMA_DEVICE Item item_of(const Run &run, int i) {
  const int line = divided(i, run.tiles_w_m, run.tiles_w_s), image = divided(line, run.bands_m, run.bands_s);
  const int n = divided(image, run.out_d_m, run.out_d_s);
  return {n, image - n * run.out_d, line - image * run.bands, (i - line * run.tiles_w) * TILE_W};
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 ring = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_a = warp / WARPS_E, warp_e = warp % WARPS_E;
  const int group = blockIdx.x % run.groups, slice = blockIdx.x / run.groups;
  const int block_n = group % run.blocks_n, first_step = group / run.blocks_n * WARPS_A;
  launch_next();
  if constexpr (BULK) make_barriers(ring, WARPS_A + TAPS, WARPS);
  wait_previous();

  const auto bring_item = [&](int i, int stage, bool used, u32 turn) {
    if (i >= run.items || warp >= WARPS_A + TAPS) return;
    if (used) barrier_wait(ring + stage * STAGE_BYTES + READ_AT, turn);
    const Item item = item_of(run, i);
    const u32 to = ring + stage * STAGE_BYTES, barrier = to + FULL_AT;
    const int top = item.band * STRIDE_H - run.pad_h, front = item.d * STRIDE_D - run.pad_d;
#pragma unroll 1
    for (int row = warp; row < WARPS_A + TAPS; row += WARPS) {
      if (row < WARPS_A) {
        const int step = first_step + row, h = top + step % PHASES, d = front + step / PHASES * DILATION_D;
        const bool seen = step < STEPS && (u32)d < (u32)run.in_d && (u32)h < (u32)run.in_h;
        const i64 line = item.n * run.x_n + d * run.x_d + h * run.x_h;
        bring_row(run, to + row * ROW_BYTES, line, seen, item.w * STEP - (PAD + LEAD), barrier);
        continue;
      }
      const int t = row - WARPS_A, h = item.band - t, image = (item.n * run.out_d + item.d) * run.out_h;
      const int line = (image + h) * run.tiles_w + item.w / TILE_W;
      const bool seen = (u32)h < (u32)run.out_h;
      bring(to + WARPS_A * ROW_BYTES + t * DY_BYTES, run.dy + ((i64)line * run.blocks_n + block_n) * DY_ROW, 0,
            seen ? DY_ROW : 0, seen ? DY_ROW : 0, barrier);
    }
  };
  const auto load = [&](int i, int stage, bool used, u32 turn) {
    if constexpr (BULK) return bring_item(i, stage, used, turn);
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
        copy_chunk(run, to + row * ROW_BYTES, line, seen, item.w * STEP - (PAD + LEAD), i % CHUNKS);
      }
#pragma unroll 2
      for (int i = threadIdx.x; i < TAPS * DY_ROW; i += THREADS) {
        const int t = i / DY_ROW, h = item.band - t;
        if ((u32)h >= (u32)run.out_h) continue;
        const int line = ((item.n * run.out_d + item.d) * run.out_h + h) * run.tiles_w + item.w / TILE_W;
        const u32 place = to + WARPS_A * ROW_BYTES + i * 16;
        copy_async<16>(place, run.dy + ((i64)line * run.blocks_n + block_n) * DY_ROW + i % DY_ROW, 16);
      }
    }
    copy_commit();
  };
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++)
    load(slice + s * run.slices, s, false, 0);

  float sums[TAPS][TILES_M][TILES_N][4] = {};
  const u32 mine = warp_a * ROW_BYTES + (lane % 8 + lane / 16 * 8) * STEP * 2 + lane / 8 % 2 * 16 + warp_e * 32;
  int stage = 0;
  u32 turn = 0;
#pragma unroll 1
  for (int i = slice; i < run.items; i += run.slices) {
    if constexpr (BULK) {
      barrier_wait(ring + stage * STAGE_BYTES + FULL_AT, turn);
    } else {
      copy_wait<STAGES - 2>();
      __syncthreads();
    }
    // The stage before this one was waited for in this turn, or in the one before.
    const int last = stage == 0 ? STAGES - 1 : stage - 1;
    load(i + (STAGES - 1) * run.slices, last, i != slice, stage == 0 ? turn ^ 1 : turn);
    const u32 now = ring + stage * STAGE_BYTES;
    const Item item = item_of(run, i);
    const u32 window = ring + stage * STAGE_BYTES + mine;
    const unsigned char *const dy = memory + stage * STAGE_BYTES + WARPS_A * ROW_BYTES + lane * 8;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if (stage == 0) turn ^= 1;
    bool exists[TAPS], all = true;
#pragma unroll
    for (int t = 0; t < TAPS; t++) exists[t] = (u32)(item.band - t) < (u32)run.out_h, all = all && exists[t];
#pragma unroll 2
    for (int k = 0; k < TILE_W / 16; k++) {
      const int left = run.out_w - item.w - k * 16;
      if (left <= 0) break;
      Pack<u32, 2> b[TAPS][TILES_N];
#pragma unroll
      for (int t = 0; t < TAPS; t++)
#pragma unroll
        for (int j = 0; j < TILES_N; j++)
          b[t][j] = *(const Pack<u32, 2> *)(dy + t * DY_BYTES + (k * TILES_N + j) * 256);
      // Behind the last result of a row x may be no number: it must not meet the zeros of dy.
      const int p = lane % 4 * 2;
      const u32 keep_low = (p < left ? 0xffffu : 0u) | (p + 1 < left ? 0xffff0000u : 0u);
      const u32 keep_high = (p + 8 < left ? 0xffffu : 0u) | (p + 9 < left ? 0xffff0000u : 0u);
      u32 a[2][4];
      const auto take = [&](int m) {
        if ((m + 1) * WARPS_E > K_STEPS && m * WARPS_E + warp_e >= K_STEPS) return;
        load_tiles<true>(a[m % 2], window + (m * WARPS_E * 32) + k * (16 * STEP * 2));
      };
      take(0);
#pragma unroll
      for (int m = 0; m < TILES_M; m++) {
        if (m + 1 < TILES_M) take(m + 1);
        if ((m + 1) * WARPS_E > K_STEPS && m * WARPS_E + warp_e >= K_STEPS) continue;
        u32(&now)[4] = a[m % 2];
        if (RAGGED) now[0] &= keep_low, now[1] &= keep_low, now[2] &= keep_high, now[3] &= keep_high;
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
          // A row of dy that does not exist is left out, not zero.
          if (TAPS > 1 && !all && !exists[t]) continue;
#pragma unroll
          for (int j = 0; j < TILES_N; j++)
            multiply(Element(), sums[t][m][j], now, b[t][j].v[0], b[t][j].v[1]);
        }
      }
    }
    if constexpr (BULK) stage_read(now);
  }
  if constexpr (!BULK) copy_wait<0>();
  Quad *const to = (Quad *)run.partial + ((i64)blockIdx.x * WARPS + warp) * (TAPS * TILES_M * TILES_N * 32) + lane;
#pragma unroll
  for (int t = 0; t < TAPS; t++)
#pragma unroll
    for (int m = 0; m < TILES_M; m++)
#pragma unroll
      for (int j = 0; j < TILES_N; j++) {
        const float(&v)[4] = sums[t][m][j];
        to[((t * TILES_M + m) * TILES_N + j) * 32] = {{v[0], v[1], v[2], v[3]}};
      }
}
