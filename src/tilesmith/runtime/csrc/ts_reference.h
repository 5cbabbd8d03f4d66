/* The plain reference on a CPU: every problem that a ts_desc describes, with sizes at run time.
 *
 *     ts_reference reference;
 *     ts_error error;
 *     if (ts_reference_open(&desc, &reference, &error) != TS_OK) fail(error.text);
 *     void *slots[] = {x, w, bias, y};
 *     ts_reference_run(&reference, slots, 16);
 *
 * It needs no compiler, workspace or packed filter, and it is slow: it gathers each operand. Sums are made in double,
 * those of int8 products modulo 2^32; a result is rounded once. The bits of a result do not depend on the number of
 * threads. NaN and Inf reach the results whose sums contain them, and no others: docs/reference/kernels.md.
 */
#ifndef TS_REFERENCE_H
#define TS_REFERENCE_H

#include "ts_check.h"

enum { TS_REFERENCE_SLOTS = 6 }; /* the most that a call has */

/* A problem, checked and bound to its kernel. It holds no address and owns nothing: it may be copied, and used by any
 * number of threads. */
typedef struct ts_reference {
  ts_kernel kernel;
  int64_t items;  /* 0: the result is empty */
  int64_t chunk;  /* the fewest items that are worth a thread */
  double seconds; /* estimated, on one thread */
  uint32_t slots;
  uint32_t operands; /* of the products: they come first */
  uint32_t bias;     /* its slot; 0: there is none, as for the next two */
  uint32_t residual;
  uint32_t scale;
  int is_blank;     /* the operands have no elements, and each sum is 0 */
  int64_t tiles;    /* of positions, in each group, phase or batch; TS_BGRAD: channels */
  int64_t phase[3]; /* forward, backward data: distance of two positions of a tile, for each axis */
  ts_conv conv;     /* with `transposed` resolved: mode, x and y are those of the convolution that it is */
  ts_gemm gemm;
} ts_reference;

/* TS_OK, or the answers of ts_desc_check: there is no problem that ts_desc_check accepts and this refuses. */
ts_status ts_reference_open(const ts_desc *desc, ts_reference *reference, ts_error *error);
/* `slots` are addresses in the order of a plan for the same problem, each aligned to its element:
 *   fwd    x w [bias] [residual] [scale] y     bwd  dy w [bias] [residual] [scale] dx
 *   wrw    dy x dw (transposed: x dy dw)       bgrad  dy db
 *   GEMM   a b [bias] [residual] [scale] c
 * Each is the address of the first element: the caller adds x_offset_c and y_offset_c. A tensor without elements may
 * be NULL. `threads` is from 1, the caller counted. TS_BAD_ARGUMENT: a null address, or no thread. */
ts_status ts_reference_run(const ts_reference *reference, void *const *slots, uint32_t threads);

#endif
