namespace ts_mma {
namespace ts_mmawrwsum_fp8e4m3_s1__sm_90a_golden_scope {
enum : int { GEMM = 0 };
enum : int { FWD = 1 };
enum : int { BWD = 2 };
enum : int { WRW = 3 };
enum : int { KIND = 3 };
enum : int { OUT_VECTOR = 8 };
enum : int { THREADS = 256 };
enum : bool { WHOLE = false };
enum : bool { DEEP = false };
enum : bool { BIAS = false };
enum : bool { RESIDUAL = false };
enum : bool { SCALED = false };
enum : bool { BETA = false };
typedef fp8e4m3 Element;
typedef fp8e4m3 ElementB;
typedef fp8e4m3 Out;
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


// Adds the parts of the sums over k, always in the same order, and finishes the results.
extern "C" __global__ void __launch_bounds__(THREADS) ts_mmawrwsum_fp8e4m3_s1__sm_90a_golden(TS_PARAMETERS) {
  Results run = {TS_RUN};
  wait_previous();
  constexpr int N = OUT_VECTOR < 4 ? OUT_VECTOR : 4;
  const int quads = run.pitch / 4;
  const i64 at = (i64)blockIdx.x * THREADS + threadIdx.x, slab = (i64)run.layers * run.rows * quads;
  if (at >= slab) return;
  const int line = (int)(at / quads), col = (int)(at - (i64)line * quads) * 4;
  const int layer = (u32)line / (u32)run.rows, row = line - layer * run.rows;
  typedef Pack<Sum, 4> Sums;
  const Sums *from = (const Sums *)run.partial + at;
  Sums sum = from[0];
#pragma unroll 8
  for (int s = 1; s < run.parts; s++) {
    const Sums v = from[s * slab];
#pragma unroll
    for (int q = 0; q < 4; q++) sum.v[q] += v.v[q];
  }
  const int phase = divided(layer, run.groups_m, run.groups_s), group = layer - phase * run.groups;
  const Phase ph = run.phase_of(phase);
  const int place = run.place_of_row(row, ph);
  if (place == NOWHERE) return;
#pragma unroll
  for (int e = 0; e < 4; e += N) {
    Sum v[N];
#pragma unroll
    for (int q = 0; q < N; q++) v[q] = sum.v[e + q];
    run.finish(v, place, col + e, group);
  }
  if constexpr (KIND == BWD) {
    if (run.no_number) {
#pragma unroll 1
      for (int e = 0; e < 4; e++) run.repair(place, row, col + e, group, ph);
    }
  }
}
} // namespace ts_mmawrwsum_fp8e4m3_s1__sm_90a_golden_scope
} // namespace ts_mma
