// What a result is where its float64 sums are NaN or Inf: the epilogue makes numbers of some. The right ones are
// replaced by the numbers of `known`, a right result of the same problem without them. A block reports how many are
// wrong, and where the first of them is.
extern "C" __global__ void __launch_bounds__(256) @SYM@(Element *found, const Element *known, const double *sums,
                                                        ts_i64 count, double of_value, double fixed, double *report,
                                                        const Element *bias, const Element *residual, ts_i64 step,
                                                        ts_i64 channels, ts_i64 activation, double slope, double low,
                                                        double high) {
  const Epilogue e = {bias, residual, step, channels, activation, slope, low, high};
  __shared__ double wrong[256], place[256];
  const int t = threadIdx.x;
  wrong[t] = 0.0, place[t] = (double)count;
  for (ts_i64 i = blockIdx.x * 256ll + t; i < count; i += gridDim.x * 256ll) {
    const double sum = sums[i], f = load(found, i);
    if (is_number(sum)) continue;
    double added;
    const double v = finished(e, sum, i, &added);
    const bool near = is_number(v) && fabs(f - v) <= of_value * fabs(v) + fixed;
    if (near || f == v || (f != f && v != v)) {
      found[i] = known[i];
      continue;
    }
    if (wrong[t] == 0.0) place[t] = (double)i;
    wrong[t] += 1.0;
  }
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) {
      wrong[t] += wrong[t + half];
      place[t] = place[t] < place[t + half] ? place[t] : place[t + half];
    }
    __syncthreads();
  }
  if (t == 0) report[2 * blockIdx.x] = wrong[0], report[2 * blockIdx.x + 1] = place[0];
}
