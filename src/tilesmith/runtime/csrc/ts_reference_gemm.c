/* Products of matrices. */
#include "ts_reference_parts.h"

/* Elements from one row, and from one column, of the operand as it is multiplied to the next. */
typedef struct steps {
  int64_t batch;
  int64_t row;
  int64_t column;
} steps;

static steps steps_of(const ts_matrix *matrix) {
  const int64_t lead = matrix->lead ? matrix->lead : matrix->columns;
  const steps found = {matrix->step < 0 ? ts_times(matrix->rows, lead) : matrix->step, matrix->transposed ? 1 : lead,
                       matrix->transposed ? lead : 1};
  return found;
}

/* `count` rows and `across` columns to out[row * pitch + column * step], along the memory. */
static void gather(const ts_matrix *matrix, const void *base, int64_t first, const steps *s, int64_t count,
                   int64_t across, double *out, int64_t pitch) {
  if (s->column <= s->row)
    for (int64_t i = 0; i < count; i++)
      ts_ref_read(matrix->dtype, base, first + i * s->row, s->column, across, out + i * pitch, 1);
  else
    for (int64_t j = 0; j < across; j++)
      ts_ref_read(matrix->dtype, base, first + j * s->column, s->row, count, out + j, pitch);
}

void ts_ref_gemm(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  const ts_reference *r = (const void *)s;
  const ts_gemm *g = &r->gemm;
  const steps a = steps_of(&g->a), b = steps_of(&g->b), c = steps_of(&g->c);
  const ts_ref_end last = ts_ref_end_of(r, p);
  const int64_t blocks = ts_ref_parts(g->n, TS_REF_N);
  ts_ref_tile tile;
  (void)scratch;
  tile.is_whole = g->acc == TS_INT32;
  for (int64_t item = begin; item < end; item++) {
    const int64_t n = item % blocks * TS_REF_N, m = item / blocks % r->tiles * TS_REF_M,
                  batch = item / blocks / r->tiles;
    ts_ref_begin(&tile, ts_ref_least(g->m - m, TS_REF_M), ts_ref_least(g->n - n, TS_REF_N));
    for (int64_t k = 0, count; k < g->k; k += count) {
      count = ts_ref_least(g->k - k, TS_REF_Q);
      gather(&g->a, p[0], batch * a.batch + m * a.row + k * a.column, &a, tile.rows, count, tile.a, TS_REF_Q);
      gather(&g->b, p[1], batch * b.batch + k * b.row + n * b.column, &b, count, tile.columns, tile.b, TS_REF_N);
      ts_ref_multiply(&tile, count);
    }
    for (int64_t i = 0; i < tile.rows; i++) {
      int64_t at[TS_REF_N];
      for (int64_t j = 0; j < tile.columns; j++)
        at[j] = batch * c.batch + (m + i) * c.row + n + j;
      ts_ref_finish(&last, tile.c + i * TS_REF_N, n, at, tile.columns);
    }
  }
}
