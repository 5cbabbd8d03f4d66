/* A problem, a convolution or a matrix product, as a plain record: what it is, its checks, and its key.
 *
 *     ts_desc desc;
 *     ts_desc_init(&desc, sizeof desc, TS_ABI_VERSION);
 *     desc.layout = TS_NHWC, desc.n = 1, desc.c = 32, desc.k = 64, ...
 *     char key[TS_KEY_ROOM];
 *     ts_error error;
 *     if (ts_problem_key(&desc, key, sizeof key, &error) != TS_OK) fail(error.text);
 *
 * A field that a problem does not read must have the value that ts_desc_init gave it. Nothing here allocates, prints or
 * keeps anything. The reference has a table of the fields: docs/reference/c-descriptor.md. C99.
 */
#ifndef TS_PROBLEM_H
#define TS_PROBLEM_H

#include "tilesmith_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TS_ABI_VERSION 1
#define TS_KEY_ROOM 1024 /* bytes; no key with its closing 0 is longer */

enum { TS_CONVOLUTION, TS_GEMM };          /* op */
enum { TS_FWD, TS_BWD, TS_WRW, TS_BGRAD }; /* mode: y of x, w; dx of dy, w; dw of dy, x; db of dy */
/* Element types. The default of `dtype` is fp32; docs/reference/c-descriptor.md has those of the others. */
enum { TS_DEFAULT, TS_FP64, TS_FP32, TS_FP16, TS_BF16, TS_FP8E4M3, TS_FP8E5M2, TS_INT8, TS_INT32 };
enum { TS_MATH_EXACT, TS_MATH_TF32 }; /* math_mode; TF32: fp32 operands may be rounded to 10 bits of fraction */
enum {                                /* activation */
       TS_NONE,
       TS_RELU,
       TS_LEAKY_RELU,
       TS_SILU,
       TS_GELU,
       TS_CLAMP,
       TS_SIGMOID,
       TS_TANH,
       TS_HARDSWISH,
       TS_HARDSIGMOID,
       TS_GELU_TANH
};
enum { TS_SCALE_NONE, TS_SCALE_TENSOR, TS_SCALE_CHANNEL }; /* scale */

/* A layout: the order of a tensor's axes in memory, the outermost first. 0 is the default. Any order may be given:
 * TS_LAYOUT4(C, H, W, N). In vectors of channels: TS_NCHW | TS_VECTOR(4), with 4, 8, 16 or 32. */
enum { TS_AXIS_N = 1, TS_AXIS_C, TS_AXIS_D, TS_AXIS_H, TS_AXIS_W };
#define TS_LAYOUT3(a, b, c) (TS_AXIS_##a | TS_AXIS_##b << 4 | TS_AXIS_##c << 8)
#define TS_LAYOUT4(a, b, c, d) (TS_LAYOUT3(a, b, c) | TS_AXIS_##d << 12)
#define TS_LAYOUT5(a, b, c, d, e) (TS_LAYOUT4(a, b, c, d) | TS_AXIS_##e << 16)
#define TS_VECTOR(width) ((width) << 24)
enum {
  TS_NCW = TS_LAYOUT3(N, C, W),
  TS_NWC = TS_LAYOUT3(N, W, C),
  TS_NCHW = TS_LAYOUT4(N, C, H, W),
  TS_NHWC = TS_LAYOUT4(N, H, W, C),
  TS_NCDHW = TS_LAYOUT5(N, C, D, H, W),
  TS_NDHWC = TS_LAYOUT5(N, D, H, W, C)
};

