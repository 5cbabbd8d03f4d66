namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// Forward, and backward data by phases. A block has the channels of SUPERS bundles; a bundle is as many groups as make
// whole pieces of 8 channels. Each warp multiplies 16 pixels at a time of a window in shared memory with the filter of
// one bundle, which stays in its registers. Results are staged in shared memory, and leave in rows of all bundles.
static_assert(WARPS_M * TILES_M * 16 >= TILE && BUNDLE_IN % 8 == 0, "as counted");
static_assert(ZERO + 16 <= STAGED && STAGED + TILE * STAGED_PITCH <= SHARED_BYTES, "all fit");

// Steps of 16 products of a phase, and all before it.
TS_MMA_CONSTANT int steps_of(int phase) { return ((tap_first(phase + 1) - tap_first(phase)) * PIECES + 1) / 2; }
TS_MMA_CONSTANT int steps_before(int phase) {
  int sum = 0;
  for (int i = 0; i < phase; i++) sum += steps_of(i);
  return sum;
}
constexpr int STEPS = steps_before(PHASES);
// Whether a piece exists, and where it lies from a pixel's first one in shared memory.
TS_MMA_CONSTANT bool exists(int phase, int piece) { return tap_first(phase) + piece / PIECES < tap_first(phase + 1); }
TS_MMA_CONSTANT int piece_at(int phase, int piece) {
  if (!exists(phase, piece)) return 0;
  const int tap = tap_first(phase) + piece / PIECES;
  return pixel_at(tap_h(tap), tap_w(tap)) + piece % PIECES * 16;
}

// An element of a bundle's filter: zero between channels of different groups of the bundle. There is no branch, so that
// many loads are under way.
TS_MMA_DEVICE u32 weight(const Run &run, const Element *w, int group, int tap_offset, int channel, int column, bool any) {
  const int of = channel / GROUP_IN;
  const bool there = any && of == column / GROUP_OUT && column < BUNDLE_OUT && group + of < run.groups;
  const int c = channel - of * GROUP_IN, k = column - of * GROUP_OUT;
  const int row = (group + of) * (BACK ? GROUP_IN : GROUP_OUT) + (BACK ? c : k);
  const u32 found = w[there ? row * (int)run.w_row + tap_offset + (BACK ? k : c) : 0].bits;
  return there ? found : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 base = shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = warp % PARTS_N, super = warp / PARTS_N % SUPERS, rows = warp / (PARTS_N * SUPERS) * TILES_M * 16;
  const int block = blockIdx.x % run.blocks, share = blockIdx.x / run.blocks, shares = gridDim.x / run.blocks;
  const int column0 = part * TILES_N * 8, group0 = (block * SUPERS + super) * (BUNDLE_IN / GROUP_IN);
  if (threadIdx.x < 4) *(u32 *)(memory + ZERO + threadIdx.x * 4) = 0;

  launch_next();
  wait_previous();
  const int first = share;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (first + s * shares < run.tiles) load_window(run, block, tile_at(run, first + s * shares), base + s * WINDOW_BYTES);
    copy_commit();
  }

  // The filter, as the second operands of all products.
  u32 by[STEPS][TILES_N][2];
  each<PHASES>([&](auto phase) {
    constexpr int f = phase.value;
#pragma unroll
    for (int k = 0; k < steps_of(f); k++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int piece = 2 * k + half;
        const bool any = exists(f, piece);
        const int tap = any ? tap_first(f) + piece / PIECES : 0, c = piece % PIECES * 8 + lane % 4 * 2;
        const int offset = filter_h(tap) * (int)run.w_h + filter_w(tap) * (int)run.w_w;
#pragma unroll
        for (int j = 0; j < TILES_N; j++) {
          const int n = column0 + j * 8 + lane / 4;
          const u32 low = weight(run, run.w, group0, offset, c, n, any);
          by[steps_before(f) + k][j][half] = low | weight(run, run.w, group0, offset, c + 1, n, any) << 16;
        }
        // NOTE: without an end now and then, the compiler has so many loads under way that registers run out.
        if (half && (steps_before(f) + k + 1) * TILES_N % 16 < TILES_N) hold_loads();
      }
  });
  float begin[TILES_N][2];
