// Adds the blocks' sums of weights, SHARES threads a quad, always in the same order.
constexpr int COLUMNS = GROUPS * ELEMENTS, QUADS = UNIT_WARPS * PARTS * COLUMNS * 32, WIDTH = 256 / SHARES;
typedef Pack<float, 4> Quad;

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  __shared__ Quad gathered[SHARES][WIDTH];
  const Run run = TS_RUN;
  const int item = blockIdx.x * WIDTH + threadIdx.x % WIDTH, share = threadIdx.x / WIDTH;
  const bool wanted = item < run.blocks_m * QUADS;
  launch_next();
  wait_previous();
  Quad sum = {};
#pragma unroll 8
  for (int s = share; s < run.slices; s += SHARES) {
    if (!wanted) continue;
    const Quad v = ((const Quad *)run.partial)[(i64)s * run.blocks_m * QUADS + item];
#pragma unroll
    for (int e = 0; e < 4; e++) sum.v[e] += v.v[e];
  }
  gathered[share][threadIdx.x % WIDTH] = sum;
  __syncthreads();
  if (share || !wanted) return;
#pragma unroll
  for (int k = 1; k < SHARES; k++)
#pragma unroll
    for (int e = 0; e < 4; e++) sum.v[e] += gathered[k][threadIdx.x].v[e];
  // See the fragments of the first kernel.
  const int block = item / QUADS, lane = item % 32, j = item / 32 % COLUMNS, i = item / 32 / COLUMNS % PARTS;
  const int mine = item % QUADS / 32 / COLUMNS / PARTS, element = j % ELEMENTS;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int row = (block * PARTS + i) * 16 + lane / 4 + e / 2 * 8;
    const u32 unit = unit_taps[(mine * GROUPS + j / ELEMENTS) * 8 + lane % 4 * 2 + e % 2];
    const int d = unit >> 24, r = unit >> 16 & 255, s = (unit >> 8 & 255) + (TAPS > 1 ? element / C : 0);
    const int c = TAPS > 1 ? element % C : (unit & 255) * 4 + element;
    if (unit == ~0u || row >= run.rows || s >= S || c >= C) continue;
    Out *const to = run.w + ((i64)row * run.w_k + (i64)c * run.w_c + (i64)d * run.w_d + (i64)r * run.w_h + (i64)s * run.w_w);
    narrow(*to, sum.v[e]);
  }
}
