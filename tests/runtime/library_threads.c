/* Runs problems with the C library, from many threads at a time.
 *
 *     library_threads THREADS [PACKAGE] < problems > results
 *
 * A problem is a ts_desc, then six operands in the order of ts_operands: their bytes (u64, 0: none) and contents. The
 * result of each is written. Exit status 3: a thread got another result, 4: `prepare` or `run` allocated, 2: a call
 * failed. Built with -Wl,--wrap for malloc, calloc, realloc and aligned_alloc it counts what is allocated. */
#include "ts_library.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 16
#define RUNS 4

static _Atomic long allocations;

#ifdef COUNTED
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size) {
  allocations++;
  return __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size) {
  allocations++;
  return __real_calloc(count, size);
}
void *__wrap_realloc(void *memory, size_t size) {
  allocations++;
  return __real_realloc(memory, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  allocations++;
  return __real_aligned_alloc(alignment, size);
}
#endif

static void *aligned(uint32_t alignment, int64_t bytes) {
  return bytes ? aligned_alloc(alignment, ((size_t)bytes + alignment - 1) / alignment * alignment) : NULL;
}

static void check(ts_status status, const char *what) {
  if (status == TS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ts_library_status_string(status), ts_library_last_error());
  exit(2);
}

typedef struct problem {
  ts_desc desc;
  ts_operands operands;
  uint64_t bytes[6];
} problem;

static void **operand(ts_operands *operands, int index) {
  void **places[] = {&operands->x, &operands->w, &operands->y, &operands->bias, &operands->residual, &operands->scale};
  return places[index];
}

static int result_of(const ts_needs *needs) {
  int index = 0;
  while (!(needs->results >> index & 1))
    index++;
  return index;
}

static ts_library *library;
static problem now;
static ts_bound_plan *plan;
static ts_needs needs = {.struct_size = sizeof needs};
static void *packed;
static const char *package;
static _Atomic int differ;

static int count_problem(void *data, const ts_held_problem *held) {
  *(uint32_t *)data += held->solutions;
  return 0;
}

/* One thread: the shared plan, and a plan of its own, each into its own result. */
static void *work(void *argument) {
  const int number = (int)(intptr_t)argument, index = result_of(&needs);
  ts_operands operands = now.operands;
  const size_t bytes = (size_t)now.bytes[index];
  *operand(&operands, index) = aligned(64, (int64_t)bytes);
  void *workspace = aligned(needs.alignment, needs.workspace_bytes);
  uint32_t count = 0;
  if (number % 4 == 1) check(ts_library_enumerate(library, count_problem, &count), "enumerate");
  if (number % 4 == 2 && package != NULL) check(ts_library_load(library, package), "load");
  ts_bound_plan *own = plan;
  if (number % 4 == 3) check(ts_library_plan_create(library, &now.desc, 0, &own), "plan_create");
  for (int i = 0; i < RUNS; i++) {
    memcpy(*operand(&operands, index), *operand(&now.operands, index), bytes);
    check(ts_library_run(own, &operands, packed, workspace, NULL), "run");
    if (number == 0 && i == 0)
      memcpy(*operand(&now.operands, index), *operand(&operands, index), bytes);
    else if (memcmp(*operand(&now.operands, index), *operand(&operands, index), bytes) != 0)
      differ = 1;
  }
  if (own != plan) ts_library_plan_destroy(own);
  free(workspace);
  free(*operand(&operands, index));
  return NULL;
}

static void run_problem(int threads) {
  check(ts_library_plan_create(library, &now.desc, TS_BEST, &plan), "plan_create");
  check(ts_library_plan_sizes(plan, &needs), "plan_sizes");
  packed = aligned(needs.alignment, needs.packed_bytes);
  void *workspace = aligned(needs.alignment, needs.workspace_bytes);
  const long before = allocations;
  check(ts_library_prepare(plan, &now.operands, packed, workspace, NULL), "prepare");
  check(ts_library_run(plan, &now.operands, packed, workspace, NULL), "run");
  if (allocations != before) exit(4);
  free(workspace);
  work(NULL);
  pthread_t running[MOST_THREADS];
  for (intptr_t i = 1; i < threads; i++)
    if (pthread_create(&running[i], NULL, work, (void *)i) != 0) exit(2);
  for (int i = 1; i < threads; i++)
    pthread_join(running[i], NULL);
  const int index = result_of(&needs);
  if (fwrite(*operand(&now.operands, index), 1, (size_t)now.bytes[index], stdout) != now.bytes[index]) exit(2);
  ts_library_plan_destroy(plan);
  free(packed);
}

int main(int argc, char **argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  package = argc > 2 ? argv[2] : NULL;
  if (threads < 1 || threads > MOST_THREADS) return 2;
  check(ts_library_create(&library, -1, 0), "create");
  while (fread(&now.desc, sizeof now.desc, 1, stdin) == 1) {
    now.operands = (ts_operands){.struct_size = sizeof now.operands, .abi_version = TS_ABI_VERSION};
    for (int i = 0; i < 6; i++) {
      if (fread(&now.bytes[i], sizeof now.bytes[i], 1, stdin) != 1) return 2;
      void *memory = *operand(&now.operands, i) = aligned(64, (int64_t)now.bytes[i]);
      if (now.bytes[i] && fread(memory, 1, (size_t)now.bytes[i], stdin) != now.bytes[i]) return 2;
    }
    run_problem(threads);
    for (int i = 0; i < 6; i++)
      free(*operand(&now.operands, i));
  }
  ts_library_destroy(library);
  return differ ? 3 : 0;
}
