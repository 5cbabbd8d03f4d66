// Backward data.
TS_MMA_DEVICE float weight(const Run &run, int k, int c, Tap tap) {
  return widened(run.w[(i64)k * run.w_k + (i64)c * run.w_c + (i64)tap.d * run.w_d + (i64)tap.r * run.w_h + (i64)tap.s * run.w_w]);
}

TS_MMA_DEVICE float sum_of(const Run &run, int n, int c, int z, int y, int x) {
  float sum = 0.0f;
#pragma unroll 1
  for (int t = 0; t < TAPS; t++) {
    const Tap tap = tap_of(t);
    const int from_z = z + run.pad_d - tap.d * DILATION_D, from_y = y + run.pad_h - tap.r * DILATION_H;
    const int from_x = x + run.pad_w - tap.s * DILATION_W;
    if ((u32)from_z >= (u32)run.out_d || (u32)from_y >= (u32)run.out_h || (u32)from_x >= (u32)run.out_w) continue;
    const Element *const from =
        run.dy + ((i64)n * run.y_n + (i64)from_z * run.y_d + (i64)from_y * run.y_h + (i64)from_x * run.y_w);
    for (int k = 0; k < K; k++) sum += widened(from[(i64)k * run.y_c]) * weight(run, k, c, tap);
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int c = blockIdx.x, thread = threadIdx.x;
  launch_next();
  wait_previous();
  bool numbers = true;
  for (int i = thread; i < K * TAPS; i += THREADS)
    numbers = numbers && is_number(weight(run, i / TAPS, c, tap_of(i % TAPS)));
  if (!__syncthreads_or(!numbers)) return;
  const int plane = run.in_h * run.in_w, image = run.in_d * plane, all = run.images * image;
#pragma unroll 1
  for (int i = thread; i < all; i += THREADS) {
    const int n = i / image, z = i % image / plane, y = i % plane / run.in_w, x = i % run.in_w;
    Out &to = run.x[(i64)n * run.x_n + (i64)c * run.x_c + (i64)z * run.x_d + (i64)y * run.x_h + (i64)x * run.x_w];
    if (is_number(widened(to))) continue;
    float sum = sum_of(run, n, c, z, y, x);
    if (ADDS) sum += widened(run.bias[c]);
    narrow(to, activate(sum));
  }
}
