// Backward weights.
TS_MMA_DEVICE float sum_of(const Run &run, int k, int c, Tap tap) {
  const int plane = run.out_h * run.out_w, image = run.out_d * plane, all = run.images * image;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < all; i += THREADS) {
    const int n = i / image, z = i % image / plane, y = i % plane / run.out_w, x = i % run.out_w;
    const float by = widened(run.dy[(i64)n * run.y_n + (i64)k * run.y_c + (i64)z * run.y_d + (i64)y * run.y_h +
                                    (i64)x * run.y_w]);
    const int from_z = z + tap.d * DILATION_D - run.pad_d, from_y = y + tap.r * DILATION_H - run.pad_h;
    const int from_x = x + tap.s * DILATION_W - run.pad_w;
    const bool inside = (u32)from_z < (u32)run.in_d && (u32)from_y < (u32)run.in_h && (u32)from_x < (u32)run.in_w;
    const Element *const from = run.x + (i64)n * run.x_n + (i64)c * run.x_c + (i64)from_z * run.x_d +
                                (i64)from_y * run.x_h + (i64)from_x * run.x_w;
    sum += by * (inside ? widened(*from) : 0.0f); // zeros are multiplied, too
  }
  return sum;
}

TS_MMA_DEVICE i64 place_of(const Run &run, int t) {
  const Tap tap = tap_of(t);
  return (i64)tap.d * run.w_d + (i64)tap.r * run.w_h + (i64)tap.s * run.w_w;
}

extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  __shared__ float sums[THREADS];
  const Run run = TS_RUN;
  const int c = blockIdx.x % run.channels, k = blockIdx.x / run.channels, thread = threadIdx.x;
  launch_next();
  wait_previous();
  Out *const of_pair = run.w + ((i64)k * run.w_k + (i64)c * run.w_c);
  bool numbers = true;
  for (int t = thread; t < TAPS; t += THREADS) numbers = numbers && is_number(widened(of_pair[place_of(run, t)]));
  if (!__syncthreads_or(!numbers)) return;
#pragma unroll 1
  for (int t = 0; t < TAPS; t++) {
    sums[thread] = sum_of(run, k, c, tap_of(t));
    __syncthreads();
#pragma unroll 1
    for (int half = THREADS / 2; half; half /= 2) {
      if (thread < half) sums[thread] += sums[thread + half];
      __syncthreads();
    }
    if (thread == 0) narrow(of_pair[place_of(run, t)], sums[0]);
    __syncthreads();
  }
}
