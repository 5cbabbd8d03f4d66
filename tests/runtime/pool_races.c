/* Launches of many sizes by several callers, on the pool's threads and on lent ones in turn; every item is written
 * plainly, not atomically: for ThreadSanitizer. */
#include "ts_pool.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ITEMS = 5000, LAUNCHES = 600, CALLERS = 3 };

static void add(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  int *y = p[0];
  int64_t *mine = scratch;
  (void)s;
  *mine = begin;
  for (int64_t i = begin; i < end; i++)
    y[i]++;
  if (*mine != begin) exit(2);
}

static void check(const int *y, int64_t items, int value) {
  for (int64_t i = 0; i < items; i++)
    if (y[i] != value) {
      fprintf(stderr, "item %lld of %lld is %d\n", (long long)i, (long long)items, y[i]);
      exit(3);
    }
}

typedef struct part {
  void (*member)(void *);
  void *data;
} part;

static void *run_part(void *argument) {
  part *one = argument;
  one->member(one->data);
  return NULL;
}

/* As GOMP_parallel. */
static void together(void (*member)(void *), void *data, unsigned threads, unsigned flags) {
  pthread_t others[8];
  part all = {member, data};
  (void)flags;
  for (unsigned i = 1; i < threads; i++)
    if (pthread_create(&others[i], NULL, run_part, &all) != 0) exit(5);
  member(data);
  for (unsigned i = 1; i < threads; i++)
    pthread_join(others[i], NULL);
}

static void *call(void *threads) {
  unsigned seed = (unsigned)(uintptr_t)threads;
  int *y = malloc(ITEMS * sizeof *y);
  char *scratch = malloc(64 * 64);
  void *p[] = {y};
  for (int launch = 0; launch < LAUNCHES; launch++) {
    if (rand_r(&seed) % 8 == 0) ts_pool_lend(rand_r(&seed) % 4 ? NULL : together);
    ts_team team = {(uint32_t)(uintptr_t)threads, TS_TEAM_NOT_ASKED};
    ts_work work = {add, p, NULL, scratch, 64, 1 + rand_r(&seed) % ITEMS, 1 + rand_r(&seed) % 40};
    for (int64_t i = 0; i < work.items; i++)
      y[i] = 0;
    ts_team_run(&team, &work);
    check(y, work.items, 1);
    work.items = work.items / 2 + 1; /* the next step of the same call: shorter, in other chunks */
    work.chunk = 1;
    ts_team_run(&team, &work);
    check(y, work.items, 2);
    ts_team_leave(&team);
  }
  free(scratch);
  free(y);
  return NULL;
}

int main(void) {
  static const uintptr_t threads[CALLERS] = {2, 3, 6};
  pthread_t callers[CALLERS];
  call((void *)threads[0]); /* alone, so that the pool is its own */
  for (int i = 0; i < CALLERS; i++)
    if (pthread_create(&callers[i], NULL, call, (void *)threads[i]) != 0) return 4;
  for (int i = 0; i < CALLERS; i++)
    pthread_join(callers[i], NULL);
  puts("ended");
  return 0;
}
