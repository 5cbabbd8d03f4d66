// Turns the sign of every number in words of 64 bits: `signs` has the bit of each number's sign.
extern "C" __global__ void __launch_bounds__(256) @SYM@(unsigned long long *values, ts_i64 words,
                                                        unsigned long long signs) {
  for (ts_i64 i = blockIdx.x * 256ll + threadIdx.x; i < words; i += gridDim.x * 256ll) values[i] ^= signs;
}
