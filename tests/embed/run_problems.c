/* Runs every problem of a library's self-test on given operands: run_problems INPUT OUTPUT THREADS.
 *
 * INPUT has the bytes of x, w, y, bias, residual and scale of each problem, as far as it has them; OUTPUT gets the
 * result of each. THREADS callers run all of it at the same time, with plans that they share; each must get the same
 * bits.
 */
#include HEADER

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 6, MOST = 64 };

typedef struct operand {
  int32_t dtype;
  int64_t elements;
} operand;

typedef struct problem {
  void (*describe)(ts_desc *desc);
  const char *name;
  double products, terms;
  int result;
  operand operands[OPERANDS];
} problem;

#include "problems.h"

enum { COUNT = sizeof problems / sizeof *problems };

static const int width[] = {0, 8, 4, 2, 2, 1, 1, 1, 4};
static char *given[COUNT][OPERANDS];
static void *packed[COUNT];
static ts_bound_plan *plans[COUNT];

static size_t size_of(int i, int j) {
  return (size_t)problems[i].operands[j].elements * (size_t)width[problems[i].operands[j].dtype];
}

static void *memory(int64_t bytes) {
  void *at = NULL;
  if (posix_memalign(&at, 4096, bytes > 0 ? (size_t)bytes : 1)) exit(3);
  return at;
}

static void must(ts_status status, const char *what) {
  if (status == TS_OK) return;
  fprintf(stderr, "%s: %s\n", what, PREFIX(last_error)());
  exit(4);
}

static ts_operands operands_of(int i, void *result) {
  void *at[OPERANDS];
  for (int j = 0; j < OPERANDS; j++)
    at[j] = given[i][j];
  at[problems[i].result] = result;
  const ts_operands operands = {sizeof operands, TS_ABI_VERSION, at[0], at[1], at[2], at[3], at[4], at[5]};
  return operands;
}

/* All problems; returns their results, one behind the other. */
static void *caller(void *unused) {
  char **results = malloc(COUNT * sizeof *results);
  (void)unused;
  for (int i = 0; i < COUNT; i++) {
    ts_needs needs;
    needs.struct_size = sizeof needs;
    must(PREFIX(plan_sizes)(plans[i], &needs), "plan_sizes");
    void *workspace = memory(needs.workspace_bytes);
    results[i] = memory((int64_t)size_of(i, problems[i].result));
    memcpy(results[i], given[i][problems[i].result], size_of(i, problems[i].result));
    const ts_operands operands = operands_of(i, results[i]);
    must(PREFIX(run)(plans[i], &operands, packed[i], workspace, NULL), "run");
    free(workspace);
  }
  return results;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  FILE *in = fopen(argv[1], "rb");
  ts_library *library;
  must(PREFIX(create)(&library, -1, TS_NO_REFERENCE), "create");
  must(PREFIX(set_threads)(library, 2), "set_threads");
  for (int i = 0; i < COUNT; i++) {
    ts_desc desc;
    must(PREFIX(desc_init)(&desc, sizeof desc, TS_ABI_VERSION), "desc_init");
    problems[i].describe(&desc);
    must(PREFIX(plan_create)(library, &desc, TS_BEST, &plans[i]), problems[i].name);
    for (int j = 0; j < OPERANDS; j++) {
      const size_t size = size_of(i, j);
      given[i][j] = problems[i].operands[j].dtype ? memory((int64_t)size) : NULL;
      if (size && fread(given[i][j], 1, size, in) != size) return 5;
    }
    ts_needs needs;
    needs.struct_size = sizeof needs;
    must(PREFIX(plan_sizes)(plans[i], &needs), "plan_sizes");
    packed[i] = memory(needs.packed_bytes);
    void *workspace = memory(needs.workspace_bytes);
    const ts_operands operands = operands_of(i, given[i][problems[i].result]);
    if (needs.must_prepare) must(PREFIX(prepare)(plans[i], &operands, packed[i], workspace, NULL), "prepare");
    free(workspace);
  }
  fclose(in);

  pthread_t threads[MOST];
  char **results[MOST];
  const int count = atoi(argv[3]);
  for (int t = 0; t < count; t++)
    if (pthread_create(&threads[t], NULL, caller, NULL)) return 6;
  for (int t = 0; t < count; t++)
    pthread_join(threads[t], (void **)&results[t]);
  FILE *out = fopen(argv[2], "wb");
  for (int i = 0; i < COUNT; i++) {
    const size_t size = size_of(i, problems[i].result);
    fwrite(results[0][i], 1, size, out);
    for (int t = 1; t < count; t++)
      if (memcmp(results[t][i], results[0][i], size)) return printf("thread %d: %s\n", t, problems[i].name), 7;
  }
  fclose(out);
  for (int i = 0; i < COUNT; i++) {
    PREFIX(plan_destroy)(plans[i]);
    free(packed[i]);
    for (int j = 0; j < OPERANDS; j++)
      free(given[i][j]);
    for (int t = 0; t < count; t++)
      free(results[t][i]);
  }
  for (int t = 0; t < count; t++)
    free(results[t]);
  PREFIX(destroy)(library);
  return 0;
}
