namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
constexpr int SUMS = TILES_M * TILES_N * 4;
constexpr bool PAIRS_A = (M + PAD_A) % 2 == 0, PAIRS_B = (N + PAD_B) % 2 == 0 && TILES_N % 2 == 0;
constexpr int RUN_B = TILES_N / 2 * 2; // of a lane's neighbouring columns; another one may have its own tile

// Adds the blocks' sums, 8 threads a result, always in the same order. A block of this kernel has one register of a
// warp.
extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  __shared__ float gathered[8][32];
  wait_previous();
  const int lane = threadIdx.x, tile = blockIdx.x / SUMS, at = blockIdx.x % SUMS;
  const i64 step = (i64)gridDim.x * 32;
  const float *const from = partial + (i64)blockIdx.x * 32 + lane;
  float sum = 0.0f;
#pragma unroll 8
  for (int s = threadIdx.y; s < (int)parts; s += 8) sum += from[s * step];
  gathered[threadIdx.y][lane] = sum;
  __syncthreads();
  if (threadIdx.y) return;
#pragma unroll
  for (int k = 1; k < 8; k++) sum += gathered[k][lane];
  // See the fragments of the first kernel.
  const int i = at / 4 / TILES_N, j = at / 4 % TILES_N, half = at / 2 % 2, group = lane / 4, in = lane % 4 * 2 + at % 2;
  int m, n;
  if constexpr (RUNS) {
    m = (tile % PARTS_M * 8 + group) * TILES_M * 2 + i * 2 + half;
    n = tile / PARTS_M * TILES_N * 8 + (j < RUN_B ? in * RUN_B + j : j * 8 + in);
  } else {
    m = tile % PARTS_M * TILES_M * 16 + i * 16 + (PAIRS_A ? group * 2 + half : group + half * 8);
    n = tile / PARTS_M * TILES_N * 8 + (PAIRS_B ? j / 2 * 16 + in * 2 + j % 2 : j * 8 + in);
  }
  if (m >= M || n >= N) return;
  if constexpr (SCALED) sum *= (float)alpha;
  if constexpr (BIAS) sum += widened(bias[n]);
  narrow(out[m * out_row + n * out_column], activate(sum));
}
} // namespace @SYM@_scope
} // namespace ts_mma
