/* The types that a caller of the C library sees. Nothing here is a function: several libraries in one program, each
 * with a prefix of its own, share these. C99.
 */
#ifndef TS_TYPES_H
#define TS_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef enum ts_status {
  TS_OK = 0,
  TS_BAD_PLAN,     /* bytes that are damaged, of another version, or out of bounds */
  TS_BAD_ARGUMENT, /* a null, misaligned or unknown argument */
  TS_NO_MEMORY,
  TS_NOT_LOADED,  /* an artifact that cannot be opened, a symbol that is missing, or none bound yet */
  TS_CUDA_ERROR,  /* no CUDA driver, or one that refused a call */
  TS_BAD_PROBLEM, /* a description of a problem that cannot exist */
  TS_BAD_PACKAGE, /* a package that is damaged, of another version, or out of bounds (ts_package.h) */
  TS_NOT_FOUND,   /* a package without such an entry */
  TS_UNSUPPORTED  /* a C library without a kernel for the problem on this machine */
} ts_status;

/* One line that names the value and the rule. Every function that takes one accepts NULL. */
typedef struct ts_error {
  char text[256];
} ts_error;

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

/* --- of the C library (ts_library.h) ---
 *
 * A record that begins with `struct_size` is set up by its caller: struct_size = sizeof of it. A newer library fills,
 * or reads, so much of it as the caller knows. */

typedef struct ts_library ts_library;       /* a library, opened for a GPU or for the CPU */
typedef struct ts_bound_plan ts_bound_plan; /* a plan whose kernels are bound: ready to run */

/* Flags of `create`. */
#define TS_NEAREST 1u      /* kernels of another card or another number of SMs of the GPU's arch may run */
#define TS_NO_REFERENCE 2u /* a problem without a tuned kernel is refused, not computed slowly */

#define TS_BEST UINT32_MAX /* the rank of the first solution */

enum { TS_FROM_LIBRARY, TS_FROM_PACKAGE, TS_FROM_REFERENCE }; /* where a solution comes from: linked in, `load`, ... */

/* A way to compute a problem. */
typedef struct ts_solution {
  uint32_t struct_size;
  uint32_t rank;           /* what `plan_create` takes; 0 is the best */
  double time_us;          /* the median when it was tuned; 0: not measured */
  int64_t workspace_bytes; /* with the number of threads that is set now */
  int64_t packed_bytes;
  uint32_t threads;
  uint32_t origin;  /* TS_FROM_LIBRARY, ... */
  char solver[64];  /* the family of kernels */
  char config[128]; /* and its parameters; cut to what fits */
  char target[80];  /* the machine that it was made for */
} ts_solution;

/* A problem that a library has a plan for. The texts live as long as the call that hands them out. */
typedef struct ts_held_problem {
  uint32_t struct_size;
  uint32_t solutions; /* plans of this problem and target in one package */
  const char *key;    /* ends with 0 */
  const char *target;
  double time_us; /* of the best */
  uint32_t origin;
  uint32_t reserved;
} ts_held_problem;

/* Called for each problem; any other answer than 0 ends the enumeration. */
typedef int (*ts_visit)(void *data, const ts_held_problem *problem);

/* The memory that a plan needs, and how it runs. */
typedef struct ts_needs {
  uint32_t struct_size;
  uint32_t alignment;      /* of both memories, in bytes */
  int64_t workspace_bytes; /* scratch memory of one `run`, and of `prepare` */
  int64_t packed_bytes;    /* the packed filter, which `prepare` writes and `run` reads */
  uint32_t threads;        /* that take part in a `run`; 1 on a GPU */
  int32_t device;          /* addresses are this GPU's; -1: the host's */
  uint32_t must_prepare;   /* 1: `prepare` is to be called for each filter before it is used */
  uint32_t operands;       /* a bit for each operand that a call takes: TS_HAS_X | TS_HAS_W | ... */
  uint32_t results;        /* the bit of the operand that `run` writes */
  uint32_t slot_alignment; /* of the operands, in bytes; 0: of their own elements */
} ts_needs;

enum { TS_HAS_X = 1, TS_HAS_W = 2, TS_HAS_Y = 4, TS_HAS_BIAS = 8, TS_HAS_RESIDUAL = 16, TS_HAS_SCALE = 32 };

/* The tensors of a call, as the description names them: of a GEMM x, w and y are a, b and c. What the problem has not
 * is NULL. Offsets of the description (x_offset_c, y_offset_c) are added by the library. */
typedef struct ts_operands {
  uint32_t struct_size;
  uint32_t abi_version;
  void *x;
  void *w;
  void *y;
  void *bias; /* in mode TS_BGRAD the result */
  void *residual;
  void *scale;
} ts_operands;

#endif
