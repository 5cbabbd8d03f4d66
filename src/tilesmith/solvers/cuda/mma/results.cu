// What the kernel and the sum of its parts share: where pixels and results lie, and how a sum becomes a result.
constexpr int NOWHERE = -1;
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
