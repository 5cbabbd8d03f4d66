// Adds the slices' sums, 8 threads for four weights, always in the same order. A block has one product of a warp.
constexpr int TILES_M = (K_STEPS + WARPS_E - 1) / WARPS_E, TILES_N = BLOCK_N / 8, PRODUCTS = TAPS * TILES_M * TILES_N;
typedef Pack<float, 4> Quad;

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  __shared__ Quad gathered[8][32];
  const Run run = TS_RUN;
  const int lane = threadIdx.x, at = blockIdx.x % PRODUCTS, warp = blockIdx.x / PRODUCTS % WARPS;
  const int group = blockIdx.x / PRODUCTS / WARPS;
  const Quad *const from = (const Quad *)run.partial + (i64)blockIdx.x * 32 + lane;
  const i64 step = (i64)gridDim.x * 32;
  wait_previous();
  Quad sum = {};
#pragma unroll 4
  for (int s = threadIdx.y; s < run.slices; s += 8) {
    const Quad v = from[s * step];
#pragma unroll
    for (int e = 0; e < 4; e++) sum.v[e] += v.v[e];
  }
  gathered[threadIdx.y][lane] = sum;
  __syncthreads();
  if (threadIdx.y) return;
#pragma unroll
  for (int k = 1; k < 8; k++)
#pragma unroll
    for (int e = 0; e < 4; e++) sum.v[e] += gathered[k][lane].v[e];
  const int t = at / (TILES_M * TILES_N), m = at / TILES_N % TILES_M, j = at % TILES_N;
  const int phase = group / run.blocks_n * WARPS_A + warp / WARPS_E, r = phase % PHASES + t * STRIDE_H;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int k = group % run.blocks_n * BLOCK_N + j * 8 + lane % 4 * 2 + e % 2;
    const int element = (m * WARPS_E + warp % WARPS_E) * 16 + lane / 4 + e / 2 * 8 - LEAD;
    if (phase >= STEPS || r >= FILTER_H || k >= COLS || element < 0 || element >= RUN) continue;
    narrow(run.out[k * run.w_k + phase / PHASES * run.w_d + r * run.w_h + element], sum.v[e]);
  }
}
