/* Waiting for a word to change: a futex on Linux, one mutex and condition elsewhere. */
#ifndef TS_WAIT_H
#define TS_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleep while *word == expected; may return early. */
void ts_wait(_Atomic uint32_t *word, uint32_t expected);
/* Wake whoever sleeps on `word`. */
void ts_wake(_Atomic uint32_t *word);

/* A worker that is woken on the caller's own processor waits behind it: the system puts it there when every other one
 * is busy, and then a launch takes as long as with one thread. So a sleeper is kept off the processor that wakes it.
 * `place` is the worker's: ts_enter fills it in, on the worker; the waker calls ts_keep_away before ts_wake. */
void ts_enter(_Atomic int64_t *place);
void ts_keep_away(_Atomic int64_t *place);
/* In the child of a fork. */
void ts_wait_reset(void);

/* Monotonic time in nanoseconds. */
int64_t ts_now(void);

static inline void ts_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); /* NOTE: `yield` is a no-op on most cores, `isb` takes as long as x86's pause */
#endif
}

#endif
