// Adds the slices' sums, 8 threads a weight, always in the same order. A block has one register of a warp.
constexpr int TILES_M = (K_STEPS + WARPS_E - 1) / WARPS_E, TILES_N = BLOCK_N / 8;
constexpr int SUMS = TAPS * TILES_M * TILES_N * 4;

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  __shared__ float gathered[8][32];
  const Run run = TS_RUN;
  const int lane = threadIdx.x, at = blockIdx.x % SUMS, warp = blockIdx.x / SUMS % WARPS, group = blockIdx.x / SUMS / WARPS;
  const float *const from = run.partial + (i64)blockIdx.x * 32 + lane;
  const i64 step = (i64)gridDim.x * 32;
  wait_previous();
  float sum = 0.0f;
#pragma unroll 8
  for (int s = threadIdx.y; s < run.slices; s += 8) sum += from[s * step];
  gathered[threadIdx.y][lane] = sum;
  __syncthreads();
  if (threadIdx.y) return;
#pragma unroll
  for (int k = 1; k < 8; k++) sum += gathered[k][lane];
  const int t = at / (TILES_M * TILES_N * 4), m = at / (TILES_N * 4) % TILES_M, j = at / 4 % TILES_N, e = at % 4;
  const int phase = group / run.blocks_n * WARPS_A + warp / WARPS_E, r = phase % PHASES + t * STRIDE_H;
  const int k = group % run.blocks_n * BLOCK_N + j * 8 + lane % 4 * 2 + e % 2;
  const int element = (m * WARPS_E + warp % WARPS_E) * 16 + lane / 4 + e / 2 * 8 - LEAD;
  if (phase >= STEPS || r >= FILTER_H || k >= COLS || element < 0 || element >= RUN) return;
  narrow(run.out[k * run.w_k + phase / PHASES * run.w_d + r * run.w_h + element], sum);
}