typedef struct ts_desc {
  uint32_t struct_size; /* set by ts_desc_init */
  uint32_t abi_version; /* set by ts_desc_init */
  int32_t op;
  int32_t deterministic;   /* 1: the same bits at each call */
  int64_t workspace_limit; /* bytes; -1: no limit */

  int32_t dtype; /* of each tensor whose own is TS_DEFAULT */
  int32_t x_dtype;
  int32_t w_dtype;
  int32_t y_dtype;
  int32_t acc_dtype; /* of the sums */
  int32_t math_mode;

  /* The result is activation(scale * r + bias + residual). */
  int32_t bias;     /* 1: add one element for each channel of the result */
  int32_t residual; /* 1: add a tensor like the result */
  int32_t activation;
  int32_t scale; /* one factor, or one for each channel; int8 and fp8 results only */
  double slope;  /* of TS_LEAKY_RELU */
  double low;    /* of TS_CLAMP */
  double high;   /* of TS_CLAMP */

  /* A convolution. Sizes are those of the forward problem in every mode. Arrays have one value for each spatial axis,
   * the outermost first: {H, W} if `dims` is 2. */
  int32_t mode;
  int32_t transposed;
  int32_t dims;     /* spatial axes, 1 to 3 */
  int32_t layout;   /* of each tensor whose own is 0 */
  int32_t x_layout; /* 0, `layout` too: TS_NCW, TS_NCHW or TS_NCDHW */
  int32_t w_layout; /* N stands for its first axis (k; transposed: c), C for the channels of one group */
  int32_t y_layout;
  int32_t reserved; /* 0 */
  int64_t n;        /* images; of a GEMM the columns of y */
  int64_t c;        /* channels of x */
  int64_t k;        /* channels of y; of a GEMM the length of the sums */
  int64_t groups;
  int64_t in[3]; /* the image of x */
  int64_t filter[3];
  int64_t out[3]; /* the image of y; 0: derived, else it must be what is derived */
  int64_t padding_low[3];
  int64_t padding_high[3];
  int64_t stride[3];
  int64_t dilation[3];
  int64_t output_padding[3]; /* of a transposed convolution */

  /* Elements from one ... of a tensor to the next; 0: dense. */
  int64_t x_pitch_c;       /* pixel (axis W): the channels that a pixel has room for, if the layout ends in C */
  int64_t x_pitch_row;     /* axis H */
  int64_t x_pitch_plane;   /* axis D */
  int64_t x_pitch_image;   /* axis N */
  int64_t x_pitch_channel; /* axis C; from one vector of channels to the next */
  int64_t w_pitch_c;
  int64_t w_pitch_row;
  int64_t w_pitch_plane;
  int64_t w_pitch_image; /* axis N */
  int64_t w_pitch_channel;
  int64_t y_pitch_c;
  int64_t y_pitch_row;
  int64_t y_pitch_plane;
  int64_t y_pitch_image;
  int64_t y_pitch_channel;
  /* Channels before the first one of x, or of y, in wider pixels. They are no part of the problem or of its key: calls
   * add them to the address that is passed. */
  int64_t x_offset_c;
  int64_t y_offset_c;

  /* A GEMM: y = alpha * op(x) op(w) + beta * y for each of `batch` matrices; op(x) is m x k, op(w) is k x n, y is
   * m x n, all in rows. x, w and y are a, b and c in the names of BLAS. */
  int64_t m;
  int64_t batch;
  int32_t trans_a; /* 1: a is stored as k x m */
  int32_t trans_b; /* 1: b is stored as n x k */
  double alpha;
  double beta;
  int64_t lda; /* elements from one stored row to the next; 0: dense */
  int64_t ldb;
  int64_t ldc;
  int64_t stride_a; /* elements from one matrix to the next; -1: dense, 0: all batches share one */
  int64_t stride_b;
  int64_t stride_c; /* -1: dense; never 0 */
} ts_desc;

/* What memory a result takes: sizes and strides in elements, the outermost axis first, a vector axis last. */
typedef struct ts_shape {
  uint32_t axes;
  uint32_t reserved;
  int64_t size[6];
  int64_t stride[6];
  int64_t elements; /* from the first to the last, gaps included; 0 if there is none */
} ts_shape;

/* Write the defaults. `struct_size` is sizeof(ts_desc), `abi_version` TS_ABI_VERSION, both as the caller was compiled:
 * a newer library fills a shorter record, and an older library zeroes what it does not know. */
ts_status ts_desc_init(ts_desc *desc, size_t struct_size, uint32_t abi_version);
/* TS_OK if there is such a problem. TS_BAD_PROBLEM: `error` names the field, its value and the rule. TS_BAD_ARGUMENT:
 * a null pointer, or a record of another version. */
ts_status ts_desc_check(const ts_desc *desc, ts_error *error);
/* The shape of y, which is the forward result in every mode. */
ts_status ts_output_shape(const ts_desc *desc, ts_shape *shape, ts_error *error);
/* The problem's name in databases, as text that ends with 0: the same for all descriptions of one problem. It goes to
 * `out` of `room` bytes; if they are too few, to no place, and the answer is TS_BAD_ARGUMENT. */
ts_status ts_problem_key(const ts_desc *desc, char *out, size_t room, ts_error *error);
/* All keys under which databases may hold the problem, in the order in which they are looked up: an axis of size 1 has
 * several places in a layout. 0 is the key of ts_problem_key; the text is empty from the first `index` that has none.
 */
ts_status ts_problem_spelling(const ts_desc *desc, uint32_t index, char *out, size_t room, ts_error *error);

#ifdef __cplusplus
}
#endif

#endif
