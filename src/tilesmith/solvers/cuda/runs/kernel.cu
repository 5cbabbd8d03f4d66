// Forward. A stage has the rows of one phase; a row meets the results of TAPS rows, so that each fragment of it is
// multiplied with as many rows of the filter. The filter comes from memory in the order of products, each part once.
constexpr int WARPS_H = TILE_H / ROWS, WARPS_W = TILE_W / (16 * PARTS), TILES_N = BLOCK_N / 8;
constexpr int IN_ROWS = TILE_H + TAPS - 1, PIXELS = TILE_H * TILE_W;
constexpr bool ALL_TAPS = FILTER_H % STRIDE_H == 0; // exist in every phase
static_assert(WARPS == WARPS_H * WARPS_W * WARPS_K && TILE_H % ROWS == 0 && TILE_W % (16 * PARTS) == 0, "as counted");
static_assert(STAGE_BYTES >= IN_ROWS * ROW_BYTES && QUADS * 2 >= TAPS * TILES_N, "as counted");
static_assert(STAGES * STAGE_BYTES + PIXELS * STAGED_PITCH * 4 == SHARED_BYTES, "sums lie behind the ring");

struct Tile {
  int n, d, h, w;
};
TS_MMA_DEVICE Tile tile_of(const Run &run, int i) {
  const int line = divided(i, run.tiles_w_m, run.tiles_w_s), image = divided(line, run.tiles_h_m, run.tiles_h_s);
  const int n = divided(image, run.out_d_m, run.out_d_s);
  return {n, image - n * run.out_d, (line - image * run.tiles_h) * TILE_H, (i - line * run.tiles_w) * TILE_W};
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 ring = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_w = warp % WARPS_W, warp_h = warp / WARPS_W % WARPS_H, warp_k = warp / (WARPS_W * WARPS_H);
  const int block_n = blockIdx.x % run.blocks_n, stride = gridDim.x / run.blocks_n;
  const uint4 *const filter = run.packed + (i64)block_n * STEPS * K_STEPS * QUADS * 32 + lane;
  launch_next();
  wait_previous();

  // Copies are issued between products, some in each of a warp's steps: the filter's loads would wait behind all of them.
  constexpr int COPIES = (IN_ROWS * CHUNKS + THREADS - 1) / THREADS;
  constexpr int IN_STEP = (COPIES + K_STEPS / WARPS_K - 1) / (K_STEPS / WARPS_K);
  int next_tile = blockIdx.x / run.blocks_n, next_step = 0, next_stage = 0;
  struct {
    i64 plane;
    int top, first, at;
    u32 to;
    bool seen;
  } next;
  const auto begin_load = [&] {
    const Tile t = tile_of(run, next_tile);
    const int d = t.d * STRIDE_D - run.pad_d + next_step / PHASES * DILATION_D;
    next.plane = t.n * run.x_n + d * run.x_d;
    next.top = t.h * STRIDE_H - run.pad_h + next_step % PHASES, next.first = t.w * STEP - (PAD + LEAD);
    next.to = ring + next_stage * STAGE_BYTES, next.seen = (u32)d < (u32)run.in_d;
    next.at = next_tile < run.tiles ? (int)threadIdx.x : IN_ROWS * CHUNKS;
    if (next_tile >= run.tiles) return;
    next_stage = next_stage + 1 == STAGES ? 0 : next_stage + 1;
    if (++next_step == STEPS) next_step = 0, next_tile += stride;
  };
  const auto load = [&](int count) {
#pragma unroll 2
    for (int c = 0; c < count && next.at < IN_ROWS * CHUNKS; c++, next.at += THREADS) {
      const int row = next.at / CHUNKS, h = next.top + row * STRIDE_H;
      const bool seen = next.seen && (u32)h < (u32)run.in_h;
      copy_chunk(run, next.to + row * ROW_BYTES, next.plane + h * run.x_h, seen, next.first, next.at % CHUNKS);
    }
  };
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++) {
    begin_load();
    load(COPIES);
    copy_commit();
  }

  // Elements around a run must not meet the filter's zeros: they may be no numbers.
  constexpr int LAST = LEAD + RUN - (K_STEPS - 1) * 16;
  const int k = lane % 4 * 2;
  const u32 begin_low = (k >= LEAD ? 0xffffu : 0u) | (k + 1 >= LEAD ? 0xffff0000u : 0u);
  const u32 end_low = (k < LAST ? 0xffffu : 0u) | (k + 1 < LAST ? 0xffff0000u : 0u);
  const u32 end_high = (k + 8 < LAST ? 0xffffu : 0u) | (k + 9 < LAST ? 0xffff0000u : 0u);
  const u32 mine = warp_h * ROWS * ROW_BYTES + (warp_w * PARTS * 16 + lane % 16) * STEP * 2 + lane / 16 * 16;
  float *const staged = (float *)(memory + STAGES * STAGE_BYTES);
  float sums[ROWS][PARTS][TILES_N][4];
  union Fetched {
    uint4 quads[QUADS];
    u32 words[QUADS * 4];
  };
  Fetched ahead;
  const auto fetch = [&](int step, int k_step) {
    const uint4 *const from = filter + (step * K_STEPS + k_step) * (QUADS * 32);
#pragma unroll
    for (int q = 0; q < QUADS; q++) ahead.quads[q] = from[q * 32];
  };
  fetch(0, warp_k);

  int stage = 0;
