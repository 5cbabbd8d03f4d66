namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

constexpr int CHUNK = 16 / sizeof(Element); // elements of 16 bytes: what shared memory is counted in
static_assert(THREADS == WARPS_M * WARPS_N * 32 && WARP_M * WARPS_M == BLOCK_M && WARP_N * WARPS_N == BLOCK_N,
              "warps share the tile");

// The taps of a phase in one axis: how many, where the first lies, and the way to the next.
struct AxisTaps {
  int count, at, at_step, index, index_step;
};
// Backward data: those taps r for which phase + pad - r * dilation is a multiple of the stride.
TS_MMA_DEVICE AxisTaps axis_taps(int filter, int stride, u32 stride_m, u32 stride_s, int pad, int dilation, int phase) {
  if (KIND != BWD) return {filter, -pad, dilation, 0, 1};
  AxisTaps taps = {0, 0, 0, 0, 0};
  int at = divided(phase + pad, stride_m, stride_s), left = phase + pad - at * stride;
  const int down = divided(dilation, stride_m, stride_s), rest = dilation - down * stride;
#pragma unroll 1
  for (int r = 0; r < filter; r++) {
    if (left == 0) {
      if (taps.count == 0) taps.at = at, taps.index = r;
      if (taps.count == 1) taps.at_step = at - taps.at, taps.index_step = r - taps.index;
      taps.count++;
    }
    at -= down, left -= rest;
    if (left < 0) at--, left += stride;
  }
  return taps;
}

TS_MMA_DEVICE bool lies_inside(int d, int h, int w, int size_d, int size_h, int size_w) {
  const bool flat = (u32)h < (u32)size_h && (u32)w < (u32)size_w;
  return DEEP ? flat && (u32)d < (u32)size_d : flat && d >= 0;
}

