namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
constexpr int SUMS = TILES_M * TILES_N * 4, PIECES = BUNDLE_IN / 8;

// A sum that is no number, anew: zeros behind the last pixel of dy met a NaN or an Inf of x.
TS_MMA_DEVICE float exact(const Run &run, int k, int channel, int filter_row, int s) {
  const int filter_d = DEEP ? filter_row / PLANE_H : 0, r = filter_row - filter_d * PLANE_H;
  float sum = 0.0f;
#pragma unroll 1
  for (int slice = 0; slice < run.images * (DEEP ? run.out_d : 1); slice++) {
    const int n = DEEP ? slice / run.out_d : slice, d = slice - n * run.out_d, plane = source_plane(d, filter_d);
    const i64 of_x = n * run.in_n + (DEEP ? (i64)plane * run.in_depth : 0);
    const i64 of_dy = n * run.out_n + (DEEP ? (i64)d * run.out_depth : 0);
#pragma unroll 1
    for (int p = 0; p < run.out_h; p++) {
      float row = 0.0f;
#pragma unroll 1
      for (int q = 0; q < run.out_w; q++) {
        const int h = p * STEP_H + run.corner_h + r * DILATION_H, w = q * STEP_W + run.corner_w + s * DILATION_W;
        const bool exists = !DEEP || (u32)plane < (u32)run.in_d;
        const bool inside = exists && h >= 0 && h < run.in_h && w >= 0 && w < run.in_w;
        const Element *const from = run.x + of_x + (i64)h * run.in_row + (i64)w * run.in_column + channel;
        const Element *const dy = run.dy + of_dy + (i64)p * run.out_row + (i64)q * run.out_column + k;
        row = fmaf(widened(*dy), inside ? widened(*from) : 0.0f, row);
      }
      sum += row;
      if (sum != sum) return sum;
    }
  }
  return sum;
}

// Adds the blocks' sums, 8 threads a result, always in the same order. A block has one register of a warp.
extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  __shared__ float gathered[8][32];
  const Run run = TS_RUN;
  launch_next();
  wait_previous();
  const int lane = threadIdx.x, of_block = blockIdx.x / SUMS, at = blockIdx.x % SUMS;
  const int block = of_block / WARPS, warp = of_block % WARPS;
  const float *const from = run.partial + (i64)blockIdx.x * 32 + lane;
  const i64 step = (i64)gridDim.x * 32;
  float sum = 0.0f;
#pragma unroll 8
  for (int s = threadIdx.y; s < run.shares; s += 8) sum += from[s * step];
  gathered[threadIdx.y][lane] = sum;
  __syncthreads();
  if (threadIdx.y) return;
#pragma unroll
  for (int k = 1; k < 8; k++) sum += gathered[k][lane];
  const int i = at / 4 / TILES_N, j = at / 4 % TILES_N;
  const int part = warp % PARTS_N, super = warp / PARTS_N % SUPERS;
  const int piece = (warp / (PARTS_N * SUPERS) * TILES_M + i) * 2 + at / 2 % 2, tap = piece / PIECES;
  const int c = piece % PIECES * 8 + lane / 4, k = (part * TILES_N + j) * 8 + lane % 4 * 2 + at % 2;
  const int group = (block * SUPERS + super) * (BUNDLE_IN / GROUP_IN) + c / GROUP_IN;
  if (tap >= FILTER_H * FILTER_W || k >= BUNDLE_OUT || c / GROUP_IN != k / GROUP_OUT || group >= run.groups) return;
  // Of one group, channels and results are padded to whole pieces.
  const int channel = group * GROUP_IN + c % GROUP_IN;
  const int result = group * GROUP_OUT + k % GROUP_OUT, r = tap / FILTER_W, s = tap % FILTER_W;
  if (channel >= run.channels || result >= run.results) return;
  if (sum != sum) sum = exact(run, result, channel, r, s);
  narrow(run.out[result * run.w_row + r * run.w_h + s * run.w_w + c % GROUP_IN], sum);
}
} // namespace @SYM@_scope
} // namespace ts_mma
