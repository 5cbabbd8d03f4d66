// The same sums by products of warpgroups: rows of a product are 64 elements of runs, of which lanes read words and
// multiply them from registers; its columns are channels of dy, which lie as a tensor map has put them, a row of them for
// each pixel. A step sums over 16 pixels: of a row, or eight each of two rows (PAIRED).
constexpr int GROUPS_V = (MATRICES + 4 * GROUP - 1) / (4 * GROUP); // warpgroups that together have a variant's words
constexpr int UNITS = VARIANTS * GROUPS_V, SPLITS = WARPGROUPS / UNITS, THREADS = WARPGROUPS * 128;
constexpr int STEP = STRIDE_W * C, PITCH = ROW_CHUNKS * 16, WINDOW = IN_D * IN_H * PITCH;
constexpr int WIDTH = TILE_W / VARIANTS, PLANE = TILE_H * WIDTH * SPAN; // dy of a variant and part
constexpr int DY = VARIANTS * PARTS * PLANE, STAGE = (DY + WINDOW + 1023) / 1024 * 1024;
constexpr bool PAIRED = WIDTH % 16 != 0;
constexpr int ROWS_AT_ONCE = PAIRED ? 2 : 1, IN_STEP = 16 / ROWS_AT_ONCE, STEPS_W = WIDTH / IN_STEP;
constexpr int TURNS = TILE_H / ROWS_AT_ONCE * STEPS_W / (SPLITS * BATCH); // of a warpgroup, BATCH steps each
constexpr int NEXT = VARIANTS * STEP * 2;                       // bytes from a pixel to the variant's next one
constexpr int BELOW = PAIRED ? STRIDE_H * PITCH : 8 * NEXT;     // to the second eight pixels of a step
constexpr int QUADS = COLUMNS / 4, SUM_PITCH = COLUMNS + 4;
constexpr int SUMS = ELEMENTS * SUM_PITCH * 4, BARRIERS = 256;
static_assert((STAGES * STAGE > SUMS ? STAGES * STAGE : SUMS) + BARRIERS == SHARED_BYTES, "tiles, or sums");
static_assert(WIDTH % IN_STEP == 0 && TILE_H % ROWS_AT_ONCE == 0 && WARPGROUPS % UNITS == 0, "whole steps");
static_assert(TILE_H / ROWS_AT_ONCE * STEPS_W % (SPLITS * BATCH) == 0 && 16 * STAGES <= BARRIERS, "whole turns");
static_assert(PARTS * SPAN >= COLUMNS * 2, "all columns are loaded");

// A tile's image and its first result.
struct Tile {
  int n, d, h, w;
};
TS_DEVICE Tile tile_of(const Run &run, int tile) {
  const int row = (ts_u32)tile / (ts_u32)run.tiles_w, plane = (ts_u32)row / (ts_u32)run.tiles_h;
  const int n = (ts_u32)plane / (ts_u32)run.out_d;
  return {n, plane - n * run.out_d, (row - plane * run.tiles_h) * TILE_H, (tile - row * run.tiles_w) * TILE_W};
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char ts_shared[];
  const Run run = TS_RUN;
  const ts_u32 ring = ts_shared_address(ts_shared), barriers = ring + SHARED_BYTES - BARRIERS;
  const auto full = [=](int i) { return barriers + 8 * i; };
  const auto empty = [=](int i) { return barriers + 8 * (STAGES + i); };
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const int slices = gridDim.x;
  if (threadIdx.x == 0) {
    ts_map_prefetch(&map_dy), ts_map_prefetch(&map_x);
    for (int i = 0; i < STAGES; i++) ts_barrier_init(full(i), 1), ts_barrier_init(empty(i), WARPGROUPS * 4);
    ts_barrier_init_done();
  }
  __syncthreads();
  ts_launch_next();
  ts_wait_previous();

  // One thread brings a tile.
  const auto bring = [&](int tile, int stage) {
    const Tile t = tile_of(run, tile);
    const ts_u32 to = ring + stage * STAGE, done = full(stage);
    ts_expect(done, DY + WINDOW);
    // Rows of x are counted in pairs of elements: what SHIFT leaves is a multiple of eight.
    ts_load4(to + DY, &map_x, done, ((t.w * STRIDE_W - run.pad_w) * C - SHIFT) / 2, t.h * STRIDE_H - run.pad_h,
             t.d * STRIDE_D - run.pad_d, t.n);
#pragma unroll
    for (int v = 0; v < VARIANTS; v++)
#pragma unroll
      for (int part = 0; part < PARTS; part++)
        ts_load5(to + (v * PARTS + part) * PLANE, &map_dy, done, blockIdx.y * COLUMNS + part * (SPAN / 2), t.w + v, t.h,
                 t.d, t.n);
  };
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int i = 0, tile = blockIdx.x; i < STAGES && tile < run.tiles; i++, tile += slices) bring(tile, i);
  }
  __syncwarp();

  // The words and sums of a warpgroup; words of a matrix that is not there are the last one's.
  const int unit = warp / 4 % UNITS, split = warp / 4 / UNITS, variant = unit / GROUPS_V;
  const int first = unit % GROUPS_V * GROUP * 4 + warp % 4;
  float sums[GROUP][COLUMNS / 2] = {};
  const unsigned char *words[GROUP];
