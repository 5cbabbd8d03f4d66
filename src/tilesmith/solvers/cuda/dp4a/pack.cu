// Packs the filter: for each row of it, and each four taps of the row, a word for each channel. Taps beyond the last
// are zeros.
namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= R * FOURS * run.channels) return;
  const int channel = at % run.channels, four = at / run.channels % FOURS, row = at / run.channels / FOURS;
  u32 word = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int tap = four * 4 + i;
    if (tap >= S) continue;
    const signed char weight = run.w[(i64)channel * run.w_k + row * run.w_r + tap * run.w_s];
    word |= (u32)(unsigned char)weight << i * 8;
  }
  run.packed[at] = word;
}
} // namespace @SYM@_scope
} // namespace ts_mma
