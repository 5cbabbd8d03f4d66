/* What becomes of a sum: the epilogue, without libm. */
#include "ts_reference_parts.h"

#include <string.h>

/* The coefficients and their errors: codegen/c/epilogue.py. Highest power first. */
static const double EXP[] = {2.511015364692893e-08,
                             2.763279054211718e-07,
                             2.7557240604663896e-06,
                             2.4801485074105115e-05,
                             0.00019841269890340666,
                             0.0013888888952696516,
                             0.00833333333331949,
                             0.04166666666648666,
                             0.1666666666666668,
                             0.5000000000000019,
                             1.0,
                             1.0};
static const double TAIL[] = {0.0005162422963662841, -0.004418155623680238, 0.014762902387000593, -0.01872470477392823,
                              -0.021258421137593256, 0.12331997630285452,   -0.23518695797848213, 0.2836222001361013,
                              -0.25112596055650027,  0.16408985768174403,   -0.08396209862003633, 0.04167512473413644,
                              0.003917889288658644,  0.028479190321494114,  0.037017315418394425, 0.0498749970089469,
                              0.06101212967172166,   0.07021469069930081,   0.07659686889004089,  0.07978845780092776,
                              0.07978845605253214};

static double polynomial(const double *coefficients, size_t count, double x) {
  double value = coefficients[0];
  for (size_t i = 1; i < count; i++)
    value = value * x + coefficients[i];
  return value;
}

static double power_of_two(int n) {
  const uint64_t bits = (uint64_t)(n + 1023) << 52;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static double exponential(double x) {
  if (x != x) return x;
  if (x < -750) return 0;
  if (x > 710) return power_of_two(1023) * 4; /* Inf */
  const int i = (int)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5)), half = i / 2;
  const double n = i, r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10;
  return polynomial(EXP, sizeof EXP / sizeof *EXP, r) * power_of_two(half) * power_of_two(i - half);
}

static double gelu(double x) {
  const double t = x < 0 ? -x : x, u = 1 / (1 + 0.2 * t);
  const double q = exponential(-0.5 * x * x) * (u * polynomial(TAIL, sizeof TAIL / sizeof *TAIL, u));
  return x * (x > 0 ? 1 - q : q);
}

static double hyperbolic_tangent(double x) {
  const double t = x < 0 ? -x : x;
  if (x != x) return x;
  if (t > 20) return x < 0 ? -1 : 1;
  const int i = (int)(t * -2.8853900817779268 - 0.5);
  const double n = i, r = (t * -2 - n * 0.6931471803691238) - n * 1.9082149292705877e-10, p = power_of_two(i);
  const double m = p * (r * polynomial(EXP, sizeof EXP / sizeof *EXP - 1, r)) + (p - 1), y = m / (2 + m);
  return x < 0 ? y : -y;
}

static double hard_gate(double x) {
  const double g = x + 3;
  return (g < 0 ? 0 : g > 6 ? 6 : g) / 6;
}

/* Every activation keeps a NaN: a comparison with one is false. */
static double activated(const ts_epilogue *e, double x) {
  switch (e->activation) {
  case TS_RELU:
    return x < 0 ? 0 : x;
  case TS_LEAKY_RELU:
    return x > 0 ? x : x * e->slope;
  case TS_SILU:
    return x / (1 + exponential(-x));
  case TS_GELU:
    return gelu(x);
  case TS_CLAMP:
    return x < e->low ? e->low : x > e->high ? e->high : x;
  case TS_SIGMOID:
    return 1 / (1 + exponential(-x));
  case TS_TANH:
    return hyperbolic_tangent(x);
  case TS_HARDSWISH:
    return x * hard_gate(x);
  case TS_HARDSIGMOID:
    return hard_gate(x);
  case TS_GELU_TANH:
    return x / (1 + exponential(-1.5957691216057308 * x * (1 + 0.044715 * x * x)));
  }
  return x;
}

/* The part of a number before its point. */
static int64_t whole_part(double value) {
  return value > -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

/* Int32 results: exact, modulo 2^32. No sum here leaves an int64: all factors are below 2^31. */
static void finish_whole(const ts_ref_end *end, const double *sums, const double *initial, const double *bias,
                         const double *residual, const int64_t *at, int64_t count) {
  const ts_epilogue *e = &end->epilogue;
  for (int64_t i = 0; i < count; i++) {
    int64_t value = (int64_t)sums[i] * (int64_t)end->alpha;
    if (end->beta != 0) value += (int64_t)end->beta * (int64_t)initial[i];
    if (e->bias) value += (int64_t)bias[i];
    if (e->residual) value += (int64_t)residual[i];
    if (e->activation == TS_RELU && value < 0) value = 0;
    if (e->activation == TS_CLAMP) {
      if ((double)value < e->low)
        value = whole_part(e->low);
      else if ((double)value > e->high)
        value = whole_part(e->high);
    }
    ((int32_t *)end->result)[at[i]] = (int32_t)(uint32_t)(uint64_t)value;
  }
}

void ts_ref_finish(const ts_ref_end *end, double *sums, int64_t channel, const int64_t *at, int64_t count) {
  const ts_epilogue *e = &end->epilogue;
  double initial[TS_REF_N], bias[TS_REF_N], residual[TS_REF_N];
  if (end->beta != 0) ts_ref_gather(end->dtype, end->result, 0, at, count, initial, 1);
  if (e->bias) ts_ref_read(e->scale ? TS_FP32 : end->dtype, end->bias, channel, 1, count, bias, 1);
  if (e->residual) ts_ref_gather(end->dtype, end->residual, 0, at, count, residual, 1);
  if (end->is_whole) {
    finish_whole(end, sums, initial, bias, residual, at, count);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    double value = end->alpha == 1 ? sums[i] : sums[i] * end->alpha;
    if (e->scale) value *= end->scale[e->scale == TS_SCALE_CHANNEL ? channel + i : 0];
    if (end->beta != 0) value += end->beta * initial[i];
    if (e->bias) value += bias[i];
    if (e->residual) value += residual[i];
    sums[i] = activated(e, value);
  }
  ts_ref_store(end->dtype, end->result, at, count, sums);
}
