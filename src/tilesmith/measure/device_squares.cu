// Squares of an operand.
extern "C" __global__ void __launch_bounds__(256) @SYM@(const Element *from, float *to, ts_i64 count) {
  for (ts_i64 i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
    const float v = (float)load(from, i);
    to[i] = v * v;
  }
}
