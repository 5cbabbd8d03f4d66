namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// fp32 by single multiply-adds: forward, and backward data by phases. A warp has a group, and each lane some pixels and
// RESULTS_EACH results of the group. Lanes read pixels of their own, and the same part of the filter.
constexpr int GROUPS = SUPERS * (BUNDLE_IN / GROUP_IN), FILTER_PITCH = PARTS_N * RESULTS_EACH;
constexpr int TAPS_ALL = FILTER_H * FILTER_W, FILTER_SIZE = GROUPS * TAPS_ALL * GROUP_IN * FILTER_PITCH;
constexpr int READ = GROUP_IN % 4 == 0 ? 4 : GROUP_IN % 2 == 0 ? 2 : 1; // channels at once
static_assert(THREADS == WARPS_M * GROUPS * PARTS_N * 32 && WARPS_M * TILES_M * 32 >= TILE, "as counted");
static_assert(ZERO + FILTER_SIZE * 4 <= STAGED && STAGED + TILE * STAGED_PITCH <= SHARED_BYTES, "all fit");

// Taps of a row of a phase, which lie as far apart as those of its next row, and its rows.
TS_MMA_CONSTANT int along(int phase) {
  int count = 0;
  for (int tap = tap_first(phase); tap < tap_first(phase + 1); tap++) count += tap_h(tap) == tap_h(tap_first(phase));
  return count;
}
TS_MMA_CONSTANT int rows_of(int phase) { return along(phase) ? (tap_first(phase + 1) - tap_first(phase)) / along(phase) : 0; }
// Few products stand in the text for all rows; of many, those of a row.
constexpr int PER_TAP = TILES_M * READ * (RESULTS_EACH < GROUP_OUT ? RESULTS_EACH : GROUP_OUT);
constexpr bool ROLLED = tap_first(PHASES) * PER_TAP > 600;

