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

// Calls `body` with `which`, which is below COUNT, as a constant.
template <int COUNT, typename Body> TS_MMA_DEVICE void one_of(int which, Body body) {
  each<COUNT>([&](auto number) {
    if (COUNT == 1 || number.value == which) body(number);
  });
}

// A result that is no number, summed anew over the products that the definition has: not those of a bundle's other
// groups, and not those beyond the edge of dy.
TS_MMA_DEVICE float exact(const Run &run, const Tile &tile, int h, int w, int result) {
  const int group = result / GROUP_OUT, k = result - group * GROUP_OUT;
  const Element *const image = run.x + tile.n * run.in_n;
  float sum = 0.0f;
#pragma unroll 1
  for (int row = 0; row < FILTER_H; row++)
#pragma unroll 1
    for (int s = 0; s < FILTER_W; s++) {
      int y, x;
      const int r = DEEP ? row % PLANE_H : row, plane = DEEP ? source_plane(tile.d, row / PLANE_H) : 0;
      if (DEEP && BACK && (u32)plane >= (u32)run.in_d) continue;
      if (BACK) {
        y = h + PAD_H - r * DILATION_H, x = w + PAD_W - s * DILATION_W;
        if (y < 0 || x < 0 || y % STRIDE_H || x % STRIDE_W) continue;
        y /= STRIDE_H, x /= STRIDE_W;
        if (y >= run.in_h || x >= run.in_w) continue;
      } else {
        y = h * STRIDE_H - PAD_H + r * DILATION_H, x = w * STRIDE_W - PAD_W + s * DILATION_W;
      }
      bool inside = y >= 0 && x >= 0 && y < run.in_h && x < run.in_w;
      if (DEEP) inside = inside && (u32)plane < (u32)run.in_d;
      const int of_plane = DEEP ? plane * run.in_depth : 0;
      const Element *from = image + (inside ? of_plane + y * run.in_row + x * run.in_column + group * GROUP_IN : 0);
      int by = (group * (BACK ? GROUP_IN : GROUP_OUT) + (BACK ? 0 : k)) * (int)run.w_row + (BACK ? k : 0);
      by += row * (int)run.w_h + s * (int)run.w_w;
#pragma unroll 1
      for (int c = 0; c < GROUP_IN; c++, by += BACK ? (int)run.w_row : 1)
        sum = fmaf(inside ? widened(from[c]) : 0.0f, widened(run.w[by]), sum);
    }
  return sum;
}

// Stores the rows of a phase of a tile, which lie in shared memory; computes anew what is no number.
TS_MMA_DEVICE void leave(
    const Run &run, const unsigned char *memory, int block, int phase, const Tile &at_tile, bool any_nan
) {
  const u32 phase_h = (u32)phase / PHASES_W, phase_w = (u32)phase % PHASES_W;
  constexpr int VECTORS = ROW / VECTOR;
  const i64 image = at_tile.n * run.out_n + (DEEP ? at_tile.d * run.out_depth : 0);
  constexpr int EACH = (TILE * VECTORS + THREADS - 1) / THREADS;
#pragma unroll(EACH < 4 || (LATE && !RESIDUAL) ? 1 : 4) // no thread would reach four copies, or they are long
  for (u32 i = threadIdx.x; i < TILE * VECTORS; i += THREADS) {
    const u32 m = i / VECTORS, c = i % VECTORS * VECTOR, k = block * ROW + c;
    const u32 h = (at_tile.h + m / TILE_W) * PHASES_H + phase_h, w = (at_tile.w + m % TILE_W) * PHASES_W + phase_w;
    if (h >= (u32)run.out_h || w >= (u32)run.out_w || k >= (u32)run.results) continue;
    const i64 at = image + (h * run.out_row + w * run.out_column + k);
    const Staged *const staged = (const Staged *)(memory + STAGED + m * STAGED_PITCH) + c;
    Pack<Out, VECTOR> v;
    if constexpr (LATE) {
      Pack<Out, VECTOR> added;
      if constexpr (RESIDUAL) added = *(const Pack<Out, VECTOR> *)(run.residual + at);
#pragma unroll
      for (int e = 0; e < VECTOR; e++)
        narrow(v.v[e], activate(widened(staged[e]) + (RESIDUAL ? widened(added.v[e]) : 0.0f)));
    } else {
      v = *(const Pack<Out, VECTOR> *)staged;
    }
    *(Pack<Out, VECTOR> *)(run.out + at) = v;
  }
  if (REPAIR && any_nan) {
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < TILE * ROW; i += THREADS) {
      const u32 m = i / ROW, k = block * ROW + i % ROW;
      const u32 h = (at_tile.h + m / TILE_W) * PHASES_H + phase_h, w = (at_tile.w + m % TILE_W) * PHASES_W + phase_w;
      if (h >= (u32)run.out_h || w >= (u32)run.out_w || k >= (u32)run.results) continue;
      const i64 at = image + (h * run.out_row + w * run.out_column + k);
      const float found = widened(run.out[at]);
      if (found == found) continue;
      float v = exact(run, at_tile, h, w, k);
      if (BIAS) v += widened(run.bias[k]);
      if (RESIDUAL) v += widened(run.residual[at]);
      narrow(run.out[at], activate(v));
    }
  }
}
