/* A matrix product's description, checked, and its one spelling. */
#include "ts_check.h"

#include <string.h>

/* A factor of an int32 result is a whole number. */
static ts_status check_factor(const char *name, double value, int whole, ts_error *error) {
  char text[TS_REAL_ROOM];
  if (!(value - value == 0)) REFUSE("%s is %s; it must be finite", name, ts_real_text(value, text));
  if (whole && (value < -TS_MAX_SIZE || value > TS_MAX_SIZE || value != (double)(int64_t)value))
    REFUSE("%s is %s; for an int32 result it must be a whole number below 2^31", name, ts_real_text(value, text));
  return TS_OK;
}

static int64_t lead_of(const ts_matrix *matrix) {
  return matrix->lead ? matrix->lead : matrix->columns;
}

/* Elements from one matrix to the next. */
static int64_t step_of(const ts_matrix *matrix) {
  return matrix->step < 0 ? ts_times(matrix->rows, lead_of(matrix)) : matrix->step;
}

static ts_status check_step(ts_matrix *matrix, int64_t batch, ts_error *error) {
  char name[] = "stride_a";
  name[7] = matrix->letter;
  const int is_result = matrix->letter == 'c';
  const int64_t step = matrix->step, lead = lead_of(matrix), rows = matrix->rows, columns = matrix->columns;
  CHECK(ts_in_range(name, step, is_result, TS_MAX_STRIDE, error));
  const int64_t below = ts_times(rows - 1, lead), last = ts_times(batch - 1, step);
  const int is_apart = below <= INT64_MAX - columns && step >= below + columns;
  const int is_between = step >= columns && last <= INT64_MAX - columns && last + columns <= lead;
  if (is_result && batch > 1 && !is_apart && !is_between)
    REFUSE("%s is %lld: the %lld results of %lld x %lld overlap", name, (long long)step, (long long)batch,
           (long long)rows, (long long)columns);
  if (batch == 1 || step == ts_times(rows, lead)) matrix->step = -1;
  return TS_OK;
}

/* Check the leading dimension and the batch stride of one matrix; dense ones become 0 and -1. */
static ts_status settle(ts_matrix *matrix, int64_t batch, ts_error *error) {
  char name[] = "lda";
  name[2] = matrix->letter;
  const int64_t rows = matrix->rows, columns = matrix->columns;
  if (matrix->lead) {
    CHECK(ts_in_range(name, matrix->lead, 1, TS_MAX_STRIDE, error));
    if (matrix->lead < columns)
      REFUSE("%s is %lld, smaller than a stored row of %lld elements", name, (long long)matrix->lead,
             (long long)columns);
  }
  if (matrix->lead == columns || rows == 1) matrix->lead = 0;
  if (matrix->step != -1) CHECK(check_step(matrix, batch, error));
  ts_wide distance = {0, 0};
  ts_add(&distance, rows - 1, lead_of(matrix));
  ts_add(&distance, columns - 1, 1);
  if (batch == 0 && matrix->step < 0)
    ts_add(&distance, -rows, lead_of(matrix)); /* -step, which may be too large */
  else if (batch != 1)
    ts_add(&distance, batch - 1, step_of(matrix));
  return ts_check_span(matrix->letter, distance, error);
}

static ts_matrix matrix_of(char letter, int dtype, int transposed, int64_t rows, int64_t columns, int64_t lead,
                           int64_t step) {
  return (ts_matrix){.letter = letter,
                     .dtype = dtype,
                     .transposed = transposed,
                     .rows = transposed ? columns : rows,
                     .columns = transposed ? rows : columns,
                     .lead = lead,
                     .step = step};
}

ts_status ts_gemm_read(const ts_desc *desc, ts_gemm *gemm, ts_error *error) {
  memset(gemm, 0, sizeof *gemm);
  CHECK(ts_check_size("m", desc->m, 0, TS_MAX_SIZE, error));
  CHECK(ts_check_size("n", desc->n, 0, TS_MAX_SIZE, error));
  CHECK(ts_check_size("k", desc->k, 0, TS_MAX_SIZE, error));
  CHECK(ts_in_range("batch", desc->batch, 0, TS_MAX_SIZE, error));
  CHECK(ts_in_range("trans_a", desc->trans_a, 0, 1, error));
  CHECK(ts_in_range("trans_b", desc->trans_b, 0, 1, error));
  CHECK(ts_read_epilogue(desc, &gemm->epilogue, error));
  int dtypes[4];
  CHECK(ts_read_dtypes(desc, TS_FWD, &gemm->epilogue, dtypes, error));
  CHECK(check_factor("alpha", desc->alpha, dtypes[3] == TS_INT32, error));
  CHECK(check_factor("beta", desc->beta, dtypes[3] == TS_INT32, error));
  gemm->m = desc->m, gemm->n = desc->n, gemm->k = desc->k, gemm->batch = desc->batch;
  gemm->acc = dtypes[3];
  gemm->deterministic = desc->deterministic, gemm->workspace_limit = desc->workspace_limit;
  gemm->alpha = desc->alpha + 0.0, gemm->beta = desc->beta + 0.0; /* -0.0 becomes 0.0 */
  gemm->a = matrix_of('a', dtypes[0], desc->trans_a, gemm->m, gemm->k, desc->lda, desc->stride_a);
  gemm->b = matrix_of('b', dtypes[1], desc->trans_b, gemm->k, gemm->n, desc->ldb, desc->stride_b);
  gemm->c = matrix_of('c', dtypes[2], 0, gemm->m, gemm->n, desc->ldc, desc->stride_c);
  CHECK(settle(&gemm->a, gemm->batch, error));
  CHECK(settle(&gemm->b, gemm->batch, error));
  return settle(&gemm->c, gemm->batch, error);
}

/* A dense k x m matrix with one row or column has the memory of an m x k matrix; with a pitch, one with one row has. */
static ts_status untranspose(ts_matrix *matrix, int64_t batch, ts_error *error) {
  if (!matrix->transposed || (matrix->rows != 1 && (matrix->columns != 1 || matrix->lead))) return TS_OK;
  const int64_t rows = matrix->rows;
  matrix->step = step_of(matrix);
  matrix->rows = matrix->columns;
  matrix->columns = rows;
  matrix->transposed = 0;
  matrix->lead = 0;
  return settle(matrix, batch, error);
}

ts_status ts_gemm_canonical(ts_gemm *gemm, ts_error *error) {
  if (gemm->m == 0 || gemm->n == 0 || gemm->k == 0 || gemm->batch == 0) return TS_OK;
  CHECK(untranspose(&gemm->a, gemm->batch, error));
  return untranspose(&gemm->b, gemm->batch, error);
}
