// What every direction shares. A block of THREADS computes tiles of TM x TN results, Q elements of the reduction at a
// time: both operands are gathered (and converted) into shared memory, and a thread multiplies RM x RN of them.
constexpr int TMT = TM / RM, TNT = TN / RN;
static_assert(TMT * TNT == THREADS, "a thread for each RM x RN results");

__device__ inline ts_i64 place_of(ts_i64 c, ts_i64 stride, ts_i64 vector) {
  return vector == 1 ? c * stride : c / vector * stride + c % vector;
}

// `at` becomes at / by; the remainder is returned. Most numbers are small, and dividing those is ten times faster.
__device__ inline ts_i64 split(ts_i64 &at, ts_i64 by) {
  const ts_i64 from = at;
  at = ((from | by) >> 32) == 0 ? (ts_i64)((unsigned)from / (unsigned)by) : from / by;
  return from - at * by;
}

// Adds the products of a step to `c`; those of a row that does not exist are passed over. It is a macro, for the sums of
// a function end in other registers.
#define TS_MULTIPLY(SKIPPED)                                                                                           \
  __syncthreads();                                                                                                     \
  for (int q = 0; q < Q; q++) {                                                                                        \
    Acc av[RM], bv[RN];                                                                                                \
    _Pragma("unroll") for (int i = 0; i < RM; i++) av[i] = a[q][tm + i * TMT];                                         \
    _Pragma("unroll") for (int j = 0; j < RN; j++) bv[j] = b[q][tn + j * TNT];                                         \
    _Pragma("unroll") for (int i = 0; i < RM; i++) {                                                                   \
      if (SKIPPED) continue;                                                                                           \
      _Pragma("unroll") for (int j = 0; j < RN; j++) c[i][j] += av[i] * bv[j];                                         \
    }                                                                                                                  \
  }                                                                                                                    \
  __syncthreads();

__device__ inline Value finished(Value v, const Run &run, ts_i64 channel, ts_i64 at) {
  if constexpr (BIAS) v += load_bias(run.bias, channel);
  if constexpr (RESIDUAL) v += load_result(run.residual, at);
  if constexpr (ACTIVATED) v = (Value)ts_activate(v, run.activation, run.slope, run.low, run.high);
  if constexpr (ROUNDED) v = v != v ? 0.0 : rint(v < -128.0 ? -128.0 : v > 127.0 ? 127.0 : v);
  return v;
}