#pragma unroll
  for (int j = 0; j < TILES_N; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int n = column0 + j * 8 + lane % 4 * 2 + e, k = (block * SUPERS + super) * BUNDLE_OUT + n;
      begin[j][e] = BIAS && n < BUNDLE_OUT && k < run.results ? widened(run.bias[k]) : 0.0f;
    }
  // Where this lane reads the pixels of a product: 16 pixels of one piece, and of the next.
  u32 from[TILES_M];
#pragma unroll
  for (int i = 0; i < TILES_M; i++) {
    const int m = rows + i * 16 + lane % 16, p = m < TILE ? m : 0;
    from[i] = tile_pixel_at(p) + super * BUNDLE_IN * 2;
  }
  const u32 half_of_lane = lane >= 16;

  int now = 0;
#pragma unroll 1
  for (int t = first; t < run.tiles; t += shares) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    const int ahead = t + (STAGES - 1) * shares;
    if (ahead < run.tiles) load_window(run, block, tile_at(run, ahead), base + (now == 0 ? STAGES - 1 : now - 1) * WINDOW_BYTES);
    copy_commit();
    const u32 window = base + now * WINDOW_BYTES;
    now = now + 1 == STAGES ? 0 : now + 1;
    const Tile at_tile = tile_at(run, t);
    each<PHASES>([&](auto phase) {
      constexpr int f = phase.value;
      bool nan = false;
#if IN_TURNS
      // The text has the products and results of half of a warp's pixels.
      constexpr int PART = TILES_M / 2;
#pragma unroll 1
      for (int turn = 0; turn < 2; turn++) {
#else
      constexpr int PART = TILES_M, turn = 0;
      {
#endif
        float sums[PART][TILES_N][4];
#pragma unroll
        for (int i = 0; i < PART; i++)
#pragma unroll
          for (int j = 0; j < TILES_N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j][e] = begin[j][e % 2];
        // NOTE: kept for all tiles, the addresses of all pieces would take more registers than there are.
        u32 pixels[PART], high = half_of_lane;
#pragma unroll
        for (int i = 0; i < PART; i++) {
          pixels[i] = window + (turn ? from[(PART + i) % TILES_M] : from[i]);
          compute_anew(pixels[i]);
        }
        compute_anew(high);
#pragma unroll
        for (int k = 0; k < steps_of(f); k++) {
          const u32 piece = high ? piece_at(f, 2 * k + 1) : piece_at(f, 2 * k);
          // A piece that the filter has not is zeros: its weights are, and must not meet a NaN.
          const bool none = !exists(f, 2 * k + 1) && high;
#pragma unroll
          for (int i = 0; i < PART; i++) {
            u32 a[4];
            load_tiles<false>(a, none ? base + ZERO : piece + pixels[i]);
#pragma unroll
            for (int j = 0; j < TILES_N; j++)
              multiply(Element(), sums[i][j], a, by[steps_before(f) + k][j][0], by[steps_before(f) + k][j][1]);
          }
        }
        if (f > 0 && turn == 0) __syncthreads(); // the last phase's results have left
#pragma unroll
        for (int i = 0; i < PART; i++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int m = rows + (turn * PART + i) * 16 + half * 8 + lane / 4;
#pragma unroll
            for (int j = 0; j < TILES_N; j++) {
              const int column = column0 + j * 8 + lane % 4 * 2;
              float x = sums[i][j][half * 2], y = sums[i][j][half * 2 + 1];
              if (!RESIDUAL) x = activate(x), y = activate(y);
              if (REPAIR) nan |= x != x || y != y;
              if (m >= TILE || column >= BUNDLE_OUT) continue;
              Staged *const to = (Staged *)(memory + STAGED + m * STAGED_PITCH) + super * BUNDLE_OUT + column;
              const Pack<Staged, 2> v = narrowed(Staged(), x, y);
              if (BUNDLE_OUT % 2 == 0) {
                *(Pack<Staged, 2> *)to = v;
              } else {
                to[0] = v.v[0];
                if (column + 1 < BUNDLE_OUT) to[1] = v.v[1];
              }
            }
          }
      }
      bool any_nan = false;
      if (REPAIR) any_nan = __syncthreads_or(nan);
      else __syncthreads();
      leave<f>(run, memory, block, at_tile, any_nan);
    });
  }
  copy_wait<0>();
}
} // namespace @SYM@_scope
} // namespace ts_mma
