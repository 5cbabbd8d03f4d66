// Adds the blocks' sums of weights, SHARES threads a quad of channels, always in the same order. A thread has LOADS of them
// under way at once: a loop whose last turns are left over would wait for each.
constexpr int QUADS = ELEMENTS * TILES_N * 2, WIDTH = 256 / SHARES, LOADS = 10;
typedef Pack<float, 4> Quad;

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  __shared__ Quad gathered[SHARES][WIDTH];
  const Run run = TS_RUN;
  const int item = blockIdx.x * WIDTH + threadIdx.x % WIDTH, share = threadIdx.x / WIDTH;
  const bool wanted = item < BLOCKS_M * QUADS;
  launch_next();
  wait_previous();
  Quad sum = {};
#pragma unroll 1
  for (int s = share; wanted && s < run.slices; s += SHARES * LOADS) {
    Quad v[LOADS] = {};
#pragma unroll
    for (int k = 0; k < LOADS; k++)
      if (s + k * SHARES < run.slices)
        v[k] = ((const Quad *)run.partial)[(i64)(s + k * SHARES) * BLOCKS_M * QUADS + item];
#pragma unroll
    for (int k = 0; k < LOADS; k++)
#pragma unroll
      for (int e = 0; e < 4; e++) sum.v[e] += v[k].v[e];
  }
  gathered[share][threadIdx.x % WIDTH] = sum;
  __syncthreads();
  if (share || !wanted) return;
#pragma unroll
  for (int k = 1; k < SHARES; k++)
#pragma unroll
    for (int e = 0; e < 4; e++) sum.v[e] += gathered[k][threadIdx.x].v[e];
  const int block = item / QUADS, element = item % QUADS / (TILES_N * 2), line = element / (S * C);
  const int d = line / R, r = line % R, s = element % (S * C) / C, c = element % C;
  Out *const to = run.w + ((i64)c * run.w_c + (i64)d * run.w_d + (i64)r * run.w_h + (i64)s * run.w_w);
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int k = block * (TILES_N * 8) + item % (TILES_N * 2) * 4 + e;
    if (k < run.rows) narrow(to[(i64)k * run.w_k], sum.v[e]);
  }
}
