#define _GNU_SOURCE
#include "ts_wait.h"

#include <time.h>

int64_t ts_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#if defined(__linux__)

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

void ts_wait(_Atomic uint32_t *word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void ts_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void ts_wait_reset(void) {
}

/* `place` is the thread's id in the low half, and in the high half 1 + the processor that it is kept off (0: none). */
void ts_enter(_Atomic int64_t *place) {
  atomic_store(place, (int64_t)syscall(SYS_gettid));
}

void ts_keep_away(_Atomic int64_t *place) {
  const int64_t now = atomic_load(place);
  const int processor = sched_getcpu();
  if (now == 0 || processor < 0 || now >> 32 == processor + 1) return;
  cpu_set_t allowed; /* the waker's own: what the user allowed this process */
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  CPU_CLR((size_t)processor, &allowed);
  const int64_t thread = now & INT32_MAX;
  if (sched_setaffinity((pid_t)thread, sizeof allowed, &allowed) == 0)
    atomic_store(place, ((int64_t)(processor + 1) << 32) | thread);
}

#else

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void ts_wait(_Atomic uint32_t *word, uint32_t expected) {
  pthread_mutex_lock(&lock);
  while (atomic_load(word) == expected)
    pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

void ts_wake(_Atomic uint32_t *word) {
  (void)word;
  pthread_mutex_lock(&lock);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

void ts_wait_reset(void) {
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&changed, NULL);
}

void ts_enter(_Atomic int64_t *place) {
  (void)place;
}

void ts_keep_away(_Atomic int64_t *place) {
  (void)place;
}

#endif
