/* The product of two gathered tiles. */
#include "ts_reference_parts.h"

#include <string.h>

enum { ROWS = 4, COLUMNS = 4 }; /* of the block in registers, which have two doubles on every processor */

typedef double pair __attribute__((vector_size(16)));

void ts_ref_begin(ts_ref_tile *tile, int64_t rows, int64_t columns) {
  tile->rows = rows, tile->columns = columns;
  memset(tile->c, 0, sizeof tile->c);
  memset(tile->exists, 0, sizeof tile->exists);
  if (columns < TS_REF_N) memset(tile->b, 0, sizeof tile->b);
  const int64_t whole = (rows + ROWS - 1) / ROWS * ROWS;
  memset(tile->a + rows * TS_REF_Q, 0, (size_t)(whole - rows) * TS_REF_Q * sizeof *tile->a);
}

static void multiply(double *restrict c, const double *restrict a, const double *restrict b, int64_t rows,
                     int64_t columns, int64_t count) {
  for (int64_t m = 0; m < rows; m += ROWS)
    for (int64_t n = 0; n < columns; n += COLUMNS) {
      pair sum[ROWS][2];
      for (int r = 0; r < ROWS; r++)
        memcpy(sum[r], c + (m + r) * TS_REF_N + n, sizeof sum[r]);
      for (int64_t i = 0; i < count; i++) {
        pair right[2];
        memcpy(right, b + i * TS_REF_N + n, sizeof right);
        for (int r = 0; r < ROWS; r++) {
          const double left = a[(m + r) * TS_REF_Q + i];
          sum[r][0] += left * right[0];
          sum[r][1] += left * right[1];
        }
      }
      for (int r = 0; r < ROWS; r++)
        memcpy(c + (m + r) * TS_REF_N + n, sum[r], sizeof sum[r]);
    }
}

/* Int32 sums wrap. Products of int8 are below 2^15, so that those of a chunk are exact in double. */
static void wrap(double *sums) {
  for (int i = 0; i < TS_REF_M * TS_REF_N; i++)
    sums[i] = (double)(int32_t)(uint32_t)(uint64_t)(int64_t)sums[i];
}

void ts_ref_multiply(ts_ref_tile *tile, int64_t count) {
  multiply(tile->c, tile->a, tile->b, tile->rows, tile->columns, count);
  if (tile->is_whole) wrap(tile->c);
}

void ts_ref_multiply_existing(ts_ref_tile *tile, int64_t count) {
  int is_finite = 1;
  for (int64_t i = 0; i < count * TS_REF_N; i++)
    is_finite &= tile->b[i] - tile->b[i] == 0;
  if (is_finite) {
    ts_ref_multiply(tile, count);
    return;
  }
  for (int64_t m = 0; m < tile->rows; m++)
    for (int64_t i = 0; i < count; i++)
      if (tile->exists[m] >> i & 1)
        for (int64_t n = 0; n < tile->columns; n++)
          tile->c[m * TS_REF_N + n] += tile->a[m * TS_REF_Q + i] * tile->b[i * TS_REF_N + n];
}
