/* The rules that convolutions and GEMMs share: ranges, element types, the epilogue, the span of a tensor. */
#include "ts_check.h"

ts_status ts_in_range(const char *name, int64_t value, int64_t least, int64_t most, ts_error *error) {
  if (value >= least && value <= most) return TS_OK;
  const char *end = most == TS_MAX_SIZE ? "2^31-1" : most == TS_MAX_STRIDE ? "2^62" : NULL;
  if (end) REFUSE("%s is %lld; it is from %lld to %s", name, (long long)value, (long long)least, end);
  REFUSE("%s is %lld; it is from %lld to %lld", name, (long long)value, (long long)least, (long long)most);
}

ts_status ts_check_size(const char *name, int64_t value, int64_t least, int64_t most, ts_error *error) {
  if (value == -1) REFUSE("%s is not set (-1); it is from %lld", name, (long long)least);
  return ts_in_range(name, value, least, most, error);
}

int64_t ts_times(int64_t a, int64_t b) {
  return b && a > INT64_MAX / b ? INT64_MAX : a * b;
}

void ts_add(ts_wide *sum, int64_t count, int64_t stride) {
  const int64_t base = (int64_t)1 << 32;
  const int64_t low = sum->low + count * (stride % base);
  int64_t carry = low / base;
  if (low % base < 0) carry--;
  sum->low = low - carry * base;
  if (sum->high < (int64_t)1 << 61) sum->high += count * (stride / base) + carry; /* else far above every limit */
}

ts_status ts_check_span(char letter, ts_wide distance, ts_error *error) {
  /* A distance of 2^59 - 1 is one of 2^59 elements. */
  if (distance.high < TS_MOST_ELEMENTS >> 32) return TS_OK;
  REFUSE("%c spans more than 2^59 elements with its pitches; tensors end at 2^59", letter);
}

ts_status ts_read_epilogue(const ts_desc *desc, ts_epilogue *epilogue, ts_error *error) {
  CHECK(ts_in_range("bias", desc->bias, 0, 1, error));
  CHECK(ts_in_range("residual", desc->residual, 0, 1, error));
  CHECK(ts_in_range("activation", desc->activation, TS_NONE, TS_GELU_TANH, error));
  CHECK(ts_in_range("scale", desc->scale, TS_SCALE_NONE, TS_SCALE_CHANNEL, error));
  const double slope = desc->slope + 0.0, low = desc->low + 0.0, high = desc->high + 0.0; /* -0.0 becomes 0.0 */
  char text[TS_REAL_ROOM], other[TS_REAL_ROOM];
  if (desc->activation == TS_CLAMP && !(low <= high))
    REFUSE("TS_CLAMP needs low <= high, got %s and %s", ts_real_text(low, text), ts_real_text(high, other));
  if (desc->activation == TS_LEAKY_RELU && !(slope - slope == 0))
    REFUSE("slope is %s; TS_LEAKY_RELU needs a finite one", ts_real_text(slope, text));
  *epilogue = (ts_epilogue){.bias = desc->bias,
                            .residual = desc->residual,
                            .activation = desc->activation,
                            .scale = desc->scale,
                            .slope = slope,
                            .low = low,
                            .high = high};
  return TS_OK;
}

static int is_integer(int dtype) {
  return dtype == TS_INT8 || dtype == TS_INT32;
}

/* What the sums may be, when the types of x, w and y are known. */
static ts_status check_dtypes(const int dtypes[4], int mode, const ts_epilogue *epilogue, ts_error *error) {
  const int x = dtypes[0], w = dtypes[1], y = dtypes[2], acc = dtypes[3];
  const int operand = mode == TS_BWD ? y : x, result = mode == TS_BWD ? x : y;
  if (is_integer(x) || is_integer(w) || is_integer(y) || is_integer(acc)) {
    const int whole = epilogue->scale ? TS_INT8 : TS_INT32;
    if (operand != TS_INT8 || w != TS_INT8 || result != whole || acc != TS_INT32 || mode == TS_WRW || mode == TS_BGRAD)
      REFUSE("%s a scale integers come as int8 x int8 -> %s in int32, mode fwd or bwd; got %s x %s -> %s in %s, "
             "mode %s",
             epilogue->scale ? "with" : "without", ts_dtype_names[whole], ts_dtype_names[operand], ts_dtype_names[w],
             ts_dtype_names[result], ts_dtype_names[acc], ts_mode_names[mode]);
    const int act = epilogue->activation;
    if (whole == TS_INT32 && act != TS_NONE && act != TS_RELU && act != TS_CLAMP)
      REFUSE("activation %s needs a floating-point result, got int32", ts_activation_names[act]);
  } else if (acc == TS_TF32) {
    if (x != TS_FP32 || w != TS_FP32 || y != TS_FP32)
      REFUSE("math_mode TS_MATH_TF32 goes with fp32 tensors, got %s, %s, %s", ts_dtype_names[x], ts_dtype_names[w],
             ts_dtype_names[y]);
  } else if (acc != TS_FP32 && acc != TS_FP64) {
    REFUSE("acc_dtype %s: floating-point problems accumulate in fp32 or fp64", ts_dtype_names[acc]);
  } else if (acc == TS_FP32 && (x == TS_FP64 || w == TS_FP64 || y == TS_FP64)) {
    REFUSE("acc_dtype fp32 is narrower than an fp64 tensor; use TS_FP64");
  }
  if (epilogue->scale && result != TS_INT8 && result != TS_FP8E4M3 && result != TS_FP8E5M2)
    REFUSE("scale %d goes with an int8 or fp8 result, got %s", epilogue->scale, ts_dtype_names[result]);
  return TS_OK;
}

ts_status ts_read_dtypes(const ts_desc *desc, int mode, const ts_epilogue *epilogue, int dtypes[4], ts_error *error) {
  const char *names[] = {"dtype", "x_dtype", "w_dtype", "y_dtype", "acc_dtype"};
  const int32_t given[] = {desc->dtype, desc->x_dtype, desc->w_dtype, desc->y_dtype, desc->acc_dtype};
  for (int i = 0; i < 5; i++)
    CHECK(ts_in_range(names[i], given[i], TS_DEFAULT, TS_INT32, error));
  CHECK(ts_in_range("math_mode", desc->math_mode, TS_MATH_EXACT, TS_MATH_TF32, error));
  const int base = desc->dtype ? desc->dtype : TS_FP32;
  const int whole = epilogue->scale ? TS_INT8 : TS_INT32; /* the result of int8 products */
  const int x = desc->x_dtype ? desc->x_dtype : mode == TS_BWD && base == TS_INT8 ? whole : base;
  const int w = desc->w_dtype ? desc->w_dtype : base;
  const int y = desc->y_dtype ? desc->y_dtype : mode != TS_BWD && x == TS_INT8 ? whole : base;
  int acc = desc->acc_dtype;
  if (acc == TS_DEFAULT) {
    acc = x == TS_FP64 || w == TS_FP64 || y == TS_FP64 ? TS_FP64 : TS_FP32;
    if (x == TS_INT8 || w == TS_INT8 || y == TS_INT8) acc = TS_INT32;
  }
  if (desc->math_mode == TS_MATH_TF32) {
    if (desc->acc_dtype != TS_DEFAULT && acc != TS_FP32)
      REFUSE("acc_dtype %s: TS_MATH_TF32 accumulates in fp32", ts_dtype_names[acc]);
    acc = TS_TF32;
  }
  dtypes[0] = x, dtypes[1] = w, dtypes[2] = y, dtypes[3] = acc;
  return check_dtypes(dtypes, mode, epilogue, error);
}
