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
  int groups;
  int tiles_m;
  int tiles_n;
  int walk;
  int parts;
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
  int stride_d;
  int stride_h;
  int stride_w;
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
  int phase_d;
  int phase_h;
  int phase_w;
  int padded;
  u32 padded_m;
  u32 padded_s;
  int base_d;
  u32 base_d_m;
  u32 base_d_s;
  int base_h;
  u32 base_h_m;
  u32 base_h_s;
  int base_w;
  u32 base_w_m;
  u32 base_w_s;
};
#undef TS_PARAMETERS
#define TS_PARAMETERS const Element * a_base, const ElementB * b_base, Out * out_base, const Out * bias_base, const Out * residual_base, Sum * partial, double alpha, double beta, long long a_group, long long b_group, long long out_group, long long rows, long long cols, long long groups, long long tiles_m, long long tiles_n, long long walk, long long parts, long long channels, long long pitch, long long length, long long taps_most, long long a_line, long long a_channel, long long b_line, long long b_channel, long long out_line, long long out_channel, long long bias_group, long long in_n, long long in_d, long long in_h, long long in_w, long long dy_n, long long dy_d, long long dy_h, long long dy_w, long long out_n, long long out_d, long long out_h, long long out_w, long long filter_step_d, long long filter_step_h, long long filter_step_w, long long out_tap_d, long long out_tap_h, long long out_tap_w, long long filter_d, long long filter_h, long long filter_w, long long stride_d, long long stride_h, long long stride_w, long long pad_d, long long pad_h, long long pad_w, long long dilation_d, long long dilation_h, long long dilation_w, long long size_d, long long size_h, long long size_w, long long out_size_d, long long out_size_h, long long out_size_w, long long phase_d, long long phase_h, long long phase_w, long long padded, long long padded_m, long long padded_s, long long base_d, long long base_d_m, long long base_d_s, long long base_h, long long base_h_m, long long base_h_s, long long base_w, long long base_w_m, long long base_w_s
#undef TS_RUN
#define TS_RUN {a_base, b_base, out_base, bias_base, residual_base, partial, (Value)alpha, (Value)beta, (i64)a_group, (i64)b_group, (i64)out_group, (int)rows, (int)cols, (int)groups, (int)tiles_m, (int)tiles_n, (int)walk, (int)parts, (int)channels, (int)pitch, (int)length, (int)taps_most, (int)a_line, (int)a_channel, (int)b_line, (int)b_channel, (int)out_line, (int)out_channel, (int)bias_group, (int)in_n, (int)in_d, (int)in_h, (int)in_w, (int)dy_n, (int)dy_d, (int)dy_h, (int)dy_w, (int)out_n, (int)out_d, (int)out_h, (int)out_w, (int)filter_step_d, (int)filter_step_h, (int)filter_step_w, (int)out_tap_d, (int)out_tap_h, (int)out_tap_w, (int)filter_d, (int)filter_h, (int)filter_w, (int)stride_d, (int)stride_h, (int)stride_w, (int)pad_d, (int)pad_h, (int)pad_w, (int)dilation_d, (int)dilation_h, (int)dilation_w, (int)size_d, (int)size_h, (int)size_w, (int)out_size_d, (int)out_size_h, (int)out_size_w, (int)phase_d, (int)phase_h, (int)phase_w, (int)padded, (u32)padded_m, (u32)padded_s, (int)base_d, (u32)base_d_m, (u32)base_d_s, (int)base_h, (u32)base_h_m, (u32)base_h_s, (int)base_w, (u32)base_w_m, (u32)base_w_s}
TS_MMA_DEVICE float activate(float v) {
  return v;
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
  TS_MMA_METHOD int layers() const { return groups * phase_d * phase_h * phase_w; }
  TS_MMA_METHOD Phase phase_of(int layer) const {
    const int phase = layer / groups;
    return {phase / (phase_h * phase_w), phase / phase_w % phase_h, phase % phase_w};
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
    for (int t = 0; t < filter_d; t++)
      for (int r = 0; r < filter_h; r++)
        for (int s = 0; s < filter_w; s++) {
          const int d = p.d * stride_d + ph.d + pad_d - t * dilation_d,
                    h = p.h * stride_h + ph.h + pad_h - r * dilation_h;
          const int w = p.w * stride_w + ph.w + pad_w - s * dilation_w;
          if (d % stride_d || h % stride_h || w % stride_w) continue;
          if (d < 0 || h < 0 || w < 0 || d / stride_d >= size_d || h / stride_h >= size_h || w / stride_w >= size_w)
            continue;
          const Element *const from =
              dy + ((i64)(d / stride_d) * in_d + (i64)(h / stride_h) * in_h + (i64)(w / stride_w) * in_w);
          const ElementB *const by =
              filter + ((i64)t * filter_step_d + (i64)r * filter_step_h + (i64)s * filter_step_w);
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
  const i64 at = (i64)blockIdx.x * THREADS + threadIdx.x, slab = (i64)run.layers() * run.rows * quads;
  if (at >= slab) return;
  const int line = (int)(at / quads), col = (int)(at - (i64)line * quads) * 4;
  const int layer = line / run.rows, row = line - layer * run.rows;
  typedef Pack<Sum, 4> Sums;
  const Sums *from = (const Sums *)run.partial + at;
  Sums sum = from[0];
#pragma unroll 8
  for (int s = 1; s < run.parts; s++) {
    const Sums v = from[s * slab];
#pragma unroll
    for (int q = 0; q < 4; q++) sum.v[q] += v.v[q];
  }
  const int group = layer % run.groups;
  const Phase ph = run.phase_of(layer);
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
