namespace ts_mma {
namespace @SYM@_scope {
typedef @OUT@ Out;
// Adds the blocks' sums: 8 threads a result, always in the same order.
extern "C" __global__ void __launch_bounds__(256) @SYM@(const float *__restrict__ partial, Out *__restrict__ dw,
                                                        i64 p_parts, i64 p_results, i64 p_channels, i64 p_columns,
                                                        i64 w_channel, i64 w_row, i64 w_column) {
  __shared__ float gathered[8][32];
  const int parts = (int)p_parts, results = (int)p_results, channels = (int)p_channels;
  const int at = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.0f;
  if (at < results) {
#pragma unroll 4
    for (int s = threadIdx.y; s < parts; s += 8) sum += partial[(i64)s * results + at];
  }
  gathered[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || at >= results) return;
#pragma unroll
  for (int k = 1; k < 8; k++) sum += gathered[k][threadIdx.x];
  const int tap = at / channels, c = at - tap * channels, r = tap / (int)p_columns, s = tap - r * (int)p_columns;
  narrow(dw[c * w_channel + r * w_row + s * w_column], sum);
}
} // namespace @SYM@_scope
} // namespace ts_mma