#pragma unroll 1
  for (int now = blockIdx.x / run.blocks_n; now < run.tiles; now += stride) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int p = 0; p < PARTS; p++)
#pragma unroll
        for (int j = 0; j < TILES_N; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) sums[i][p][j][e] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      copy_wait<STAGES - 2>();
      __syncthreads();
      begin_load();
      const u32 window = ring + stage * STAGE_BYTES + mine;
      stage = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll 1
      for (int k_step = warp_k; k_step < K_STEPS; k_step += WARPS_K) {
        const Fetched by = ahead;
        if (k_step + WARPS_K < K_STEPS) fetch(step, k_step + WARPS_K);
        else fetch(step + 1 < STEPS ? step + 1 : 0, warp_k);
        const bool leads = LEAD && k_step == 0, last = LAST < 16 && k_step == K_STEPS - 1;
        load(IN_STEP);
        // The next fragment is on its way while this one is multiplied.
        constexpr int FRAGMENTS = (ROWS + TAPS - 1) * PARTS;
        u32 a[2][4];
        const auto take = [&](int f) {
          u32(&to)[4] = a[f % 2];
          load_tiles<false>(to, window + (f / PARTS * ROW_BYTES + f % PARTS * 16 * STEP * 2) + k_step * 32);
          if (leads) to[0] &= begin_low, to[1] &= begin_low;
          if (last) to[0] &= end_low, to[1] &= end_low, to[2] &= end_high, to[3] &= end_high;
        };
        take(0);
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) {
          const int i = f / PARTS, p = f % PARTS;
          if (f + 1 < FRAGMENTS) take(f + 1);
#pragma unroll
          for (int t = 0; t < TAPS; t++) {
            if (i - t < 0 || i - t >= ROWS) continue;
            if (!ALL_TAPS && step % PHASES + t * STRIDE_H >= FILTER_H) continue;
#pragma unroll
            for (int j = 0; j < TILES_N; j++)
              multiply(Element(), sums[i - t < 0 || i - t >= ROWS ? 0 : i - t][p][j], a[f % 2],
                       by.words[(t * TILES_N + j) * 2], by.words[(t * TILES_N + j) * 2 + 1]);
          }
        }
      }
      copy_commit();
    }

    // Warps that share results add their sums, always in the same order.
#pragma unroll 1
    for (int turn = 0; turn < WARPS_K; turn++) {
      if (turn) __syncthreads();
      if (warp_k != turn) continue;
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
          for (int j = 0; j < TILES_N; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
              const int pixel = (warp_h * ROWS + i) * TILE_W + (warp_w * PARTS + p) * 16 + half * 8 + lane / 4;
              Pack<float, 2> *const to = (Pack<float, 2> *)(staged + pixel * STAGED_PITCH + j * 8 + lane % 4 * 2);
              Pack<float, 2> v = {{sums[i][p][j][half * 2], sums[i][p][j][half * 2 + 1]}};
              if (turn) v.v[0] += to->v[0], v.v[1] += to->v[1];
              *to = v;
            }
    }
    __syncthreads();
    const Tile t = tile_of(run, now);
    constexpr int USED = COLS < BLOCK_N ? COLS : BLOCK_N, WIDE = (USED + OUT_VECTOR - 1) / OUT_VECTOR;
#pragma unroll 2
    for (int i = threadIdx.x; i < PIXELS * WIDE; i += THREADS) {
      const int pixel = i / WIDE, c = i % WIDE * OUT_VECTOR, h = t.h + pixel / TILE_W, w = t.w + pixel % TILE_W;
      if (h >= run.out_h || w >= run.out_w || block_n * BLOCK_N + c >= COLS) continue;
      const int column = block_n * BLOCK_N + c;
      const i64 at = t.n * run.y_n + t.d * run.y_d + h * run.y_h + w * run.y_w + column;
      Pack<Out, OUT_VECTOR> found;
#pragma unroll
      for (int e = 0; e < OUT_VECTOR; e++) {
        float v = staged[pixel * STAGED_PITCH + c + e];
        if constexpr (BIAS) v += widened(run.bias[column + e]);
        if constexpr (RESIDUAL) v += widened(run.residual[at + e]);
        narrow(found.v[e], activate(v));
      }
      *(Pack<Out, OUT_VECTOR> *)(run.out + at) = found;
    }
  }
  copy_wait<0>();
}
