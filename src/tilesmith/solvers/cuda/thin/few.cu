namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
// Eight pixels are K pieces of 8 elements, whatever K is, and their results N pieces. A thread has eight pixels at a
// time, and the filter in its registers.

// The words of eight pixels, of which `left` exist.
TS_MMA_DEVICE void load_pixels(u32 (&x)[4 * K], const Element *from, int left) {
  if (left >= 8) {
#pragma unroll
    for (int i = 0; i < K; i++) {
      const Pack<u32, 4> v = ((const Pack<u32, 4> *)from)[i];
#pragma unroll
      for (int e = 0; e < 4; e++) x[i * 4 + e] = v.v[e];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4 * K; i++) {
      x[i] = i * 2 < left * K ? ((const u16 *)from)[i * 2] : 0;
      if (i * 2 + 1 < left * K) x[i] |= (u32)((const u16 *)from)[i * 2 + 1] << 16;
    }
  }
}

// Eight neighbouring results, of which `left` exist.
TS_MMA_DEVICE void store_piece(Out *to, const float (&x)[8], int left) {
  constexpr int EACH = 16 / (int)sizeof(Out);
#pragma unroll
  for (int i = 0; i < 8; i += EACH) {
    Pack<Pack<Out, 2>, EACH / 2> v;
#pragma unroll
    for (int e = 0; e < EACH; e += 2) v.v[e / 2] = narrowed(Out(), x[i + e], x[i + e + 1]);
    if (left >= i + EACH) {
      *(Pack<Pack<Out, 2>, EACH / 2> *)(to + i) = v;
    } else {
#pragma unroll
      for (int e = 0; e < EACH; e++)
        if (i + e < left) to[i + e] = v.v[e / 2].v[e % 2];
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  const i64 groups = (rows + 7) / 8, stride = (i64)gridDim.x * THREADS, first = (i64)blockIdx.x * THREADS + threadIdx.x;
  const auto left_at = [&](i64 group) {
    const i64 left = rows - group * 8;
    return left > 8 ? 8 : left > 0 ? (int)left : 0;
  };
  wait_previous();
  if (first >= groups) return;
  u32 next[4 * K];
  load_pixels(next, a + first * (8 * K), left_at(first));
  float filter[K][N], biases[N];
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int k = 0; k < K; k++) filter[k][n] = widened(b[k * b_row + n * b_column]);
    biases[n] = BIAS ? widened(bias[n]) : 0.0f;
  }
  const float factor = (float)alpha;
#pragma unroll 1
  for (i64 group = first; group < groups; group += stride) {
    const int left = left_at(group);
    u32 x[4 * K];
#pragma unroll
    for (int i = 0; i < 4 * K; i++) x[i] = next[i];
    load_pixels(next, a + (group + stride) * (8 * K), left_at(group + stride));
#pragma unroll
    for (int i = 0; i < N; i++) {
      float sums[8];
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const int pixel = (i * 8 + e) / N, n = (i * 8 + e) % N;
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < K; k++) {
          const int at = pixel * K + k;
          sum = fmaf(widened(Element{(u16)(x[at / 2] >> at % 2 * 16)}), filter[k][n], sum);
        }
        if constexpr (SCALED) sum *= factor;
        if constexpr (BIAS) sum += biases[n];
        sums[e] = activate(sum);
      }
      store_piece(out + group * 8 * N + i * 8, sums, left * N - i * 8);
    }
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
