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
constexpr bool NEIGHBOURS = PIECES % 2 == 0; // both pieces of a step are of one tap
// Whether a piece exists, and where it lies from a pixel's first one in shared memory.
TS_MMA_CONSTANT bool exists(int phase, int piece) { return tap_first(phase) + piece / PIECES < tap_first(phase + 1); }
TS_MMA_CONSTANT int piece_at(int phase, int piece) {
  if (!exists(phase, piece)) return 0;
  const int tap = tap_first(phase) + piece / PIECES;
  return pixel_at(tap_h(tap), tap_w(tap)) + piece % PIECES * 16;
}

#if COPIED
// The filter comes by copies of pairs of neighbouring elements to shared memory that is free before the first result:
// of each register's two weights (forward), or of two results and one channel, of which each of two lanes has one.
constexpr int TAPS = FILTER_H * FILTER_W, WARPS = SUPERS * PARTS_N; // which have different weights
constexpr int ROOM_FROM = (STAGES - 1) * WINDOW_BYTES, SLOT = WARPS * 128, PARTS = PIECES * TILES_N;
constexpr int FITTING = (SHARED_BYTES - ROOM_FROM) / (TAPS * SLOT), AT_ONCE = FITTING < PARTS ? FITTING : PARTS;
static_assert(AT_ONCE > 0, "a piece's weights of all taps fit");

// Copies this lane's pair for each tap of a piece and 8 results.
TS_MMA_DEVICE void copy_weights(const Run &run, int group0, int channel, int column, bool any, u32 to) {
  const int lane = threadIdx.x % 32, odd = BACK ? lane / 4 % 2 : 0;
  const int result = column + lane / 4 - odd, of = result / GROUP_OUT, group = group0 + of;
  const int c = channel + lane % 4 * 2 + odd - of * GROUP_IN, k = result - of * GROUP_OUT;
  const bool there = any && result < BUNDLE_OUT && group < run.groups && c >= 0 && c < GROUP_IN;
  const int row = group * (BACK ? GROUP_IN : GROUP_OUT) + (BACK ? c : k);
  const Element *line = run.w + (there ? row * (int)run.w_row + (BACK ? k : c) : 0);
  to += BACK ? (lane / 8 * 4 + lane % 4) * 8 + odd * 4 : lane * 4;
#pragma unroll 1
  for (int r = 0; r < FILTER_H; r++, line += run.w_h) {
    const Element *from = line;
#pragma unroll 4
    for (int s = 0; s < FILTER_W; s++, from += run.w_w, to += SLOT) copy_async<4>(to, from, there ? 4 : 0);
  }
}
#else
// Where a lane finds its two channels of a piece for one result, at the first tap, and which it takes: those of other
// groups of the bundle are zeros. There is no branch, so that many loads are under way.
struct Weights {
  int low, high;
  u32 taken; // for __byte_perm: bytes of both, and the zeros above the first one's
};
TS_MMA_DEVICE Weights weights_of(const Run &run, int group0, int channel, int column) {
  const int of = column / GROUP_OUT, c = channel - of * GROUP_IN, k = column - of * GROUP_OUT, group = group0 + of;
  const bool any = column < BUNDLE_OUT && group < run.groups;
  const bool low = any && c >= 0 && c < GROUP_IN, high = any && c + 1 >= 0 && c + 1 < GROUP_IN;
  const int row = group * (BACK ? GROUP_IN : GROUP_OUT) + (BACK ? c : k);
  const int at = row * (int)run.w_row + (BACK ? k : c), next = at + (BACK ? (int)run.w_row : 1);
  u32 a = low ? at : 0, b = high ? next : 0;
  compute_anew(a), compute_anew(b); // NOTE: or the parts of an index would be added up anew for each weight
  return {(int)a, (int)b, (low ? 0x10u : 0x22u) | (high ? 0x5400u : 0x2200u)};
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 base = shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = warp % PARTS_N, super = warp / PARTS_N % SUPERS;
  const int rows = WARPS_M == 1 ? 0 : warp / (PARTS_N * SUPERS) * TILES_M * 16;
  const int block = blockIdx.x % run.blocks, share = blockIdx.x / run.blocks, shares = gridDim.x / run.blocks;
  const int column0 = part * TILES_N * 8, group0 = (block * SUPERS + super) * (BUNDLE_IN / GROUP_IN);

  launch_next();
  wait_previous();
  const int first = share;
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++) {
    if (first + s * shares < run.tiles) load_window(run, block, tile_at(run, first + s * shares), base + s * WINDOW_BYTES);
    copy_commit();
  }

  // The filter, as the second operands of all products.
  u32 by[STEPS][TILES_N][2] = {};
#if COPIED
  const u32 room = base + ROOM_FROM + warp % WARPS * 128;