// How the threads share the copying of one operand's tile: lines of rows (BY_K) or of k, in chunks.
template <bool BY_K, int EXTENT, int VECTOR> struct Copies {
  static constexpr bool BY_LINE = BY_K;
  static constexpr int CHUNKS = (BY_K ? BLOCK_K : EXTENT) / CHUNK;
  static constexpr int LINES = BY_K ? EXTENT : BLOCK_K;
  static constexpr int STEP = THREADS / CHUNKS;
  static constexpr int COUNT = (LINES + STEP - 1) / STEP;
  static constexpr bool EVEN = LINES % STEP == 0, ALIKE = STEP % 16 == 0; // a thread's lines are swizzled alike
  static constexpr int PARTS = CHUNK / VECTOR;
  static constexpr int PART_BYTES = VECTOR * sizeof(Element);
  static constexpr bool ASYNC = PART_BYTES >= 4; // there is no asynchronous copy of fewer
  static constexpr int BYTES = EXTENT * BLOCK_K * sizeof(Element);
  static constexpr int HELD = ASYNC ? 1 : COUNT;
  static_assert(THREADS % CHUNKS == 0 && STEP > 0, "a thread's chunk of a line must not change");

  // Where chunk `at` of a line lies: lines that are read together differ in their banks.
  TS_MMA_DEVICE int swizzled(int line, int at) {
    constexpr int span = CHUNKS < 8 ? CHUNKS : 8;
    if constexpr (EXACT && !BY_K)
      return at; // which are all of one line
    else if constexpr (BY_K || sizeof(Element) == 2)
      return at ^ (line / (8 / span) & (span - 1)); // 8 lines of a chunk
    else if constexpr (sizeof(Element) == 4)
      return at ^ (line / (8 / span) & (span / 2 - 1)) * 2; // 4 lines of two chunks
    else if constexpr (span == 8)
      return at ^ (line >> 1 & 6 | line & 1); // lines 0, 1, 4, 5, 8, 9, 12, 13 of a chunk, or those 2 below
    else
      return at ^ (line / 4 & (span - 1));
  }
  int first, across; // of the thread: its first line, and in all of them its first element
  u32 to;            // where that lies in a stage
  TS_MMA_METHOD Copies() {
    first = threadIdx.x / CHUNKS, across = threadIdx.x % CHUNKS * CHUNK;
    if (!EXACT) kept(first), kept(across); // else registers cost more than what is computed again
    to = (first * CHUNKS + swizzled(first, across / CHUNK)) * 16;
    kept(to);
  }
  TS_MMA_METHOD int line(int i) const { return first + i * STEP; }
  TS_MMA_METHOD u32 place(int i) const {
    return ALIKE ? to + i * STEP * CHUNKS * 16 : (line(i) * CHUNKS + swizzled(line(i), across / CHUNK)) * 16;
  }
  TS_MMA_METHOD bool exists(int i) const { return EVEN || line(i) < LINES; }

  // Bytes of a part of which `valid` elements (any number, also below 0) exist.
  TS_MMA_DEVICE int bytes_of(int valid) { return smaller(larger(valid, 0), VECTOR) * (int)sizeof(Element); }
  // Part `part` of chunk `i`: `bytes` from `from`, and zeros.
  TS_MMA_METHOD void take(u32 tile, u32 (&held)[HELD][4], int i, int part, const void *from, int bytes) const {
    if constexpr (ASYNC) {
      if (exists(i)) copy_async<PART_BYTES>(tile + place(i) + part * PART_BYTES, from, bytes);
    } else {
      const int at = part * PART_BYTES;
      u32 v = 0;
      if (exists(i) && bytes > 0) v = load_bits<PART_BYTES>(from, bytes);
      if (at % 4)
        held[i][at / 4] |= v << at % 4 * 8;
      else
        held[i][at / 4] = v;
    }
  }
  TS_MMA_METHOD void put(u32 tile, const u32 (&held)[HELD][4]) const {
    if constexpr (!ASYNC) {
#pragma unroll
      for (int i = 0; i < COUNT; i++)
        if (exists(i)) shared_store16(tile + place(i), held[i][0], held[i][1], held[i][2], held[i][3]);
    }
  }
};
typedef Copies<A_BY_K, BLOCK_M, A_VECTOR> CopiesA;
typedef Copies<B_BY_K, BLOCK_N, B_VECTOR> CopiesB;
static_assert(STAGE_BYTES == CopiesA::BYTES + CopiesB::BYTES && TABLE_OFFSET >= STAGES * STAGE_BYTES,
              "the tables lie behind the ring");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  Results run = {TS_RUN};
  extern __shared__ __align__(128) unsigned char memory[];
  const u32 ring = shared_address(memory);
  // Behind the ring: of every tap its offset in both operands, and its position relative to a pixel's.
  int *const tap_a = (int *)(memory + TABLE_OFFSET), *const tap_b = tap_a + run.taps_most,
             *const tap_d = tap_b + run.taps_most, *const tap_h = tap_d + run.taps_most,
             *const tap_w = tap_h + run.taps_most;
  int *const row_place = tap_a + 5 * run.taps_most;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp / WARPS_N, warp_n = warp % WARPS_N;

  // --- which tile: parts of k outermost, then layers; groups of rows of tiles share columns in the L2 cache ---
  int tile = blockIdx.x;
  const int layer_part = divided(tile, run.tiles_m, run.tiles_s);
  const int part = divided(layer_part, run.layers_m, run.layers_s), layer = layer_part - part * run.layers;
  tile -= layer_part * run.tiles;
  const int band = divided(tile, run.walk_n_m, run.walk_n_s), first_m = band * run.walk;
  const int band_m = smaller(run.rows_of_tiles - first_m, run.walk), in_band = tile - band * run.walk_n;
  const int tile_n = (u32)in_band / (u32)band_m;
  const int m0 = (first_m + in_band - tile_n * band_m) * BLOCK_M, n0 = tile_n * BLOCK_N;
  const int phase = divided(layer, run.groups_m, run.groups_s), group = layer - phase * run.groups;
  const Phase ph = run.phase_of(phase);
  const CopiesA copies_a;
  const CopiesB copies_b;
  const Element *a = run.a_base + group * run.a_group;
  const ElementB *b = run.b_base + group * run.b_group;
  kept(a);
  if (KIND != WRW) kept(b);

  // --- the taps of this phase ---
  int taps = 1, taps_h = 1, taps_w = 1;
  if constexpr (KIND == GEMM) {
    if (threadIdx.x == 0) tap_a[0] = tap_b[0] = tap_d[0] = tap_h[0] = tap_w[0] = 0;
  } else {
#define TS_AXIS_TAPS(axis)                                                                                             \
  axis_taps(run.filter_##axis, run.stride_##axis, run.stride_##axis##_m, run.stride_##axis##_s, run.pad_##axis,        \
            run.dilation_##axis, ph.axis)
    const AxisTaps td = DEEP ? TS_AXIS_TAPS(d) : AxisTaps{1, 0, 0, 0, 0};
    const AxisTaps th = TS_AXIS_TAPS(h), tw = TS_AXIS_TAPS(w);
    taps = td.count * th.count * tw.count, taps_h = th.count, taps_w = tw.count;
#pragma unroll 1
    for (int i = threadIdx.x; i < taps; i += THREADS) {
      const int line = (u32)i / (u32)tw.count, s = i - line * tw.count;
      const int t = DEEP ? (u32)line / (u32)th.count : 0, r = line - t * th.count;
      const int d = td.at + t * td.at_step, h = th.at + r * th.at_step, w = tw.at + s * tw.at_step;
      tap_d[i] = d, tap_h[i] = h, tap_w[i] = w;
      tap_a[i] = d * run.in_d + h * run.in_h + w * run.in_w;
      tap_b[i] = (td.index + t * td.index_step) * run.filter_step_d +
                 (th.index + r * th.index_step) * run.filter_step_h +
                 (tw.index + s * tw.index_step) * run.filter_step_w;
    }
  }
  __syncthreads();
  wait_previous();

  // --- what does not change along k ---
  // Rows and columns beyond the last are copies of the last: their results are not stored.
  // A by k: rows are pixels. `a_seen` has a bit for each tap that lies in the image.
  int a_place[A_BY_K ? CopiesA::COUNT : 1], a_d[A_BY_K ? CopiesA::COUNT : 1], a_h[A_BY_K ? CopiesA::COUNT : 1],
      a_w[A_BY_K ? CopiesA::COUNT : 1];
  u32 a_seen[A_BY_K ? CopiesA::COUNT : 1];
  if constexpr (A_BY_K) {
#pragma unroll
    for (int i = 0; i < CopiesA::COUNT; i++) {
      const int row = smaller(m0 + copies_a.line(i), run.rows - 1);
      if constexpr (KIND == GEMM) {
        a_place[i] = row * run.a_line;
      } else {
        const Pixel p = run.pixel_of(row);
        const int step_d = KIND == FWD ? run.stride_d : 1, step_h = KIND == FWD ? run.stride_h : 1;
        const int step_w = KIND == FWD ? run.stride_w : 1;
        a_d[i] = p.d * step_d, a_h[i] = p.h * step_h, a_w[i] = p.w * step_w;
        a_place[i] = p.n * run.in_n + a_d[i] * run.in_d + a_h[i] * run.in_h + a_w[i] * run.in_w;
      }
      a_seen[i] = 0;
    }
    if constexpr (KIND != GEMM && !COMPARE && !INSIDE) {
      // Axis by axis: a tap lies in the image when it does so in each.
      auto see = [&](const int *tap, int step, int end, const auto &at, int size, auto taken) {
        u32 found[CopiesA::COUNT] = {};
#pragma unroll 1
        for (int t = 0; t < smaller(end, taps); t += step) {
          const int by = tap[t];
#pragma unroll
          for (int i = 0; i < CopiesA::COUNT; i++)
            if ((u32)(at[i] + by) < (u32)size) found[i] |= taken(i) << t;
        }
#pragma unroll
        for (int i = 0; i < CopiesA::COUNT; i++) a_seen[i] = found[i];
      };
      see(tap_w, 1, taps_w, a_w, run.size_w, [](int) { return 1u; });
      see(tap_h, taps_w, taps_h * taps_w, a_h, run.size_h, [&](int i) { return a_seen[i]; });
      if constexpr (DEEP) see(tap_d, taps_h * taps_w, taps, a_d, run.size_d, [&](int i) { return a_seen[i]; });
    }
  }
  // B by k: lines are columns.
  int b_line_place[B_BY_K ? CopiesB::COUNT : 1];
  if constexpr (B_BY_K) {
#pragma unroll
    for (int i = 0; i < CopiesB::COUNT; i++)
      b_line_place[i] = smaller(n0 + copies_b.line(i), run.cols - 1) * run.b_line;
  }
  // B of backward weights: columns are (tap, channel).
  int b_tap[KIND == WRW ? CopiesB::PARTS : 1], b_place[KIND == WRW ? CopiesB::PARTS : 1],
      b_bytes[KIND == WRW ? CopiesB::PARTS : 1];
  if constexpr (KIND == WRW) {
#pragma unroll
    for (int e = 0; e < CopiesB::PARTS; e++) {
      const int col = n0 + copies_b.across + e * B_VECTOR;
      const int tap = run.tap_of(col), c = col - tap * run.padded;
      b_tap[e] = tap < taps ? tap : 0;
      b_bytes[e] = CopiesB::bytes_of(tap < taps ? run.channels - c : 0);
      b_place[e] = tap_a[b_tap[e]] + c * run.b_channel;
    }
  }

  u32 held_a[CopiesA::HELD][4], held_b[CopiesB::HELD][4];

  auto load_a = [&](int step, u32 stage) {
    if constexpr (A_BY_K) {
#pragma unroll
      for (int e = 0; e < CopiesA::PARTS; e++) {
        const int k = step * BLOCK_K + copies_a.across + e * A_VECTOR;
        const int tap = KIND == GEMM ? 0 : run.tap_of(k), c = k - tap * run.padded;
        const int known = tap < taps ? tap : 0, bytes = CopiesA::bytes_of(tap < taps ? run.channels - c : 0);
        const int offset = KIND == GEMM ? c * run.a_channel : tap_a[known] + c * run.a_channel;
        int d = 0, h = 0, w = 0;
        if constexpr (COMPARE) d = tap_d[known], h = tap_h[known], w = tap_w[known];
#pragma unroll
        for (int i = 0; i < CopiesA::COUNT; i++) {
          bool seen = true;
          if constexpr (COMPARE)
            seen = lies_inside(a_d[i] + d, a_h[i] + h, a_w[i] + w, run.size_d, run.size_h, run.size_w);
          else if constexpr (!INSIDE)
            seen = a_seen[i] >> known & 1;
          copies_a.take(stage, held_a, i, e, a + (a_place[i] + offset), seen ? bytes : 0);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < CopiesA::COUNT; i++) {
        const int k = step * BLOCK_K + copies_a.line(i);
        int place = k * run.a_channel;
        bool exists = k < run.length;
        if constexpr (KIND == WRW) {
          if constexpr (LINEAR) {
            place = k * run.dy_n;
          } else {
            const Pixel p = run.pixel_of(k);
            place = p.n * run.dy_n + p.d * run.dy_d + p.h * run.dy_h + p.w * run.dy_w;
          }
        }
#pragma unroll
        for (int e = 0; e < CopiesA::PARTS; e++) {
          const int row = m0 + copies_a.across + e * A_VECTOR;
          copies_a.take(stage, held_a, i, e, a + (place + row * run.a_line),
                        exists ? CopiesA::bytes_of(run.rows - row) : 0);
        }
      }
    }
  };
  auto load_b = [&](int step, u32 stage) {
    if constexpr (B_BY_K) {
#pragma unroll
      for (int e = 0; e < CopiesB::PARTS; e++) {
        const int k = step * BLOCK_K + copies_b.across + e * B_VECTOR;
        const int tap = KIND == GEMM ? 0 : run.tap_of(k), c = k - tap * run.padded;
        const int known = tap < taps ? tap : 0, bytes = CopiesB::bytes_of(tap < taps ? run.channels - c : 0);
        const int offset = KIND == GEMM ? c * run.b_channel : tap_b[known] + c * run.b_channel;
#pragma unroll
        for (int i = 0; i < CopiesB::COUNT; i++)
          copies_b.take(stage, held_b, i, e, b + (b_line_place[i] + offset), bytes);
      }
    } else if constexpr (KIND == WRW) {
      int place[CopiesB::COUNT], d[CopiesB::COUNT], h[CopiesB::COUNT], w[CopiesB::COUNT];
#pragma unroll
      for (int i = 0; i < CopiesB::COUNT; i++) {
        const int k = step * BLOCK_K + copies_b.line(i);
        const Pixel p = run.pixel_of(k);
        d[i] = k < run.length ? p.d * run.stride_d : -(1 << 30), h[i] = p.h * run.stride_h, w[i] = p.w * run.stride_w;
        place[i] = p.n * run.in_n + p.d * run.stride_d * run.in_d + h[i] * run.in_h + w[i] * run.in_w;
      }
#pragma unroll
      for (int e = 0; e < CopiesB::PARTS; e++) {
        const int t = b_tap[e], td = tap_d[t], th = tap_h[t], tw = tap_w[t];
#pragma unroll
        for (int i = 0; i < CopiesB::COUNT; i++) {
          bool seen;
          if constexpr (INSIDE)
            seen = d[i] >= 0;
          else
            seen = lies_inside(d[i] + td, h[i] + th, w[i] + tw, run.size_d, run.size_h, run.size_w);
          copies_b.take(stage, held_b, i, e, b + (place[i] + b_place[e]), seen ? b_bytes[e] : 0);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < CopiesB::COUNT; i++) {
        const int k = step * BLOCK_K + copies_b.line(i);
        const int tap = KIND == GEMM ? 0 : run.tap_of(k), c = k - tap * run.padded;
        const bool exists = tap < taps && c < run.channels;
        const int place = KIND == GEMM ? c * run.b_channel : tap_b[tap < taps ? tap : 0] + c * run.b_channel;
#pragma unroll
        for (int e = 0; e < CopiesB::PARTS; e++) {
          const int col = n0 + copies_b.across + e * B_VECTOR;
          copies_b.take(stage, held_b, i, e, b + (place + col * run.b_line),
                        exists ? CopiesB::bytes_of(run.cols - col) : 0);
        }
      }
    }
  };

  // --- what comes before, amid and behind the sums, which another text makes ---
  auto put = [&](u32 stage) {
    copies_a.put(stage, held_a);
    copies_b.put(stage + CopiesA::BYTES, held_b);
  };

  // The steps of this part of k.
  auto steps_of_part = [&] {
    const int all_steps = ((KIND == WRW ? run.length : taps * run.padded) + BLOCK_K - 1) / BLOCK_K;
    if (!PARTIAL) return Steps{0, all_steps};
    // all_steps * part / parts, and the same of the next part
    const int each = divided(all_steps, run.parts_m, run.parts_s), over = all_steps - each * run.parts;
    const int begin = part * each + divided(part * over, run.parts_m, run.parts_s);
    return Steps{begin, (part + 1) * each + divided((part + 1) * over, run.parts_m, run.parts_s)};
  };
  // Where the tile's rows go. The ring is free then.
  auto end_ring = [&] {
    copy_wait<0>();
#pragma unroll 1
    for (int i = threadIdx.x; i < BLOCK_M; i += THREADS) row_place[i] = run.place_of_row(m0 + i, ph);
    __syncthreads();
  };
  // The last that a block does.
  auto repair = [&] {
    if constexpr (KIND == BWD && !PARTIAL) {
      if (__syncthreads_or(run.no_number)) {
#pragma unroll 1
        for (int i = threadIdx.x; i < BLOCK_M * BLOCK_N; i += THREADS)
          run.repair(row_place[i / BLOCK_N], m0 + i / BLOCK_N, n0 + i % BLOCK_N, group, ph);
      }
    }
  };

