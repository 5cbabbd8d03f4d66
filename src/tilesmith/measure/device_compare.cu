// A result beside the oracle's value and sum of squared products. A block reports how many of its elements are wrong,
// the greatest share that an element uses of its bound, and which one that is.
extern "C" __global__ void __launch_bounds__(256) @SYM@(const Element *found, const double *value, const double *squares,
                                                        ts_i64 count, double of_norm, double of_value, double fixed,
                                                        double largest, double *report) {
  __shared__ double wrong[256], share[256], place[256];
  const int t = threadIdx.x;
  wrong[t] = 0.0, share[t] = -1.0, place[t] = 0.0;
  for (ts_i64 i = blockIdx.x * 256ll + t; i < count; i += gridDim.x * 256ll) {
    const double v = value[i], f = load(found, i);
    const double bound = of_norm * sqrt(squares[i]) + of_value * fabs(v) + fixed, error = fabs(f - v);
    double used = error / bound;
    if (!(error <= bound)) { // NaN and Inf may be right all the same
      const bool overflow = fabs(v) + bound >= largest && fabs(f) > 1e300 && (f > 0.0) == (v > 0.0);
      const bool right = f == v || (f != f && v != v) || overflow;
      wrong[t] += right ? 0.0 : 1.0;
      used = right ? 0.0 : used < 1e308 ? used : 1e308;
    }
    if (used > share[t]) share[t] = used, place[t] = (double)i;
  }
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) {
      wrong[t] += wrong[t + half];
      if (share[t + half] > share[t]) share[t] = share[t + half], place[t] = place[t + half];
    }
    __syncthreads();
  }
  if (t == 0) {
    double *mine = report + 3 * blockIdx.x;
    mine[0] = wrong[0], mine[1] = share[0], mine[2] = place[0];
  }
}
