namespace ts_mma {
namespace ts_mmawrwsum_fp8e4m3_s1__sm_90a_golden_scope {
constexpr int GEMM = 0;
constexpr int FWD = 1;
constexpr int BWD = 2;
constexpr int WRW = 3;
constexpr int KIND = 3;
constexpr int OUT_VECTOR = 8;
constexpr bool WHOLE = false;
constexpr bool DEEP = false;
constexpr bool BIAS = false;
constexpr bool RESIDUAL = false;
constexpr bool SCALED = false;
constexpr bool BETA = false;
typedef fp8e4m3 Element;
typedef fp8e4m3 ElementB;
typedef fp8e4m3 Out;
typedef float Sum;
typedef float Value;
constexpr int NOWHERE = -1;

// What the kernel and the sum of its parts share: pixels, taps, and how a sum becomes a result.
struct Pixel {
  int n, d, h, w;
};
struct Phase {
  int d, h, w;
};
// The taps of a phase in one axis: how many, where the first lies, and the way to the next.
struct AxisTaps {
  int count, at, at_step, index, index_step;
};

TS_MMA_DEVICE Pixel pixel_of(int i, const Divisor &w, const Divisor &h, const Divisor &d) {
  Pixel p;
  const int line = divided(i, w), plane = divided(line, h);
  p.w = i - line * w.d, p.h = line - plane * h.d;
  p.n = plane, p.d = 0;
  if (DEEP) {
    p.n = divided(plane, d);
    p.d = plane - p.n * d.d;
  }
  return p;
}

TS_MMA_DEVICE bool lies_inside(int d, int h, int w, int size_d, int size_h, int size_w) {
  const bool flat = (u32)h < (u32)size_h && (u32)w < (u32)size_w;
  return DEEP ? flat && (u32)d < (u32)size_d : flat && d >= 0;
}

// Backward data: those taps r for which phase + pad - r * dilation is a multiple of the stride.
TS_MMA_DEVICE AxisTaps axis_taps(int filter, int stride, int pad, int dilation, int phase) {
  if (KIND != BWD) return {filter, -pad, dilation, 0, 1};
  int first = 0;
  while (first < filter && (phase + pad - first * dilation) % stride) first++;
  int period = 1;
  while (period * dilation % stride) period++;
  const int count = first < filter ? (filter - 1 - first) / period + 1 : 0;
  return {count, (phase + pad - first * dilation) / stride, -(period * dilation / stride), first, period};
}

TS_MMA_DEVICE float activate(float v) {
  return v;
}


// Adds the parts of the sums over k, always in the same order, and finishes the results.
extern "C" __global__ void __launch_bounds__(256) ts_mmawrwsum_fp8e4m3_s1__sm_90a_golden(const Element *a_base, const ElementB *b_base, Out *out_base, const Out *bias_base, const Out *residual_base, Sum *partial, double p_alpha, double p_beta, i64 p_a_group, i64 p_b_group, i64 p_out_group, i64 p_rows, i64 p_cols, i64 p_groups, i64 p_tiles_m, i64 p_tiles_n, i64 p_walk, i64 p_parts, i64 p_channels, i64 p_pitch, i64 p_length, i64 p_taps_most, i64 p_a_line, i64 p_a_channel, i64 p_b_line, i64 p_b_channel, i64 p_out_line, i64 p_out_channel, i64 p_bias_group, i64 p_in_n, i64 p_in_d, i64 p_in_h, i64 p_in_w, i64 p_dy_n, i64 p_dy_d, i64 p_dy_h, i64 p_dy_w, i64 p_out_n, i64 p_out_d, i64 p_out_h, i64 p_out_w, i64 p_filter_step_d, i64 p_filter_step_h, i64 p_filter_step_w, i64 p_out_tap_d, i64 p_out_tap_h, i64 p_out_tap_w, i64 p_filter_d, i64 p_filter_h, i64 p_filter_w, i64 p_stride_d, i64 p_stride_h, i64 p_stride_w, i64 p_pad_d, i64 p_pad_h, i64 p_pad_w, i64 p_dilation_d, i64 p_dilation_h, i64 p_dilation_w, i64 p_size_d, i64 p_size_h, i64 p_size_w, i64 p_out_size_d, i64 p_out_size_h, i64 p_out_size_w, i64 p_phase_d, i64 p_phase_h, i64 p_phase_w, i64 p_padded, i64 p_padded_m, i64 p_padded_s, i64 p_base_d, i64 p_base_d_m, i64 p_base_d_s, i64 p_base_h, i64 p_base_h_m, i64 p_base_h_s, i64 p_base_w, i64 p_base_w_m, i64 p_base_w_s) {
  const Value alpha = (Value)p_alpha;
  const Value beta = (Value)p_beta;
  const i64 a_group = (i64)p_a_group;
  const i64 b_group = (i64)p_b_group;
  const i64 out_group = (i64)p_out_group;
  const int rows = (int)p_rows;
  const int cols = (int)p_cols;
  const int groups = (int)p_groups;
  const int tiles_m = (int)p_tiles_m;
  const int tiles_n = (int)p_tiles_n;
  const int walk = (int)p_walk;
  const int parts = (int)p_parts;
  const int channels = (int)p_channels;
  const int pitch = (int)p_pitch;
  const int length = (int)p_length;
  const int taps_most = (int)p_taps_most;
  const int a_line = (int)p_a_line;
  const int a_channel = (int)p_a_channel;
  const int b_line = (int)p_b_line;
  const int b_channel = (int)p_b_channel;
  const int out_line = (int)p_out_line;
  const int out_channel = (int)p_out_channel;
  const int bias_group = (int)p_bias_group;
  const int in_n = (int)p_in_n;
  const int in_d = (int)p_in_d;
  const int in_h = (int)p_in_h;
  const int in_w = (int)p_in_w;
  const int dy_n = (int)p_dy_n;
  const int dy_d = (int)p_dy_d;
  const int dy_h = (int)p_dy_h;
  const int dy_w = (int)p_dy_w;
  const int out_n = (int)p_out_n;
  const int out_d = (int)p_out_d;
  const int out_h = (int)p_out_h;
  const int out_w = (int)p_out_w;
  const int filter_step_d = (int)p_filter_step_d;
  const int filter_step_h = (int)p_filter_step_h;
  const int filter_step_w = (int)p_filter_step_w;
  const int out_tap_d = (int)p_out_tap_d;
  const int out_tap_h = (int)p_out_tap_h;
  const int out_tap_w = (int)p_out_tap_w;
  const int filter_d = (int)p_filter_d;
  const int filter_h = (int)p_filter_h;
  const int filter_w = (int)p_filter_w;
  const int stride_d = (int)p_stride_d;
  const int stride_h = (int)p_stride_h;
  const int stride_w = (int)p_stride_w;
  const int pad_d = (int)p_pad_d;
  const int pad_h = (int)p_pad_h;
  const int pad_w = (int)p_pad_w;
  const int dilation_d = (int)p_dilation_d;
  const int dilation_h = (int)p_dilation_h;
  const int dilation_w = (int)p_dilation_w;
  const int size_d = (int)p_size_d;
  const int size_h = (int)p_size_h;
  const int size_w = (int)p_size_w;
  const int out_size_d = (int)p_out_size_d;
  const int out_size_h = (int)p_out_size_h;
  const int out_size_w = (int)p_out_size_w;
  const int phase_d = (int)p_phase_d;
  const int phase_h = (int)p_phase_h;
  const int phase_w = (int)p_phase_w;
  const Divisor padded = {(int)p_padded, (u32)p_padded_m, (u32)p_padded_s};
  const Divisor base_d = {(int)p_base_d, (u32)p_base_d_m, (u32)p_base_d_s};
  const Divisor base_h = {(int)p_base_h, (u32)p_base_h_m, (u32)p_base_h_s};
  const Divisor base_w = {(int)p_base_w, (u32)p_base_w_m, (u32)p_base_w_s};
  (void)alpha; (void)beta; (void)a_group; (void)b_group; (void)out_group; (void)rows; (void)cols; (void)groups; (void)tiles_m; (void)tiles_n; (void)walk; (void)parts; (void)channels; (void)pitch; (void)length; (void)taps_most; (void)a_line; (void)a_channel; (void)b_line; (void)b_channel; (void)out_line; (void)out_channel; (void)bias_group; (void)in_n; (void)in_d; (void)in_h; (void)in_w; (void)dy_n; (void)dy_d; (void)dy_h; (void)dy_w; (void)out_n; (void)out_d; (void)out_h; (void)out_w; (void)filter_step_d; (void)filter_step_h; (void)filter_step_w; (void)out_tap_d; (void)out_tap_h; (void)out_tap_w; (void)filter_d; (void)filter_h; (void)filter_w; (void)stride_d; (void)stride_h; (void)stride_w; (void)pad_d; (void)pad_h; (void)pad_w; (void)dilation_d; (void)dilation_h; (void)dilation_w; (void)size_d; (void)size_h; (void)size_w; (void)out_size_d; (void)out_size_h; (void)out_size_w; (void)phase_d; (void)phase_h; (void)phase_w; (void)padded; (void)base_d; (void)base_h; (void)base_w;
  // --- results ---
  // The offset of a row's results, NOWHERE when the row has none.
  auto place_of_row = [&](int row, const Phase &ph) -> int {
    if (row >= rows) return NOWHERE;
    if constexpr (KIND == GEMM || KIND == WRW) {
      return row * out_line;
    } else {
      const Pixel p = pixel_of(row, base_w, base_h, base_d);
      const int d = p.d * (KIND == BWD ? stride_d : 1) + ph.d, h = p.h * (KIND == BWD ? stride_h : 1) + ph.h;
      const int w = p.w * (KIND == BWD ? stride_w : 1) + ph.w;
      if (KIND == BWD && (d >= out_size_d || h >= out_size_h || w >= out_size_w)) return NOWHERE;
      return p.n * out_n + d * out_d + h * out_h + w * out_w;
    }
  };
  // Stores the results of N neighbouring columns; `place` is that of the row.
  bool no_number = false;
  auto finish = [&](auto &sums, int place, int row, int col, int group, const Phase &ph) {
    constexpr int N = sizeof(sums) / sizeof(Sum);
    int c = col, offset = place;
    if constexpr (KIND == WRW) {
      const int tap = divided(col, padded);
      c = col - tap * padded.d;
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
  };
  // Backward data multiplies what lies outside dy by zeros, and 0 * Inf is no part of the definition: a result that
  // is no number is computed once more from the products that exist.
  auto repair = [&](int place, int row, int col, int group, const Phase &ph) {
    if (WHOLE || place == NOWHERE || col >= cols) return;
    const auto stored = widened(out_base[group * out_group + place + (i64)col * out_channel]);
    if (stored == stored) return;
    const Pixel p = pixel_of(row, base_w, base_h, base_d);
    const Element *const dy = a_base + group * a_group + (i64)p.n * in_n;
    const ElementB *const filter = b_base + group * b_group + (i64)col * b_line;
    Sum sum[1] = {0};
    for (int t = 0; t < filter_d; t++)
      for (int r = 0; r < filter_h; r++)
        for (int s = 0; s < filter_w; s++) {
          const int d = p.d * stride_d + ph.d + pad_d - t * dilation_d, h = p.h * stride_h + ph.h + pad_h - r * dilation_h;
          const int w = p.w * stride_w + ph.w + pad_w - s * dilation_w;
          if (d % stride_d || h % stride_h || w % stride_w) continue;
          if (d < 0 || h < 0 || w < 0 || d / stride_d >= size_d || h / stride_h >= size_h || w / stride_w >= size_w)
            continue;
          const Element *const from = dy + ((i64)(d / stride_d) * in_d + (i64)(h / stride_h) * in_h + (i64)(w / stride_w) * in_w);
          const ElementB *const by = filter + ((i64)t * filter_step_d + (i64)r * filter_step_h + (i64)s * filter_step_w);
          for (int c = 0; c < channels; c++)
            sum[0] = added_product(widened(from[(i64)c * a_channel]), widened(by[(i64)c * b_channel]), sum[0]);
        }
    finish(sum, place, row, col, group, ph);
  };

  wait_previous();
  constexpr int N = OUT_VECTOR < 4 ? OUT_VECTOR : 4;
  const int layers = groups * phase_d * phase_h * phase_w, quads = pitch / 4;
  const i64 at = (i64)blockIdx.x * 256 + threadIdx.x, slab = (i64)layers * rows * quads;
  if (at >= slab) return;
  const int line = (int)(at / quads), col = (int)(at - (i64)line * quads) * 4, layer = line / rows, row = line - layer * rows;
  typedef Pack<Sum, 4> Sums;
  const Sums *from = (const Sums *)partial + at;
  Sums sum = from[0];
#pragma unroll 8
  for (int s = 1; s < parts; s++) {
    const Sums v = from[s * slab];
#pragma unroll
    for (int q = 0; q < 4; q++) sum.v[q] += v.v[q];
  }
  const int group = layer % groups, phase = layer / groups;
  const Phase ph = {phase / (phase_h * phase_w), phase / phase_w % phase_h, phase % phase_w};
  const int place = place_of_row(row, ph);
  if (place == NOWHERE) return;
#pragma unroll
  for (int e = 0; e < 4; e += N) {
    Sum v[N];
#pragma unroll
    for (int q = 0; q < N; q++) v[q] = sum.v[e + q];
    finish(v, place, row, col + e, group, ph);
  }
  if constexpr (KIND == BWD) {
    if (no_number) {
#pragma unroll 1
      for (int e = 0; e < 4; e++) repair(place, row, col + e, group, ph);
    }
  }
}
} // namespace ts_mmawrwsum_fp8e4m3_s1__sm_90a_golden_scope
} // namespace ts_mma
