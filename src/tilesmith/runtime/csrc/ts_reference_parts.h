/* What the kernels of the plain reference share: tiles, numbers, and what happens to a finished sum.
 *
 * Each kernel is a matrix product. A tile has TS_REF_M positions of the result by TS_REF_N of its channels. Operands
 * are gathered TS_REF_Q elements of the sum at a time, as doubles: every element type fits into one. */
#ifndef TS_REFERENCE_PARTS_H
#define TS_REFERENCE_PARTS_H

#include "ts_reference.h"

enum { TS_REF_M = 32, TS_REF_N = 16, TS_REF_Q = 64 };

typedef struct ts_ref_tile {
  _Alignas(64) double a[TS_REF_M * TS_REF_Q]; /* [position][element of the sum] */
  _Alignas(64) double b[TS_REF_Q * TS_REF_N]; /* [element of the sum][channel] */
  _Alignas(64) double c[TS_REF_M * TS_REF_N];
  uint64_t exists[TS_REF_M]; /* backward data: a bit for each element of a row of `a` that is a product's operand */
  int64_t rows;              /* positions and channels in use */
  int64_t columns;
  int is_whole; /* sums of int8 products */
} ts_ref_tile;

/* What becomes of sums: alpha * sum, the epilogue, and where they go. */
typedef struct ts_ref_end {
  double alpha;
  double beta;
  ts_epilogue epilogue;
  int dtype;    /* of the result */
  int is_whole; /* an int32 result */
  const void *bias;
  const void *residual;
  const float *scale;
  void *result;
} ts_ref_end;

/* out[i * step] = the element at base[first + at[i]], or 0 where at[i] is negative. */
void ts_ref_gather(int dtype, const void *base, int64_t first, const int64_t *at, int64_t count, double *out,
                   int64_t step);
/* out[i * step] = the element at base[first + i * stride]. */
void ts_ref_read(int dtype, const void *base, int64_t first, int64_t stride, int64_t count, double *out, int64_t step);
/* Rounds values[i] to the type, to nearest even, and stores it at base[at[i]]. An int8 is saturated, of NaN 0. */
void ts_ref_store(int dtype, void *base, const int64_t *at, int64_t count, const double *values);
/* values[i] = activation(values[i]) */
void ts_ref_activate(const ts_epilogue *epilogue, double *values, int64_t count);

/* Begin a tile: sums of 0, and zeros where there are fewer rows or columns. */
void ts_ref_begin(ts_ref_tile *tile, int64_t rows, int64_t columns);
/* c += a * b for the first `count` elements of the sums. */
void ts_ref_multiply(ts_ref_tile *tile, int64_t count);
/* The same for the products that exist alone: a missing one adds nothing, also where its filter element is NaN. */
void ts_ref_multiply_existing(ts_ref_tile *tile, int64_t count);

/* The end of a call's sums, from its slots. */
ts_ref_end ts_ref_end_of(const ts_reference *reference, void *const *slots);
/* End `count` sums, at most TS_REF_N, of neighbouring channels; they go to result[at[i]], and are overwritten. */
void ts_ref_finish(const ts_ref_end *end, double *sums, int64_t channel, const int64_t *at, int64_t count);

/* Where channel `c` lies. */
static inline int64_t ts_ref_channel(const ts_view *view, int64_t c) {
  return view->vector == 1 ? c * view->step[TS_C] : c / view->vector * view->step[TS_C] + c % view->vector;
}

static inline int64_t ts_ref_least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The number of parts of `size` elements, the last one of which may be smaller. */
static inline int64_t ts_ref_parts(int64_t all, int64_t size) {
  return all / size + (all % size != 0);
}

/* ts_kernels; the scalars are the ts_reference. */
void ts_ref_conv(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end);
void ts_ref_wrw(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end);
void ts_ref_bgrad(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end);
void ts_ref_gemm(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end);

#endif