#pragma unroll
  for (int m = 0; m < GROUP; m++) {
    const int matrix = first + m * 4 < MATRICES ? first + m * 4 : MATRICES - 1;
    words[m] = ts_shared + (DY + (SHIFT + variant * STEP) / 2 * 4 + place * 2 * NEXT) +
               (int)word_offsets[(variant * MATRICES + matrix) * 8 + group];
  }
  constexpr ts_u64 LAYOUT = ts_descriptor(PARTS > 1 ? PLANE : 16, PAIRED ? WIDTH * SPAN : 8 * SPAN, SPAN);
  const ts_u64 dy = ts_at(LAYOUT, ring + variant * PARTS * PLANE);
  ts_u32 stage = 0, phase = 0, before = 0, a[2][BATCH][GROUP][4];
  int used = 0;
#pragma unroll 1
  for (int tile = blockIdx.x; tile < run.tiles; tile += slices) {
    int rows = 0, columns = 0; // of pixels that exist
    if constexpr (RAGGED) {
      const Tile t = tile_of(run, tile);
      rows = run.out_h - t.h, columns = run.out_w - t.w;
    }
    ts_wait(full(stage), phase);
    const int now = stage * STAGE;
    const auto multiply = [&](int turn, ts_u32(&mine)[BATCH][GROUP][4]) {
      ts_u64 b[BATCH];
#pragma unroll
      for (int i = 0; i < BATCH; i++) {
        const int step = (turn * BATCH + i) * SPLITS + split;
        const int row = step / STEPS_W * ROWS_AT_ONCE, in_row = step % STEPS_W * IN_STEP;
        const int at = now + row * (STRIDE_H * PITCH) + in_row * NEXT;
        int left = 0; // pixels of the row that exist, from the lane's first one on
        if constexpr (RAGGED) {
          left = columns - (in_row + place * 2) * VARIANTS - variant;
          // NOTE: where NVRTC 13.0 can tell a comparison ahead it makes copies of the loop, moves sums, and serialises products.
          asm volatile("" : "+r"(left));
        }
        b[i] = dy + (ts_u64)((now + (row * WIDTH + in_row) * SPAN) >> 4);
#pragma unroll
        for (int m = 0; m < GROUP; m++) {
          ts_u32 v[4];
#pragma unroll
          for (int p = 0; p < 4; p++) {
            v[p] = *(const ts_u32 *)(words[m] + at + p % 2 * NEXT + p / 2 * BELOW);
            if constexpr (RAGGED) {
              // Where no result is, x may be no number: it must not meet the zeros of dy.
              const int away = (p % 2 + (PAIRED ? 0 : p / 2 * 8)) * VARIANTS;
              if (row + (PAIRED ? p / 2 : 0) >= rows || away >= left) v[p] = 0;
            }
          }
          mine[i][m][0] = __byte_perm(v[0], v[1], 0x5410), mine[i][m][1] = __byte_perm(v[0], v[1], 0x7632);
          mine[i][m][2] = __byte_perm(v[2], v[3], 0x5410), mine[i][m][3] = __byte_perm(v[2], v[3], 0x7632);
        }
      }
      ts_product_fence();
#pragma unroll
      for (int i = 0; i < BATCH; i++)
#pragma unroll
        for (int m = 0; m < GROUP; m++) product(sums[m], mine[i][m], b[i], 1);
      ts_product_commit();
      ts_product_wait<1>();
    };
    // All of the warpgroup's products of the tile before have ended. Once all warps' have, another tile takes its place.
    const auto pass_on = [&] {
      if (lane != 0 || !used) return;
      used = 0;
      ts_arrive(empty(before));
      if (warp != 0 || tile + (STAGES - 1) * slices >= run.tiles) return;
      ts_wait(empty(before), stage == 0 ? phase ^ 1 : phase);
      bring(tile + (STAGES - 1) * slices, before);
    };
#pragma unroll 1
    for (int turn = 0; turn + 1 < TURNS; turn += 2) {
      multiply(turn, a[0]);
      pass_on();
      multiply(turn + 1, a[1]);
    }
    if (TURNS % 2) {
      multiply(TURNS - 1, a[0]);
      if (TURNS == 1) pass_on();
      ts_product_wait<0>(); // the next tile begins with the same registers
    }
    used = 1, before = stage;
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
  ts_product_wait<0>();
  ts_sums_ready(sums);
  __syncthreads();
  // Warps add their sums by elements, always in the same order.
#pragma unroll 1
  for (int round = 0; round < VARIANTS * SPLITS; round++) {
    if (variant == round % VARIANTS && split == round / VARIANTS) {
#pragma unroll
      for (int m = 0; m < GROUP; m++) {
        if (first + m * 4 >= MATRICES) continue;
        const ts_u32 word = word_elements[(variant * MATRICES + first + m * 4) * 8 + group];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          if (!(word >> (30 + half) & 1)) continue;
          const ts_u32 line = ring + (((word & 0xffffff) + half - 1) * SUM_PITCH + place * 2) * 4;
#pragma unroll
          for (int j = 0; j < COLUMNS / 8; j++) {
            const float *const v = sums[m] + j * 4 + half * 2;
            float low = 0.0f, high = 0.0f;
            if (round) ts_shared_load2(line + j * 32, low, high);
            ts_shared_store2(line + j * 32, low + v[0], high + v[1]);
          }
        }
      }
    }
    __syncthreads();
  }
  float4 *const to = (float4 *)run.partial + ((ts_i64)blockIdx.x * BLOCKS_M + blockIdx.y) * (ELEMENTS * QUADS);
  for (int i = threadIdx.x; i < ELEMENTS * QUADS; i += THREADS) {
    float v[4];
    ts_shared_load4(ring + i / QUADS * (SUM_PITCH * 4) + i % QUADS * 16, v);
    to[i] = {v[0], v[1], v[2], v[3]};
  }
}
