/* Elements of every type to and from double, one rounding each. */
#include "ts_reference_parts.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE double from_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A number of a sign, `e` bits of exponent and `m` of fraction. Without Inf, all ones are NaN. */
INLINE double widen(uint32_t bits, int m, int e, int has_inf) {
  const uint32_t magnitude = bits & ((1u << (m + e)) - 1), top = ((1u << e) - 1) << m;
  const uint64_t sign = (uint64_t)(bits >> (m + e)) << 63, fraction = (uint64_t)magnitude << (52 - m);
  const int bias = (1 << (e - 1)) - 1;
  if (has_inf ? magnitude >= top : magnitude == (top | ((1u << m) - 1)))
    return from_bits(sign | UINT64_C(0x7ff) << 52 |
                     (has_inf ? fraction & ((UINT64_C(1) << 52) - 1) : UINT64_C(1) << 51));
  if (magnitude >> m == 0) /* 0 or subnormal */
    return (double)(int)magnitude * from_bits(sign | (uint64_t)(1023 + 1 - bias - m) << 52);
  return from_bits(sign | (fraction + ((uint64_t)(1023 - bias) << 52)));
}

INLINE double widen_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* To nearest, ties to even. Without Inf, what is too large becomes NaN. */
static uint32_t narrow(double value, int m, int e, int has_inf) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  const int bias = (1 << (e - 1)) - 1, exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  const uint32_t sign = (uint32_t)(bits >> 63) << (m + e), top = ((1u << e) - 1) << m;
  const uint32_t inf = sign | (has_inf ? top : top | ((1u << m) - 1)), nan = has_inf ? inf | 1u << (m - 1) : inf;
  if (value != value) return nan;
  if (exponent == 1024) return inf;
  const int below = exponent < 1 - bias ? 1 - bias - exponent : 0; /* bits that a subnormal number lacks */
  const int drop = 52 - m + below;
  if (drop > 54) return sign;
  const uint64_t whole = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
  const uint64_t half = UINT64_C(1) << (drop - 1), rest = whole & (2 * half - 1);
  uint64_t kept = whole >> drop;
  kept += rest > half || (rest == half && (kept & 1));
  if (!below) kept += (uint64_t)(exponent + bias - 1) << m; /* a carry goes on into the exponent */
  return kept >= (inf & ~sign) ? inf : sign | (uint32_t)kept;
}

/* Do `LOOP` for the type, with ELEMENT(at) a double. */
#define EACH_TYPE(dtype, LOOP)            \
  switch (dtype) {                        \
  case TS_FP64:                           \
    LOOP(double, raw);                    \
    break;                                \
  case TS_FP32:                           \
    LOOP(float, (double)raw);             \
    break;                                \
  case TS_FP16:                           \
    LOOP(uint16_t, widen(raw, 10, 5, 1)); \
    break;                                \
  case TS_BF16:                           \
    LOOP(uint16_t, widen_bf16(raw));      \
    break;                                \
  case TS_FP8E4M3:                        \
    LOOP(uint8_t, widen(raw, 3, 4, 0));   \
    break;                                \
  case TS_FP8E5M2:                        \
    LOOP(uint8_t, widen(raw, 2, 5, 1));   \
    break;                                \
  case TS_INT8:                           \
    LOOP(int8_t, (double)raw);            \
    break;                                \
  default:                                \
    LOOP(int32_t, (double)raw);           \
  }

void ts_ref_gather(int dtype, const void *base, int64_t first, const int64_t *at, int64_t count, double *out,
                   int64_t step) {
#define GATHER(type, wide)                                  \
  for (int64_t i = 0; i < count; i++) {                     \
    double value = 0;                                       \
    if (at[i] >= 0) {                                       \
      const type raw = ((const type *)base)[first + at[i]]; \
      value = wide;                                         \
    }                                                       \
    out[i * step] = value;                                  \
  }
  EACH_TYPE(dtype, GATHER)
}

void ts_ref_read(int dtype, const void *base, int64_t first, int64_t stride, int64_t count, double *out, int64_t step) {
#define READ(type, wide)                           \
  {                                                \
    const type *from = (const type *)base + first; \
    if (stride == 1 && step == 1)                  \
      for (int64_t i = 0; i < count; i++) {        \
        const type raw = from[i];                  \
        out[i] = wide;                             \
      }                                            \
    else                                           \
      for (int64_t i = 0; i < count; i++) {        \
        const type raw = from[i * stride];         \
        out[i * step] = wide;                      \
      }                                            \
  }
  EACH_TYPE(dtype, READ)
}

/* NOTE: adding 1.5 * 2^52 rounds to nearest even; -ffast-math would leave it out. */
static int8_t saturate(double value) {
  const double limited = value != value ? 0 : value < -128 ? -128 : value > 127 ? 127 : value;
  return (int8_t)((limited + 6755399441055744.0) - 6755399441055744.0);
}

void ts_ref_store(int dtype, void *base, const int64_t *at, int64_t count, const double *values) {
#define STORE(type, narrowed)                 \
  for (int64_t i = 0; i < count; i++)         \
    ((type *)base)[at[i]] = (type)(narrowed); \
  break
  switch (dtype) {
  case TS_FP64:
    STORE(double, values[i]);
  case TS_FP32:
    STORE(float, values[i]);
  case TS_FP16:
    STORE(uint16_t, narrow(values[i], 10, 5, 1));
  case TS_BF16:
    STORE(uint16_t, narrow(values[i], 7, 8, 1));
  case TS_FP8E4M3:
    STORE(uint8_t, narrow(values[i], 3, 4, 0));
  case TS_FP8E5M2:
    STORE(uint8_t, narrow(values[i], 2, 5, 1));
  default:
    STORE(int8_t, saturate(values[i]));
  }
}
