/* Stands in for a compiled kernel of CUTLASS: the interface of host.cu, column-major, computed on the host. */
#include <stdint.h>
#include <stdlib.h>

typedef struct {
  int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
  const float *a, *b;
  float *c;
  int64_t splits;
  double alpha;
} Problem;

int64_t ts_cutlass_workspace(const Problem *p) {
  return p->splits > 4 ? -1 : 16 * p->splits;
}

int ts_cutlass_prepare(const Problem *p, void *workspace, void *stream, void **made) {
  Problem *held = malloc(sizeof *held);
  (void)workspace, (void)stream;
  *held = *p;
  *made = held;
  return 0;
}

int ts_cutlass_run(void *prepared, void *stream) {
  const Problem *p = prepared;
  if (stream != NULL) return 7;
  for (int64_t l = 0; l < p->batch; ++l)
    for (int64_t j = 0; j < p->n; ++j)
      for (int64_t i = 0; i < p->m; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < p->k; ++k) {
          const int64_t a = LAYOUT_A == 'n' ? i + k * p->lda : k + i * p->lda;
          const int64_t b = LAYOUT_B == 'n' ? k + j * p->ldb : j + k * p->ldb;
          sum += (double)p->a[l * p->stride_a + a] * p->b[l * p->stride_b + b];
        }
        p->c[l * p->stride_c + j * p->ldc + i] = (float)(p->alpha * sum);
      }
  return 0;
}

void ts_cutlass_free(void *prepared) {
  free(prepared);
}
