// How results leave a block, and what both kernels have in common.
constexpr int ROW = SUPERS * BUNDLE_OUT;
// A residual is added to sums that are not rounded yet.
template <bool WIDE, typename T> struct Kept {
  typedef T Type;
};
template <typename T> struct Kept<true, T> {
  typedef float Type;
};
typedef Kept<RESIDUAL, Out>::Type Staged;

template <int I> struct Number {
  static constexpr int value = I;
};
// Calls `body` with each number below COUNT, as a constant.
template <int COUNT, int I = 0, typename Body> TS_MMA_DEVICE void each(Body body) {
  if constexpr (I < COUNT) {
    body(Number<I>());
    each<COUNT, I + 1>(body);
  }
}

// A result that is no number, summed anew over the products that the definition has: not those of a bundle's other
// groups, and not those beyond the edge of dy.
TS_MMA_DEVICE float exact(const Run &run, int n, int h, int w, int result) {
  const int group = result / GROUP_OUT, k = result - group * GROUP_OUT;
  float sum = 0.0f;
#pragma unroll 1
  for (int r = 0; r < FILTER_H; r++)
#pragma unroll 1
    for (int s = 0; s < FILTER_W; s++) {
      int y, x;
      if (BACK) {
        y = h + PAD_H - r * DILATION_H, x = w + PAD_W - s * DILATION_W;
        if (y < 0 || x < 0 || y % STRIDE_H || x % STRIDE_W) continue;
        y /= STRIDE_H, x /= STRIDE_W;
        if (y >= run.in_h || x >= run.in_w) continue;
      } else {
        y = h * STRIDE_H - PAD_H + r * DILATION_H, x = w * STRIDE_W - PAD_W + s * DILATION_W;
      }
      const bool inside = y >= 0 && x >= 0 && y < run.in_h && x < run.in_w;
      const Element *from = run.x + n * run.in_n + (i64)y * run.in_row + (i64)x * run.in_column + group * GROUP_IN;
      const Element *by = run.w + r * run.w_h + s * run.w_w;
#pragma unroll 1
      for (int c = 0; c < GROUP_IN; c++) {
        const int row = group * (BACK ? GROUP_IN : GROUP_OUT) + (BACK ? c : k);
        sum = fmaf(inside ? widened(from[c]) : 0.0f, widened(by[row * run.w_row + (BACK ? k : c)]), sum);
      }
    }
  return sum;
}

// Stores the rows of a phase of a tile, which lie in shared memory; computes anew what is no number.
template <int PHASE>
TS_MMA_DEVICE void leave(const Run &run, const unsigned char *memory, int block, const Tile &at_tile, bool any_nan) {
  constexpr int phase_h = PHASE / PHASES_W, phase_w = PHASE % PHASES_W;
  constexpr int VECTORS = ROW / VECTOR;
#if SHORT
  constexpr int EACH = (TILE * VECTORS + THREADS - 1) / THREADS;
#pragma unroll(EACH < 4 ? 1 : 4) // no thread would reach four copies
#else
#pragma unroll 4
#endif
  for (int i = threadIdx.x; i < TILE * VECTORS; i += THREADS) {
    const int m = i / VECTORS, c = i % VECTORS * VECTOR, k = block * ROW + c;
    const int h = (at_tile.h + m / TILE_W) * PHASES_H + phase_h, w = (at_tile.w + m % TILE_W) * PHASES_W + phase_w;
    if (h >= run.out_h || w >= run.out_w || k >= run.results) continue;
    const i64 at = at_tile.n * run.out_n + (i64)h * run.out_row + (i64)w * run.out_column + k;
    const Staged *const staged = (const Staged *)(memory + STAGED + m * STAGED_PITCH) + c;
    Pack<Out, VECTOR> v;
    if constexpr (RESIDUAL) {
      const Pack<Out, VECTOR> added = *(const Pack<Out, VECTOR> *)(run.residual + at);
#pragma unroll
      for (int e = 0; e < VECTOR; e++) narrow(v.v[e], activate(widened(staged[e]) + widened(added.v[e])));
    } else {
      v = *(const Pack<Out, VECTOR> *)staged;
    }
    *(Pack<Out, VECTOR> *)(run.out + at) = v;
  }
  if (REPAIR && any_nan) {
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < TILE * ROW; i += THREADS) {
      const int m = i / ROW, k = block * ROW + i % ROW;
      const int h = (at_tile.h + m / TILE_W) * PHASES_H + phase_h, w = (at_tile.w + m % TILE_W) * PHASES_W + phase_w;
      if (h >= run.out_h || w >= run.out_w || k >= run.results) continue;
      const i64 at = at_tile.n * run.out_n + (i64)h * run.out_row + (i64)w * run.out_column + k;
      const float found = widened(run.out[at]);
      if (found == found) continue;
      float v = exact(run, at_tile.n, h, w, k);
      if (BIAS) v += widened(run.bias[k]);
      if (RESIDUAL) v += widened(run.residual[at]);
      narrow(run.out[at], activate(v));
    }
  }
}