// Copies the filters of a block's groups: results of a channel side by side, zeros for those that are none.
TS_MMA_DEVICE void copy_filter(const Run &run, int block, u32 to) {
#pragma unroll 2
  for (u32 i = threadIdx.x; i < FILTER_SIZE; i += THREADS) {
    const u32 k = i % FILTER_PITCH, c = i / FILTER_PITCH % GROUP_IN, tap = i / FILTER_PITCH / GROUP_IN % TAPS_ALL;
    const u32 group = block * GROUPS + i / (FILTER_PITCH * GROUP_IN * TAPS_ALL);
    const bool there = k < GROUP_OUT && group < (u32)run.groups;
    const u32 row = group * (BACK ? GROUP_IN : GROUP_OUT) + (BACK ? c : k);
    const u32 at = row * run.w_row + tap / FILTER_W * run.w_h + tap % FILTER_W * run.w_w + (BACK ? k : c);
    copy_async<4>(to + i * 4, run.w + (there ? at : 0), there ? 4 : 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 base = shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = warp % PARTS_N, of = warp / PARTS_N % GROUPS;
  const int rows = WARPS_M == 1 ? 0 : warp / (PARTS_N * GROUPS) * TILES_M * 32;
  const int block = blockIdx.x % run.blocks, share = blockIdx.x / run.blocks, shares = gridDim.x / run.blocks;
  wait_previous();
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++) {
    if (share + s * shares < run.tiles) load_window(run, block, tile_at(run, share + s * shares), base + s * WINDOW_BYTES);
    if (s == 0) copy_filter(run, block, base + ZERO);
    copy_commit();
  }
  float begin[RESULTS_EACH];
#pragma unroll
  for (int j = 0; j < RESULTS_EACH; j++) {
    const int n = part * RESULTS_EACH + j, k = (block * GROUPS + of) * GROUP_OUT + n;
    begin[j] = BIAS && n < GROUP_OUT && k < run.results ? widened(run.bias[k]) : 0.0f;
  }
  int from[TILES_M];
#pragma unroll
  for (int i = 0; i < TILES_M; i++) {
    const int m = rows + i * 32 + lane, p = m < TILE ? m : 0;
    from[i] = tile_pixel_at(p) + of * GROUP_IN * 4;
  }
  const float *const mine = (float *)(memory + ZERO) + of * TAPS_ALL * GROUP_IN * FILTER_PITCH + part * RESULTS_EACH;

  int now = 0;
#pragma unroll 1
  for (int t = share; t < run.tiles; t += shares) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    const int ahead = t + (STAGES - 1) * shares;
    if (ahead < run.tiles) load_window(run, block, tile_at(run, ahead), base + (now == 0 ? STAGES - 1 : now - 1) * WINDOW_BYTES);
    copy_commit();
    const Tile at_tile = tile_at(run, t);
    const unsigned char *const window = memory + now * WINDOW_BYTES;
    now = now + 1 == STAGES ? 0 : now + 1;
#pragma unroll 1
    for (int f = 0; f < PHASES; f++) {
      float sums[TILES_M][RESULTS_EACH];
#pragma unroll
      for (int i = 0; i < TILES_M; i++)
#pragma unroll
        for (int j = 0; j < RESULTS_EACH; j++) sums[i][j] = begin[j];
      one_of<PHASES>(f, [&](auto phase) {
        constexpr int p = phase.value, ROWS = rows_of(p), ALONG = along(p);
        constexpr int FIRST = ROWS ? tap_first(p) : 0; // behind the last phase with taps there is none
        constexpr int NEXT = ROWS > 1 ? FIRST + ALONG : FIRST; // the first tap of the next row
        constexpr int STEP = pixel_at(tap_h(NEXT), 0) - pixel_at(tap_h(FIRST), 0);
#pragma unroll 1
        for (int d = 0; d < FILTER_D; d++) {
          if (DEEP && BACK && (u32)source_plane(at_tile.d, d) >= (u32)run.in_d) continue;
#pragma unroll(ROLLED ? 1 : ROWS)
          for (int row = 0; row < ROWS; row++) {
#pragma unroll
            for (int tap = FIRST; tap < FIRST + ALONG; tap++) {
              const int r = d * PLANE_H + filter_h(FIRST) + row * (filter_h(NEXT) - filter_h(FIRST));
              const unsigned char *const pixels =
                  window + pixel_at(tap_h(tap), tap_w(tap)) + row * STEP + d * pixel_at(WINDOW_H, 0);
              const float *const by = mine + (r * FILTER_W + filter_w(tap)) * GROUP_IN * FILTER_PITCH;
#pragma unroll 1
              for (int c = 0; c < GROUP_IN; c += READ) {
                Pack<float, READ> x[TILES_M];
#pragma unroll
                for (int i = 0; i < TILES_M; i++) x[i] = *(const Pack<float, READ> *)(pixels + from[i] + c * 4);
#pragma unroll
                for (int e = 0; e < READ; e++)
#pragma unroll
                  for (int j = 0; j < RESULTS_EACH; j += 4) {
                    const Pack<float, 4> w = *(const Pack<float, 4> *)(by + (c + e) * FILTER_PITCH + j);
#pragma unroll
                    for (int i = 0; i < TILES_M; i++)
#pragma unroll
                      for (int q = 0; q < 4; q++) sums[i][j + q] = fmaf(x[i].v[e], w.v[q], sums[i][j + q]);
                  }
              }
            }
          }
        }
      });
      bool nan = false;
      if (f > 0) __syncthreads(); // the last phase's results have left
#pragma unroll
      for (int i = 0; i < TILES_M; i++) {
        const int m = rows + i * 32 + lane;
        const bool tail = ((WARPS_M - 1) * TILES_M + i + 1) * 32 > TILE; // of the last warp, at least
        float *const to = (float *)(memory + STAGED + m * STAGED_PITCH) + of * GROUP_OUT + part * RESULTS_EACH;
#pragma unroll
        for (int j = 0; j < RESULTS_EACH && j < GROUP_OUT; j++) { // others are no results of any part
          if (!LATE) sums[i][j] = activate(sums[i][j]);
          if (REPAIR) nan |= sums[i][j] != sums[i][j];
        }
#pragma unroll
        for (int j = 0; j < RESULTS_EACH; j += 4) {
          if (tail && m >= TILE || part * RESULTS_EACH + j >= GROUP_OUT) continue;
          if (GROUP_OUT % 4 == 0) {
            *(Pack<float, 4> *)(to + j) = {{sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]}};
          } else {
#pragma unroll
            for (int q = 0; q < 4; q++)
              if (part * RESULTS_EACH + j + q < GROUP_OUT) to[j + q] = sums[i][j + q];
          }
        }
      }
      bool any_nan = false;
      if (REPAIR) any_nan = __syncthreads_or(nan);
      else __syncthreads();
      leave(run, memory, block, f, at_tile, any_nan);
    }
  }
  copy_wait<0>();
}
} // namespace @SYM@_scope
} // namespace ts_mma
