/* A description as a call needs it: checked, with the operand that each slot of a plan stands for. */
#include "ts_library_parts.h"

#include <string.h>

enum { X, W, Y, BIAS, RESIDUAL, SCALE };

static const char called[][9] = {"x", "w", "y", "bias", "residual", "scale"};

static uint32_t bytes_of(int dtype) {
  static const uint8_t bytes[] = {[TS_FP64] = 8,    [TS_FP32] = 4,    [TS_FP16] = 2, [TS_BF16] = 2,
                                  [TS_FP8E4M3] = 1, [TS_FP8E5M2] = 1, [TS_INT8] = 1, [TS_INT32] = 4};
  return bytes[dtype];
}

static void put(ts_asked *asked, const char *slot, int operand, int64_t offset, int dtype) {
  asked->places[asked->count++] = (ts_place){slot, called[operand], 1u << operand, offset, bytes_of(dtype)};
}

/* `dtype` is the result's. */
static void put_epilogue(ts_asked *asked, const ts_epilogue *epilogue, const char *bias, int dtype) {
  const int is_scaled = epilogue->scale != TS_SCALE_NONE;
  if (epilogue->bias) put(asked, bias, BIAS, 0, is_scaled ? TS_FP32 : dtype);
  if (epilogue->residual) put(asked, "z", RESIDUAL, 0, dtype);
  if (is_scaled) put(asked, "s", SCALE, 0, TS_FP32);
}

/* Bytes before the first channel. */
static int64_t bytes_before(const ts_view *view, int64_t channels) {
  return channels == 0 ? 0 : channels / view->vector * view->step[TS_C] * bytes_of(view->dtype);
}

/* Slots in the order of plan/slots.py. A transposed convolution is the gradient of another one, whose x is its y. */
static ts_status place_conv(ts_asked *asked, ts_error *error) {
  ts_conv conv;
  CHECK(ts_conv_read(&asked->desc, &conv, error));
  const int64_t x_offset = bytes_before(&conv.x, asked->desc.x_offset_c);
  const int64_t y_offset = bytes_before(&conv.y, asked->desc.y_offset_c);
  int mode = conv.mode;
  const int swapped = conv.transposed && mode != TS_BGRAD;
  if (swapped && mode != TS_WRW) mode = mode == TS_FWD ? TS_BWD : TS_FWD;
  const int x = swapped ? Y : X, y = swapped ? X : Y;
  const int64_t before_x = swapped ? y_offset : x_offset, before_y = swapped ? x_offset : y_offset;
  const int x_dtype = swapped ? conv.y.dtype : conv.x.dtype, y_dtype = swapped ? conv.x.dtype : conv.y.dtype;
  if (mode == TS_FWD)
    put(asked, "x", x, before_x, x_dtype);
  else
    put(asked, "y", y, before_y, y_dtype);
  if (mode == TS_BGRAD) {
    put(asked, "b", BIAS, 0, y_dtype);
  } else if (mode == TS_WRW) {
    put(asked, "x", x, before_x, x_dtype);
    put(asked, "w", W, 0, conv.w.dtype);
  } else {
    put(asked, "w", W, 0, conv.w.dtype);
    put_epilogue(asked, &conv.epilogue, "b", mode == TS_FWD ? y_dtype : x_dtype);
    if (mode == TS_FWD)
      put(asked, "y", y, before_y, y_dtype);
    else
      put(asked, "x", x, before_x, x_dtype);
  }
  return TS_OK;
}

static ts_status place_gemm(ts_asked *asked, ts_error *error) {
  ts_gemm gemm;
  CHECK(ts_gemm_read(&asked->desc, &gemm, error));
  put(asked, "a", X, 0, gemm.a.dtype);
  put(asked, "b", W, 0, gemm.b.dtype);
  put_epilogue(asked, &gemm.epilogue, "bias", gemm.c.dtype);
  put(asked, "c", Y, 0, gemm.c.dtype);
  return TS_OK;
}

static ts_status ask(const ts_desc *desc, ts_asked *asked, ts_error *error) {
  asked->count = 0;
  CHECK(ts_desc_read(desc, &asked->desc, error));
  asked->desc.struct_size = sizeof asked->desc; /* the caller's record may be longer or shorter */
  CHECK(ts_problem_key(&asked->desc, asked->key, sizeof asked->key, error));
  return asked->desc.op == TS_GEMM ? place_gemm(asked, error) : place_conv(asked, error);
}

ts_status ts_library_ask(const ts_desc *desc, ts_asked *asked) {
  ts_error error = {""};
  const ts_status status = ask(desc, asked, &error);
  return status == TS_OK ? status : ts_library_failed(status, &error);
}
