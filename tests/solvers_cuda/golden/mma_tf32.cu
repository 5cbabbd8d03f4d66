namespace ts_mma {
namespace ts_mmagemm_tf32fp32_32x64x32x1x2x2__sm_90a_golden_scope {
enum : int { GEMM = 0 };
enum : int { FWD = 1 };
enum : int { BWD = 2 };
enum : int { WRW = 3 };
enum : int { KIND = 0 };
enum : int { OUT_VECTOR = 4 };
enum : int { THREADS = 64 };
enum : int { BLOCK_M = 32 };
enum : int { BLOCK_N = 64 };
enum : int { BLOCK_K = 32 };
enum : int { WARPS_M = 1 };
enum : int { WARPS_N = 2 };
enum : int { WARP_M = 32 };
enum : int { WARP_N = 32 };
enum : int { STAGES = 2 };
enum : int { STAGE_BYTES = 12288 };
enum : int { TABLE_OFFSET = 24576 };
enum : int { MIN_BLOCKS = 2 };
enum : int { A_VECTOR = 4 };
enum : int { B_VECTOR = 4 };
enum : bool { WHOLE = false };
enum : bool { DEEP = false };
enum : bool { BIAS = false };
enum : bool { RESIDUAL = false };
enum : bool { SCALED = false };
enum : bool { BETA = false };
enum : bool { A_BY_K = false };
enum : bool { B_BY_K = false };
enum : bool { COMPARE = false };
enum : bool { INSIDE = true };
enum : bool { LINEAR = false };
enum : bool { PARTIAL = true };
enum : bool { EXACT = false };
enum : bool { WIDENED = false };
typedef tf32 Element;
typedef tf32 ElementB;
typedef float Out;
typedef float Sum;
typedef float Value;
struct Run {
  const Element * a_base;
  const ElementB * b_base;
  Out * out_base;
  const Out * bias_base;
  const Out * residual_base;
  Sum * partial;
  Value alpha;
  Value beta;
  i64 a_group;
  i64 b_group;
  i64 out_group;
  int rows;
  int cols;
  int rows_of_tiles;
  int walk;
  int channels;
  int pitch;
  int length;
  int taps_most;
  int a_line;
  int a_channel;
  int b_line;
  int b_channel;
  int out_line;
  int out_channel;
  int bias_group;
  int in_n;
  int in_d;
  int in_h;
  int in_w;
  int dy_n;
  int dy_d;
  int dy_h;
  int dy_w;
  int out_n;
  int out_d;
  int out_h;
  int out_w;
  int filter_step_d;
  int filter_step_h;
  int filter_step_w;
  int out_tap_d;
  int out_tap_h;
  int out_tap_w;
  int filter_d;
  int filter_h;
  int filter_w;
  int pad_d;
  int pad_h;
  int pad_w;
  int dilation_d;
  int dilation_h;
  int dilation_w;
  int size_d;
  int size_h;
  int size_w;
  int out_size_d;
  int out_size_h;
  int out_size_w;
  int padded;
  u32 padded_m;
  u32 padded_s;
  int tiles;
  u32 tiles_m;
  u32 tiles_s;
  int layers;
  u32 layers_m;
  u32 layers_s;
  int groups;
  u32 groups_m;
  u32 groups_s;
  int walk_n;
  u32 walk_n_m;
  u32 walk_n_s;
  int parts;
  u32 parts_m;
  u32 parts_s;
  int base_d;
  u32 base_d_m;
  u32 base_d_s;
  int base_h;
  u32 base_h_m;
  u32 base_h_s;
  int base_w;
  u32 base_w_m;
  u32 base_w_s;
  int phase_d;
  u32 phase_d_m;
  u32 phase_d_s;
  int phase_h;
  u32 phase_h_m;
  u32 phase_h_s;
  int phase_w;
  u32 phase_w_m;
  u32 phase_w_s;
  int stride_d;
  u32 stride_d_m;
  u32 stride_d_s;
  int stride_h;
  u32 stride_h_m;
  u32 stride_h_s;
  int stride_w;
  u32 stride_w_m;
  u32 stride_w_s;
};
#undef TS_PARAMETERS
#define TS_PARAMETERS const Element * a_base, const ElementB * b_base, Out * out_base, const Out * bias_base, const Out * residual_base, Sum * partial, double alpha, double beta, long long a_group, long long b_group, long long out_group, long long rows, long long cols, long long rows_of_tiles, long long walk, long long channels, long long pitch, long long length, long long taps_most, long long a_line, long long a_channel, long long b_line, long long b_channel, long long out_line, long long out_channel, long long bias_group, long long in_n, long long in_d, long long in_h, long long in_w, long long dy_n, long long dy_d, long long dy_h, long long dy_w, long long out_n, long long out_d, long long out_h, long long out_w, long long filter_step_d, long long filter_step_h, long long filter_step_w, long long out_tap_d, long long out_tap_h, long long out_tap_w, long long filter_d, long long filter_h, long long filter_w, long long pad_d, long long pad_h, long long pad_w, long long dilation_d, long long dilation_h, long long dilation_w, long long size_d, long long size_h, long long size_w, long long out_size_d, long long out_size_h, long long out_size_w, long long padded, long long padded_m, long long padded_s, long long tiles, long long tiles_m, long long tiles_s, long long layers, long long layers_m, long long layers_s, long long groups, long long groups_m, long long groups_s, long long walk_n, long long walk_n_m, long long walk_n_s, long long parts, long long parts_m, long long parts_s, long long base_d, long long base_d_m, long long base_d_s, long long base_h, long long base_h_m, long long base_h_s, long long base_w, long long base_w_m, long long base_w_s, long long phase_d, long long phase_d_m, long long phase_d_s, long long phase_h, long long phase_h_m, long long phase_h_s, long long phase_w, long long phase_w_m, long long phase_w_s, long long stride_d, long long stride_d_m, long long stride_d_s, long long stride_h, long long stride_h_m, long long stride_h_s, long long stride_w, long long stride_w_m, long long stride_w_s
#undef TS_RUN
#define TS_RUN {a_base, b_base, out_base, bias_base, residual_base, partial, (Value)alpha, (Value)beta, (i64)a_group, (i64)b_group, (i64)out_group, (int)rows, (int)cols, (int)rows_of_tiles, (int)walk, (int)channels, (int)pitch, (int)length, (int)taps_most, (int)a_line, (int)a_channel, (int)b_line, (int)b_channel, (int)out_line, (int)out_channel, (int)bias_group, (int)in_n, (int)in_d, (int)in_h, (int)in_w, (int)dy_n, (int)dy_d, (int)dy_h, (int)dy_w, (int)out_n, (int)out_d, (int)out_h, (int)out_w, (int)filter_step_d, (int)filter_step_h, (int)filter_step_w, (int)out_tap_d, (int)out_tap_h, (int)out_tap_w, (int)filter_d, (int)filter_h, (int)filter_w, (int)pad_d, (int)pad_h, (int)pad_w, (int)dilation_d, (int)dilation_h, (int)dilation_w, (int)size_d, (int)size_h, (int)size_w, (int)out_size_d, (int)out_size_h, (int)out_size_w, (int)padded, (u32)padded_m, (u32)padded_s, (int)tiles, (u32)tiles_m, (u32)tiles_s, (int)layers, (u32)layers_m, (u32)layers_s, (int)groups, (u32)groups_m, (u32)groups_s, (int)walk_n, (u32)walk_n_m, (u32)walk_n_s, (int)parts, (u32)parts_m, (u32)parts_s, (int)base_d, (u32)base_d_m, (u32)base_d_s, (int)base_h, (u32)base_h_m, (u32)base_h_s, (int)base_w, (u32)base_w_m, (u32)base_w_s, (int)phase_d, (u32)phase_d_m, (u32)phase_d_s, (int)phase_h, (u32)phase_h_m, (u32)phase_h_s, (int)phase_w, (u32)phase_w_m, (u32)phase_w_s, (int)stride_d, (u32)stride_d_m, (u32)stride_d_s, (int)stride_h, (u32)stride_h_m, (u32)stride_h_s, (int)stride_w, (u32)stride_w_m, (u32)stride_w_s}
TS_MMA_DEVICE float activate(float v) {
  return v;
}

// The compiler shall keep `v` in a register: it would rather compute it again in each step.
template <typename T> TS_MMA_DEVICE void kept(T &v) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(v));
  else
    asm volatile("" : "+r"(v));
#endif
}

