// How many words of two pieces of memory differ, block by block.
extern "C" __global__ void __launch_bounds__(256) @SYM@(const unsigned *one, const unsigned *two, ts_i64 words,
                                                        double *report) {
  __shared__ double changed[256];
  const int t = threadIdx.x;
  changed[t] = 0.0;
  for (ts_i64 i = blockIdx.x * 256ll + t; i < words; i += gridDim.x * 256ll) changed[t] += one[i] != two[i] ? 1.0 : 0.0;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) changed[t] += changed[t + half];
    __syncthreads();
  }
  if (t == 0) report[blockIdx.x] = changed[0];
}