#pragma unroll 1
  for (int first_part = 0; first_part < PARTS; first_part += AT_ONCE) {
#pragma unroll 1
    for (int i = warp / WARPS; i < AT_ONCE; i += WARPS_M) {
      const int p = first_part + i;
      copy_weights(run, group0, p / TILES_N * 8, column0 + p % TILES_N * 8, p < PARTS, room + i * TAPS * SLOT);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    each<PARTS>([&](auto part) {
      constexpr int p = part.value, q = p / TILES_N, j = p % TILES_N;
      if (AT_ONCE < PARTS && first_part != p / AT_ONCE * AT_ONCE) return;
      each<PHASES>([&](auto phase) {
        constexpr int f = phase.value;
#pragma unroll
        for (int tap = tap_first(f); tap < tap_first(f + 1); tap++) {
          const int piece = (tap - tap_first(f)) * PIECES + q;
          const u32 from = room + (p % AT_ONCE * TAPS + filter_h(tap) * FILTER_W + filter_w(tap)) * SLOT;
          u32 &weights = by[steps_before(f) + piece / 2][j][piece % 2];
          if (BACK) {
            const u32 at = from + (lane / 8 * 4 + lane % 4) * 8;
            weights = __byte_perm(shared_word(at), shared_word(at + 4), lane / 4 % 2 ? 0x7632 : 0x5410);
          } else {
            weights = shared_word(from + lane * 4);
          }
        }
      });
    });
    __syncthreads(); // what they lay in is free
  }
#else
#pragma unroll
  for (int q = 0; q < PIECES; q++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++) {
      const Weights of = weights_of(run, group0, q * 8 + lane % 4 * 2, column0 + j * 8 + lane / 4);
      each<PHASES>([&](auto phase) {
        constexpr int f = phase.value;
#pragma unroll
        for (int tap = tap_first(f); tap < tap_first(f + 1); tap++) {
          const int piece = (tap - tap_first(f)) * PIECES + q;
          const int at = (filter_h(tap) * FILTER_W + filter_w(tap)) * (BACK ? GROUP_OUT : GROUP_IN);
          const int offset = DENSE ? at : filter_h(tap) * (int)run.w_h + filter_w(tap) * (int)run.w_w;
          const Element low = run.w[of.low + offset], high = run.w[of.high + offset];
          by[steps_before(f) + piece / 2][j][piece % 2] = __byte_perm(low.bits, high.bits, of.taken);
          // NOTE: without an end now and then, the compiler has so many loads under way that registers run out.
          if (((q * TILES_N + j) * tap_first(PHASES) + tap) % 16 == 15) hold_loads();
        }
      });
    }
#endif
  if (threadIdx.x < 4) *(u32 *)(memory + ZERO + threadIdx.x * 4) = 0;
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
#pragma unroll 1
    for (int f = 0; f < PHASES; f++) {
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
          pixels[i] = window + (turn ? from[(PART + i) % TILES_M] : from[i]) + (NEIGHBOURS && high ? 16 : 0);
          compute_anew(pixels[i]);
        }
        compute_anew(high);
        one_of<PHASES>(f, [&](auto phase) {
          constexpr int p = phase.value;
#pragma unroll
          for (int k = 0; k < steps_of(p); k++) {
            const u32 piece = high && !NEIGHBOURS ? piece_at(p, 2 * k + 1) : piece_at(p, 2 * k);
            // A piece that the filter has not is zeros: its weights are, and must not meet a NaN.
            const bool none = !exists(p, 2 * k + 1) && high;
#pragma unroll
            for (int i = 0; i < PART; i++) {
              u32 a[4];
              load_tiles<false>(a, none ? base + ZERO : piece + pixels[i]);
#pragma unroll
              for (int j = 0; j < TILES_N; j++)
                multiply(Element(), sums[i][j], a, by[steps_before(p) + k][j][0], by[steps_before(p) + k][j][1]);
            }
          }
        });
        if (f > 0 && turn == 0) __syncthreads(); // the last phase's results have left
#pragma unroll
        for (int i = 0; i < PART; i++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int at = (turn * PART + i) * 16 + half * 8, m = rows + at + lane / 4;
            const bool tail = (WARPS_M - 1) * TILES_M * 16 + at + 8 > TILE; // of the last warp, at least
#pragma unroll
            for (int j = 0; j < TILES_N; j++) {
              const int column = column0 + j * 8 + lane % 4 * 2;
              float x = sums[i][j][half * 2], y = sums[i][j][half * 2 + 1];
              if (!LATE) x = activate(x), y = activate(y);
              if (REPAIR) nan |= x != x || y != y;
              if (tail && m >= TILE || column >= BUNDLE_OUT) continue;
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
      leave(run, memory, block, f, at_tile, any_nan);
    }
  }
  copy_wait<0>();
}
} // namespace @SYM@_scope
} // namespace ts_mma