// What the kernel and the sum of its parts share: where pixels and results lie, and how a sum becomes a result.
enum : int { NOWHERE = -1 };
struct Pixel {
  int n, d, h, w;
};
struct Phase {
  int d, h, w;
};
// Steps of a block along k.
struct Steps {
  int begin, end;
};

struct Results : Run {
  bool no_number = false;

  TS_MMA_METHOD Pixel pixel_of(int i) const {
    Pixel p;
    const int line = divided(i, base_w_m, base_w_s), plane = divided(line, base_h_m, base_h_s);
    p.w = i - line * base_w, p.h = line - plane * base_h;
    p.n = plane, p.d = 0;
    if (DEEP) {
      p.n = divided(plane, base_d_m, base_d_s);
      p.d = plane - p.n * base_d;
    }
    return p;
  }
  // Along k (backward weights: columns) each tap has as many places as `padded` says.
  TS_MMA_METHOD int tap_of(int place) const { return divided(place, padded_m, padded_s); }
  TS_MMA_METHOD Phase phase_of(int phase) const {
    const int line = divided(phase, phase_w_m, phase_w_s), plane = divided(line, phase_h_m, phase_h_s);
    return {plane, line - plane * phase_h, phase - line * phase_w};
  }
  // The offset of a row's results, NOWHERE when the row has none.
  TS_MMA_METHOD int place_of_row(int row, const Phase &ph) const {
    if (row >= rows) return NOWHERE;
    if constexpr (KIND == GEMM || KIND == WRW) {
      return row * out_line;
    } else {
      const Pixel p = pixel_of(row);
      const int d = p.d * (KIND == BWD ? stride_d : 1) + ph.d, h = p.h * (KIND == BWD ? stride_h : 1) + ph.h;
      const int w = p.w * (KIND == BWD ? stride_w : 1) + ph.w;
      if (KIND == BWD && (d >= out_size_d || h >= out_size_h || w >= out_size_w)) return NOWHERE;
      return p.n * out_n + d * out_d + h * out_h + w * out_w;
    }
  }
  // Stores the sums over a part of k, of N neighbouring columns.
  template <int N> TS_MMA_METHOD void store_part(const Sum (&sums)[N], int layer_part, int row, int col) const {
    if (row < rows && col < pitch)
      *(Pack<Sum, N> *)(partial + (((i64)layer_part * rows + row) * pitch + col)) = *(const Pack<Sum, N> *)sums;
  }
  // Stores the results of N neighbouring columns; `place` is that of the row.
  template <int N> TS_MMA_METHOD void finish(const Sum (&sums)[N], int place, int col, int group) {
    int c = col, offset = place;
    if constexpr (KIND == WRW) {
      const int tap = tap_of(col);
      c = col - tap * padded;
      if (c >= channels || tap >= filter_d * filter_h * filter_w) return;
      const int s = tap % filter_w, r = tap / filter_w % filter_h, t = tap / filter_w / filter_h;
      offset += t * out_tap_d + r * out_tap_h + s * out_tap_w;
    } else if (c >= cols) {
      return;
    }
    const i64 at = group * out_group + offset + (i64)c * out_channel;
    Pack<Out, N> old, given, result;
    if constexpr (BETA) old = *(const Pack<Out, N> *)(out_base + at);
    if constexpr (RESIDUAL) given = *(const Pack<Out, N> *)(residual_base + at);
#pragma unroll
    for (int e = 0; e < N; e++) {
      Value v = sums[e];
      if constexpr (SCALED) v *= alpha;
      if constexpr (BETA) v = added_product(beta, widened(old.v[e]), v);
      if constexpr (BIAS) v += widened(bias_base[group * bias_group + c + e]);
      if constexpr (RESIDUAL) v += widened(given.v[e]);
      v = activate(v);
      if constexpr (KIND == BWD) no_number |= v != v;
      narrow(result.v[e], v);
    }
    *(Pack<Out, N> *)(out_base + at) = result;
  }
  // Backward data multiplies what lies outside dy by zeros, and 0 * Inf is no part of the definition: a result that
  // is no number is computed once more from the products that exist.
  TS_MMA_METHOD void repair(int place, int row, int col, int group, const Phase &ph) {
    if (WHOLE || place == NOWHERE || col >= cols) return;
    const auto stored = widened(out_base[group * out_group + place + (i64)col * out_channel]);
    if (stored == stored) return;
    const Pixel p = pixel_of(row);
    const Element *const dy = a_base + group * a_group + (i64)p.n * in_n;
    const ElementB *const filter = b_base + group * b_group + (i64)col * b_line;
    Sum sum[1] = {0};
    // The place in dy of what lies at `at` before the stride; NOWHERE if there is none.
    auto place_of = [](int at, int stride, u32 m, u32 s, int size) {
      const int found = divided(at, m, s);
      return at >= 0 && found * stride == at && found < size ? found : NOWHERE;
    };
#pragma unroll 1
    for (int t = 0; t < (DEEP ? filter_d : 1); t++)
#pragma unroll 1
      for (int r = 0; r < filter_h; r++)
#pragma unroll 1
        for (int s = 0; s < filter_w; s++) {
          const int w = place_of(p.w * stride_w + ph.w + pad_w - s * dilation_w, stride_w, stride_w_m, stride_w_s, size_w);
          const int h = place_of(p.h * stride_h + ph.h + pad_h - r * dilation_h, stride_h, stride_h_m, stride_h_s, size_h);
          const int d =
              DEEP ? place_of(p.d * stride_d + ph.d + pad_d - t * dilation_d, stride_d, stride_d_m, stride_d_s, size_d) : 0;
          if (d == NOWHERE || h == NOWHERE || w == NOWHERE) continue;
          const Element *const from = dy + ((i64)d * in_d + (i64)h * in_h + (i64)w * in_w);
          const ElementB *const by =
              filter + ((i64)t * filter_step_d + (i64)r * filter_step_h + (i64)s * filter_step_w);
#pragma unroll 1
          for (int c = 0; c < channels; c++)
            sum[0] = added_product(widened(from[(i64)c * a_channel]), widened(by[(i64)c * b_channel]), sum[0]);
        }
    finish(sum, place, col, group);
  }
};


