__device__ inline bool is_number(double v) { return fabs(v) <= 1.7976931348623157e308; }

// The epilogue of a result whose channel changes every `step` elements; an operand that it lacks is null.
struct Epilogue {
  const Element *bias, *residual;
  ts_i64 step, channels, activation;
  double slope, low, high;
};

// What the epilogue makes of the sum of element i; `added`: the sum of the magnitudes that it adds.
__device__ inline double finished(const Epilogue &e, double sum, ts_i64 i, double *added) {
  *added = fabs(sum);
  if (e.bias) {
    const double b = load(e.bias, i / e.step % e.channels);
    sum += b, *added += fabs(b);
  }
  if (e.residual) {
    const double z = load(e.residual, i);
    sum += z, *added += fabs(z);
  }
  return ts_activate(sum, e.activation, e.slope, e.low, e.high);
}

