// Adds the blocks' sums: 8 threads a result, always in the same order. What is no number is computed once more by the
// definition, by all threads: pixels of x met zeros in place of elements of dy that do not exist.
extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  __shared__ float gathered[8][32], again[256];
  __shared__ int odd[32];
  const int lane = threadIdx.x % 32, share = threadIdx.x / 32, first = blockIdx.x * 32, at = first + lane;
  wait_previous();
  float sum = 0.0f;
  if (at < run.results) {
#pragma unroll 4
    for (int s = share; s < run.parts; s += 8) sum += run.partial[(i64)s * run.results + at];
  }
  gathered[share][lane] = sum;
  __syncthreads();
  auto place = [&](int result) {
    const int tap = result / run.channels, c = result - tap * run.channels, s = tap % S, r = tap / S % R;
    return run.dw + c * run.w_channel + tap / S / R * run.w_depth + r * run.w_row + s * run.w_column;
  };
  if (share == 0) {
#pragma unroll
    for (int k = 1; k < 8; k++) sum += gathered[k][lane];
    odd[lane] = at < run.results && sum != sum;
    if (at < run.results) narrow(*place(at), sum);
  }
  __syncthreads();
#pragma unroll 1
  for (int k = 0; k < 32; k++) {
    if (!odd[k]) continue;
    const int tap = (first + k) / run.channels, c = first + k - tap * run.channels;
    const int s = tap % S, r = tap / S % R, kd = tap / S / R;
    float part = 0.0f;
#pragma unroll 1
    for (i64 pixel = threadIdx.x; pixel < run.pixels; pixel += 256) {
      const i64 line = pixel / run.out_w, slice = line / run.out_h, n = slice / run.out_d;
      const int w = (int)(pixel - line * run.out_w), h = (int)(line - slice * run.out_h);
      const int d = (int)(slice - n * run.out_d);
      const int a = d * STRIDE_D + kd * DILATION_D - PAD_D, b = h * STRIDE_H + r * DILATION_H - PAD_H,
                e = w * STRIDE_W + s * DILATION_W - PAD_W;
      float v = 0.0f;
      if ((u32)a < (u32)run.in_d && (u32)b < (u32)run.in_h && (u32)e < (u32)run.in_w)
        v = widened(run.x[n * run.in_n + a * run.in_depth + b * run.in_row + e * run.in_column + c / MULTIPLIER]);
      const Element by = run.dy[n * run.out_n + d * run.out_depth + h * run.out_row + w * run.out_column + c];
      part = fmaf(v, widened(by), part);
    }
    again[threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 1
      for (int i = 1; i < 256; i++) part += again[i];
      narrow(*place(first + k), part);
    }
    __syncthreads();
  }
}