enum : int { CHUNK = 16 / sizeof(Element) }; // elements of 16 bytes: what shared memory is counted in
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
  enum : bool { BY_LINE = BY_K };
  enum : int { CHUNKS = (BY_K ? BLOCK_K : EXTENT) / CHUNK };
  enum : int { LINES = BY_K ? EXTENT : BLOCK_K };
  enum : int { STEP = THREADS / CHUNKS };
  enum : int { COUNT = (LINES + STEP - 1) / STEP };
  enum : bool { EVEN = LINES % STEP == 0, ALIKE = STEP % 16 == 0 }; // a thread's lines are swizzled alike
  enum : int { PARTS = CHUNK / VECTOR };
  enum : int { PART_BYTES = VECTOR * sizeof(Element) };
  enum : bool { ASYNC = PART_BYTES >= 4 }; // there is no asynchronous copy of fewer
  enum : int { BYTES = EXTENT * BLOCK_K * sizeof(Element) };
  enum : int { HELD = ASYNC ? 1 : COUNT };
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

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) ts_mmagemm_tf32fp32_32x64x32x1x2x2__sm_90a_golden(TS_PARAMETERS) {
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

  // --- the sums, on tensor cores ---
  // Rows (columns) of a 16-wide tile of bytes that do not lie by k come in pairs of neighbours: see `settle`.
  constexpr bool A_PAIRED = sizeof(Element) == 1 && !A_BY_K, B_PAIRED = sizeof(Element) == 1 && !B_BY_K;
  constexpr int TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;
  Sum sums[TILES_M][TILES_N][4];
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++) sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0;

  // Where this lane reads its part of a fragment (or points ldmatrix at), in bytes: a line, and in it a chunk, of which
  // a constant flips bits (tiles of a warp are powers of two).
  constexpr int SIZE = sizeof(Element), LINE_A = CopiesA::CHUNKS * 16, LINE_B = CopiesB::CHUNKS * 16;
  const int low = lane & 15, high = lane >> 4, mixed = (lane & 7) + high * 8, middle = lane >> 3 & 1;
  // Lines of bytes: the four k of a register, whose two halves two matrices hold.
  const int paired = high * 16 + (lane >> 1 & 3) * 4 + middle * 2 + (lane & 1);
  const int across = SIZE == 1 ? paired : lane & 3, word = SIZE == 4 ? (lane >> 2 & 3) * 4 : 0;
  const u32 line_a = (A_BY_K ? warp_m * WARP_M + low : SIZE == 2 ? mixed : across) * LINE_A;
  const u32 line_b = (B_BY_K ? warp_n * WARP_N + mixed : SIZE == 2 ? low : across) * LINE_B;
  u32 chunk_a, chunk_b;
  if constexpr (A_BY_K)
    chunk_a = CopiesA::swizzled(low, high) * 16;
  else if constexpr (SIZE == 2)
    chunk_a = CopiesA::swizzled(mixed, warp_m * (WARP_M / 8) + middle) * 16;
  else
    chunk_a = CopiesA::swizzled(across, warp_m * (WARP_M * SIZE / 16) + (SIZE == 4 ? high : 0)) * 16 + word;
  if constexpr (B_BY_K)
    chunk_b = CopiesB::swizzled(mixed, middle) * 16;
  else if constexpr (SIZE == 2)
    chunk_b = CopiesB::swizzled(low, warp_n * (WARP_N / 8) + high) * 16;
  else
    chunk_b = CopiesB::swizzled(across, warp_n * (WARP_N * SIZE / 16) + (SIZE == 4 ? high : 0)) * 16 + word;
  auto fetch = [&](u32 tile_a, u32 tile_b, int k, u32 (&fa)[TILES_M][4], u32 (&fb)[TILES_N / 2][4]) {
    const u32 at_a = tile_a + line_a, at_b = tile_b + line_b;
#pragma unroll
    for (int i = 0; i < TILES_M; i++) {
      if constexpr (A_BY_K || SIZE != 4) {
        load_tiles<!A_BY_K>(fa[i], at_a + (A_BY_K ? i * 16 : k * (32 / SIZE)) * LINE_A + (chunk_a ^ (A_BY_K ? k * 32 : i * 16 * SIZE)));
      } else {
        const u32 from = at_a + k * 8 * LINE_A, chunk = chunk_a ^ i * 64;
        fa[i][0] = shared_word(from + chunk), fa[i][1] = shared_word(from + (chunk ^ 32));
        fa[i][2] = shared_word(from + 4 * LINE_A + chunk), fa[i][3] = shared_word(from + 4 * LINE_A + (chunk ^ 32));
      }
    }
#pragma unroll
    for (int j = 0; j < TILES_N / 2; j++) {
      if constexpr (B_BY_K || SIZE != 4) {
        load_tiles<!B_BY_K>(fb[j], at_b + (B_BY_K ? j * 16 : k * (32 / SIZE)) * LINE_B + (chunk_b ^ (B_BY_K ? k * 32 : j * 16 * SIZE)));
      } else {
        const u32 from = at_b + k * 8 * LINE_B, chunk = chunk_b ^ j * 64;
        fb[j][0] = shared_word(from + chunk), fb[j][1] = shared_word(from + 4 * LINE_B + chunk);
        fb[j][2] = shared_word(from + (chunk ^ 32)), fb[j][3] = shared_word(from + 4 * LINE_B + (chunk ^ 32));
      }
    }
  };
  // Makes operands of what was fetched. Bytes that came transposed: a register holds two k of two neighbouring lines,
  // and shall hold four k of one; the even one takes the first half of the tile, the odd one the second.
  auto settle = [&](auto &fa, auto &fb) {
#pragma unroll
    for (int i = 0; i < TILES_M; i++) {
      u32(&f)[4] = fa[i];
      if constexpr (A_PAIRED) {
        const u32 a = f[0], b = f[1], c = f[2], d = f[3];
        f[0] = __byte_perm(a, b, 0x6420), f[1] = __byte_perm(a, b, 0x7531);
        f[2] = __byte_perm(c, d, 0x6420), f[3] = __byte_perm(c, d, 0x7531);
      }
#pragma unroll
      for (int e = 0; e < 4 && SIZE == 4; e++) round_to_tf32(f[e]);
    }
#pragma unroll
    for (int j = 0; j < TILES_N / 2; j++) {
      u32(&f)[4] = fb[j];
      if constexpr (B_PAIRED) {
        const u32 a = f[0], b = f[1], c = f[2], d = f[3];
        f[0] = __byte_perm(a, b, 0x6420), f[1] = __byte_perm(c, d, 0x6420);
        f[2] = __byte_perm(a, b, 0x7531), f[3] = __byte_perm(c, d, 0x7531);
      }
#pragma unroll
      for (int e = 0; e < 4 && SIZE == 4; e++) round_to_tf32(f[e]);
    }
  };
  auto multiply_all = [&](auto &sums, auto &fa, auto &fb) {
    settle(fa, fb);
    if constexpr (!WIDENED) {
#pragma unroll
      for (int i = 0; i < TILES_M; i++)
#pragma unroll
        for (int j = 0; j < TILES_N; j++)
          multiply(Element(), sums[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    } else {
      // fp8 is multiplied in fp16, half a step at a time: of the four k in a register, the first pair goes to the one
      // half of an instruction's k and the second to the other, for both operands alike.
#pragma unroll
      for (int half = 0; half < 2; half++) {
        u32 wide[TILES_M][4];
#pragma unroll
        for (int i = 0; i < TILES_M; i++) {
          widen_pairs(Element(), fa[i][half * 2], wide[i][0], wide[i][2]);
          widen_pairs(Element(), fa[i][half * 2 + 1], wide[i][1], wide[i][3]);
        }
#pragma unroll
        for (int j = 0; j < TILES_N; j++) {
          u32 b0, b1;
          widen_pairs(ElementB(), fb[j / 2][j % 2 * 2 + half], b0, b1);
#pragma unroll
          for (int i = 0; i < TILES_M; i++) multiply(fp16(), sums[i][j], wide[i], b0, b1);
        }
      }
    }
  };

  const Steps steps = steps_of_part();
  // The first fragments of the next stage are fetched before the last products of this one.
  constexpr int PRODUCTS = BLOCK_K * sizeof(Element) / 32; // a product takes 32 bytes of a line
  u32 fragments_a[2][TILES_M][4], fragments_b[2][TILES_N / 2][4];
  int now = 0, next = 0;
  // The ring is filled by the loop too, so that copies are there once.
#pragma unroll 1
  for (int step = steps.begin - (STAGES - 1); step < steps.end; step++) {
    const u32 to = ring + next * STAGE_BYTES;
    next = next + 1 == STAGES ? 0 : next + 1;
    const bool more = step + STAGES - 1 < steps.end;
    // All warps are past the products whose operands lay at `to`: they met at the end of the last step.
    if (more) {
      load_a(step + STAGES - 1, to);
      load_b(step + STAGES - 1, to + CopiesA::BYTES);
    }
    copy_commit();
    if (step < steps.begin) {
      if (more) put(to);
      if (step < steps.begin - 1) continue;
      copy_wait<STAGES - 2>();
      __syncthreads();
      fetch(ring, ring + CopiesA::BYTES, 0, fragments_a[0], fragments_b[0]);
      continue;
    }
    const u32 here = ring + now * STAGE_BYTES;
    now = now + 1 == STAGES ? 0 : now + 1;
#pragma unroll
    for (int k = 0; k < PRODUCTS; k++) {
      constexpr int ODD = PRODUCTS % 2;
      const int from = ODD ? 0 : k % 2, ahead = ODD ? 0 : (k + 1) % 2;
      if (k == PRODUCTS - 1) {
        if (more) put(to);
        copy_wait<STAGES - 2>();
        __syncthreads();
      }
      if constexpr (ODD) {
        multiply_all(sums, fragments_a[0], fragments_b[0]);
        const u32 there = ring + now * STAGE_BYTES;
        fetch(there, there + CopiesA::BYTES, 0, fragments_a[0], fragments_b[0]);
      } else {
        const u32 there = k == PRODUCTS - 1 ? ring + now * STAGE_BYTES : here;
        fetch(there, there + CopiesA::BYTES, (k + 1) % PRODUCTS, fragments_a[ahead], fragments_b[ahead]);
        multiply_all(sums, fragments_a[from], fragments_b[from]);
      }
    }
  }
  end_ring();
  // Sums of 16 rows at a time pass through the warp's own shared memory, so that lanes store neighbouring columns.
  constexpr int PITCH = WARP_N + 8;
  constexpr int N = PARTIAL ? 4 : OUT_VECTOR;
  static_assert(WARPS_M * WARPS_N * 16 * PITCH * 4 <= TABLE_OFFSET, "the tables lie behind the sums on their way out");
  const u32 staged = ring + warp * 16 * PITCH * 4;
  const Sum *const mine = (const Sum *)(memory + warp * 16 * PITCH * 4);
  // The stores alone need `i` as a constant.
#pragma unroll 1
  for (int i = 0; i < TILES_M; i++) {
    const u32 first = staged + (A_PAIRED ? lane / 4 * 2 : lane / 4) * PITCH * 4;
    constexpr int BELOW = (A_PAIRED ? 1 : 8) * PITCH * 4;
#pragma unroll
    for (int known = 0; known < TILES_M; known++) {
      if (i != known) continue;
#pragma unroll
      for (int j = 0; j < TILES_N; j += 2) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const u32 to = first + (B_PAIRED ? j * 8 + lane % 4 * 4 + e * 2 : (j + e) * 8 + lane % 4 * 2) * 4;
          const int u = B_PAIRED ? j : j + e, v = B_PAIRED ? j + 1 : j + e, p = B_PAIRED ? e : 0, q = B_PAIRED ? e : 1;
          shared_store8(to, sums[known][u][p], sums[known][v][q]);
          shared_store8(to + BELOW, sums[known][u][p + 2], sums[known][v][q + 2]);
        }
      }
    }
    __syncwarp();
#pragma unroll (N < 4 ? 4 : 2)
    for (int at = lane; at < 16 * WARP_N / N; at += 32) {
      const int r = at / (WARP_N / N), c = at % (WARP_N / N) * N;
      const int in_tile = warp_m * WARP_M + i * 16 + r, row = m0 + in_tile, col = n0 + warp_n * WARP_N + c;
      Sum v[N];
#pragma unroll
      for (int e = 0; e < N; e++) v[e] = mine[r * PITCH + c + e];
      if constexpr (PARTIAL)
        run.store_part(v, layer_part, row, col);
      else if (row_place[in_tile] != NOWHERE)
        run.finish(v, row_place[in_tile], col, group);
    }
    __syncwarp();
  }
  repair();
}
} // namespace ts_mmagemm_tf32fp32_32x64x32x1x2x2__sm_90a_golden_scope
} // namespace ts_mma
