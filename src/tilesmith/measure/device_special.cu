// NaN and Inf of a result beside those of its float64 sums. The right ones are replaced by the numbers of `known`, a
// right result of the same problem without them. A block reports how many are wrong, and where the first of them is.
extern "C" __global__ void __launch_bounds__(256) @SYM@(Element *found, const Element *known, const double *sums,
                                                        ts_i64 count, double *report) {
  __shared__ double wrong[256], place[256];
  const int t = threadIdx.x;
  wrong[t] = 0.0, place[t] = (double)count;
  for (ts_i64 i = blockIdx.x * 256ll + t; i < count; i += gridDim.x * 256ll) {
    const double sum = sums[i], f = load(found, i);
    if (fabs(sum) <= 1.7976931348623157e308) continue; // a number
    if (f == sum || (f != f && sum != sum)) {
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
