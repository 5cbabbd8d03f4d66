/* Checked problems: what ts_problem.h's record means, resolved and canonical. The rules are those of Python's
 * problems/. */
#ifndef TS_CHECK_H
#define TS_CHECK_H

#include "ts_plan.h"
#include "ts_problem.h"

#define TS_MAX_SIZE INT32_MAX
#define TS_MAX_STRIDE ((int64_t)1 << 62)
#define TS_MOST_ELEMENTS ((int64_t)1 << 59)
#define TS_TF32 (TS_INT32 + 1) /* an accumulation type beside the element types */
#define TS_REAL_ROOM 32        /* bytes of a number's text */

/* In a function that has `error` and returns a status. */
#define REFUSE(...) return ts_fail(error, TS_BAD_PROBLEM, __VA_ARGS__)
#define CHECK(call)                       \
  do {                                    \
    const ts_status checked = (call);     \
    if (checked != TS_OK) return checked; \
  } while (0)

/* The axes of a tensor, counted from 0; a spatial axis also counts within D, H, W. */
enum { TS_N, TS_C, TS_D, TS_H, TS_W, TS_AXES };

/* By the numbers of ts_problem.h, as keys have them. Texts lie in their tables: a pointer in a constant of a shared
 * library costs the 24 bytes of a relocation. */
extern const char ts_dtype_names[][8];
extern const char ts_mode_names[][6];
extern const char ts_activation_names[][12];

typedef struct ts_epilogue {
  int bias;
  int residual;
  int activation;
  int scale;
  double slope;
  double low;
  double high;
} ts_epilogue;

/* A tensor of a convolution. Sizes and steps are in the order N, C, D, H, W; those of C count vectors of channels. */
typedef struct ts_view {
  char letter;
  int dtype;
  int rank; /* axes, without that of a vector */
  int order[TS_AXES];
  int64_t vector;
  int64_t size[TS_AXES];
  int64_t step[TS_AXES];
  int is_dense;
} ts_view;

/* Spatial values are in the order D, H, W; those of an axis that the problem lacks change nothing. */
typedef struct ts_conv {
  int mode;
  int transposed;
  int dims;
  int acc;
  int deterministic;
  int is_empty;
  int swapped; /* canonical: its x is the description's y, and the reverse */
  int64_t groups;
  int64_t low[3];
  int64_t high[3];
  int64_t stride[3];
  int64_t dilation[3];
  int64_t output_padding[3];
  int64_t workspace_limit; /* -1: none */
  ts_view x;
  ts_view w;
  ts_view y;
  ts_epilogue epilogue;
} ts_conv;

typedef struct ts_matrix {
  char letter;
  int dtype;
  int transposed;
  int64_t rows; /* as stored */
  int64_t columns;
  int64_t lead; /* 0: dense */
  int64_t step; /* -1: dense */
} ts_matrix;

typedef struct ts_gemm {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t batch;
  int acc;
  int deterministic;
  ts_matrix a;
  ts_matrix b;
  ts_matrix c;
  double alpha;
  double beta;
  int64_t workspace_limit;
  ts_epilogue epilogue;
} ts_gemm;

/* A whole number of up to 96 bits: high * 2^32 + low, 0 <= low < 2^32. */
typedef struct ts_wide {
  int64_t high;
  int64_t low;
} ts_wide;

/* ts_problem.c: the record, in full, of this library's version; refuses values in fields that its `op` does not read.
 */
ts_status ts_desc_read(const ts_desc *given, ts_desc *desc, ts_error *error);

/* ts_fields.c: what both kinds of problem have. */
ts_status ts_read_epilogue(const ts_desc *desc, ts_epilogue *epilogue, ts_error *error);
/* Types of x, w, y and of the sums; `mode` is TS_FWD for a GEMM. */
ts_status ts_read_dtypes(const ts_desc *desc, int mode, const ts_epilogue *epilogue, int dtypes[4], ts_error *error);
ts_status ts_in_range(const char *name, int64_t value, int64_t least, int64_t most, ts_error *error);
/* The same for a field that must be given. */
ts_status ts_check_size(const char *name, int64_t value, int64_t least, int64_t most, ts_error *error);
/* The product, at most INT64_MAX; a from -1, b from 0. */
int64_t ts_times(int64_t a, int64_t b);
/* Adds count * stride; -2^31 <= count < 2^31, 0 <= stride. */
void ts_add(ts_wide *sum, int64_t count, int64_t stride);
/* Whether the elements of a tensor, of which the first and the last are `distance` apart, end below 2^59. */
ts_status ts_check_span(char letter, ts_wide distance, ts_error *error);

ts_status ts_conv_read(const ts_desc *desc, ts_conv *conv, ts_error *error);
ts_status ts_conv_canonical(ts_conv *conv, ts_error *error);
/* Steps of a view: those given, or dense ones where 0 is given. */
ts_status ts_view_settle(ts_view *view, const int64_t given[TS_AXES], ts_error *error);

ts_status ts_gemm_read(const ts_desc *desc, ts_gemm *gemm, ts_error *error);
ts_status ts_gemm_canonical(ts_gemm *gemm, ts_error *error);

/* The keys, of canonical problems. Return the length without the closing 0; what does not fit into `room` is lost. */
size_t ts_conv_key(const ts_conv *conv, char *out, size_t room);
size_t ts_gemm_key(const ts_gemm *gemm, char *out, size_t room);

/* ts_spellings.c: of a canonical problem, its key (index 0) or another one, empty if there are not so many. */
ts_status ts_conv_spelling(const ts_conv *conv, uint32_t index, char key[TS_KEY_ROOM], ts_error *error);

/* ts_real.c: the shortest text that reads back as `value`, as Python's repr has it, in any locale. Returns `out`. */
char *ts_real_text(double value, char out[TS_REAL_ROOM]);

#endif
