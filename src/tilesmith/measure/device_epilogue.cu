// Sums become results, in place. A bound counts `share` of the magnitudes that the epilogue adds as it counts the root
// of the squared products: so they are put into the squares, which `compare` reads.
extern "C" __global__ void __launch_bounds__(256) @SYM@(double *value, double *squares, ts_i64 count, double share,
                                                        const Element *bias, const Element *residual, ts_i64 step,
                                                        ts_i64 channels, ts_i64 activation, double slope, double low,
                                                        double high) {
  const Epilogue e = {bias, residual, step, channels, activation, slope, low, high};
  for (ts_i64 i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
    double added;
    value[i] = finished(e, value[i], i, &added);
    const double root = sqrt(squares[i]) + share * added;
    squares[i] = root * root;
  }
}
