/* Waiting for a word to change: a futex on Linux, one mutex and condition elsewhere. */
#ifndef TS_WAIT_H
#define TS_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleep while *word == expected; may return early. */
void ts_wait(_Atomic uint32_t *word, uint32_t expected);
/* Wake whoever sleeps on `word`. */
void ts_wake(_Atomic uint32_t *word);
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
