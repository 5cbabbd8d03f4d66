// Adds the blocks' sums, always in the same order.
extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= run.channels * R * S) return;
  float sum = 0.0f;
#pragma unroll 4
  for (int part = 0; part < run.parts; part++) sum += run.partial[(i64)part * run.channels * R * S + at];
  const int c = at / (R * S), tap = at % (R * S);
  narrow(run.dw[c * run.w_channel + tap / S * run.w_row + tap % S * run.w_column], sum);
}
