// Squares of an operand.
extern "C" __global__ void __launch_bounds__(256) @SYM@(const @TYPE@ *from, float *to, ts_i64 count) {
  for (ts_i64 i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
    const float v = (float)ts_load_@DTYPE@(from, i);
    to[i] = v * v;
  }
}
