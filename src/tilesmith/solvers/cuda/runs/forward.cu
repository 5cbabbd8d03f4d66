// What both forward kernels share. A stage has the rows of one phase; a row meets the results of TAPS rows, so that each
// fragment of it is multiplied with as many rows of the filter.
constexpr int WARPS_H = TILE_H / ROWS, WARPS_W = TILE_W / (16 * PARTS), TILES_N = BLOCK_N / 8;
constexpr int IN_ROWS = TILE_H + TAPS - 1, PIXELS = TILE_H * TILE_W;
constexpr bool ALL_TAPS = FILTER_H % STRIDE_H == 0; // exist in every phase
static_assert(WARPS == WARPS_H * WARPS_W * WARPS_K && TILE_H % ROWS == 0 && TILE_W % (16 * PARTS) == 0, "as counted");
static_assert(STAGE_BYTES >= IN_ROWS * ROW_BYTES + BARRIER_BYTES && QUADS * 2 >= TAPS * TILES_N, "as counted");

struct Tile {
  int n, d, h, w;
};
TS_MMA_DEVICE Tile tile_of(const Run &run, int i) {
  const int line = divided(i, run.tiles_w_m, run.tiles_w_s), image = divided(line, run.tiles_h_m, run.tiles_h_s);
  const int n = divided(image, run.out_d_m, run.out_d_s);
  return {n, image - n * run.out_d, (line - image * run.tiles_h) * TILE_H, (i - line * run.tiles_w) * TILE_W};
}

// Where a step of a tile begins in x: its plane, its first row and element, and whether the plane exists.
struct Place {
  i64 plane;
  int top, first;
  bool seen;
};
TS_MMA_DEVICE Place place_of(const Run &run, int tile, int step) {
  const Tile t = tile_of(run, tile);
  const int d = t.d * STRIDE_D - run.pad_d + step / PHASES * DILATION_D;
  return {t.n * run.x_n + d * run.x_d, t.h * STRIDE_H - run.pad_h + step % PHASES, t.w * STEP - (PAD + LEAD),
          (u32)d < (u32)run.in_d};
}

// Elements around a run must not meet the filter's zeros: they may be no numbers.
constexpr int LAST = LEAD + RUN - (K_STEPS - 1) * 16;
struct Edges {
  u32 begin_low, end_low, end_high;
};
TS_MMA_DEVICE Edges edges_of(int lane) {
  const int k = lane % 4 * 2;
  return {(k >= LEAD ? 0xffffu : 0u) | (k + 1 >= LEAD ? 0xffff0000u : 0u),
          (k < LAST ? 0xffffu : 0u) | (k + 1 < LAST ? 0xffff0000u : 0u),
          (k + 8 < LAST ? 0xffffu : 0u) | (k + 9 < LAST ? 0xffff0000u : 0u)};
}

union Fetched {
  uint4 quads[QUADS];
  u32 words[QUADS * 4];
};
typedef float Sums[ROWS][PARTS][TILES_N][4];

TS_MMA_DEVICE void clear(Sums &sums) {
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int p = 0; p < PARTS; p++)
#pragma unroll
      for (int j = 0; j < TILES_N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[i][p][j][e] = 0.0f;
}

// Sixteen elements of the runs in a window of a stage. The next fragment is on its way while one is multiplied.
TS_MMA_DEVICE void multiply_step(Sums &sums, u32 window, int k_step, int step, const Fetched &by, const Edges &edges) {
  const bool leads = LEAD && k_step == 0, last = LAST < 16 && k_step == K_STEPS - 1;
  constexpr int FRAGMENTS = (ROWS + TAPS - 1) * PARTS;
  u32 a[2][4];
  const auto take = [&](int f) {
    u32(&to)[4] = a[f % 2];
    load_tiles<false>(to, window + (f / PARTS * ROW_BYTES + f % PARTS * 16 * STEP * 2) + k_step * 32);
    if (leads) to[0] &= edges.begin_low, to[1] &= edges.begin_low;
    if (last) to[0] &= edges.end_low, to[1] &= edges.end_low, to[2] &= edges.end_high, to[3] &= edges.end_high;
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

// Warps that share results add their sums, always in the same order.
TS_MMA_DEVICE void add_sums(const Sums &sums, float *staged, int warp_h, int warp_w, int warp_k) {
  const int lane = threadIdx.x % 32;
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
}

TS_MMA_DEVICE void store_results(const Run &run, const float *staged, int tile, int block_n) {
  const Tile t = tile_of(run, tile);
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
