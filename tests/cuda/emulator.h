/* CUDA C++ on the host, one cluster of blocks after the other: their threads are fibers that take turns at barriers. */
/* C's headers alone: <cmath> with its templates takes half of the compiler's time. */
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#undef _FORTIFY_SOURCE /* with which _longjmp refuses other stacks */
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct emulated_index {
  unsigned x, y, z;
};
static emulated_index threadIdx, blockIdx, blockDim, gridDim;
#ifndef EMULATED_CLUSTER /* blocks of a cluster, which follow one another along x */
#define EMULATED_CLUSTER 1
#endif

#define __device__ static
#define __global__
#define __constant__
#define __shared__ static
#define __noinline__
#define __forceinline__ inline
#define __launch_bounds__(...)

enum { EMULATED_THREADS = 1024 * EMULATED_CLUSTER };
/* Fibers begin in a context once; their turns are jumps, because each swapcontext calls the kernel. */
static jmp_buf emulated_scheduler, emulated_fibers[EMULATED_THREADS];
static char emulated_begun[EMULATED_THREADS];
static emulated_index emulated_ids[EMULATED_THREADS], emulated_blocks[EMULATED_CLUSTER];
static char emulated_done[EMULATED_THREADS], emulated_held[EMULATED_THREADS]; /* held: at a barrier of the block */
static unsigned emulated_now, emulated_in_block;
static void (*emulated_kernel)(void **);
static void **emulated_parameters;
enum { EMULATED_STACK = 1 << 16 };

static inline double __longlong_as_double(long long v) {
  double d;
  memcpy(&d, &v, 8);
  return d;
}
static inline long long __double_as_longlong(double v) {
  long long d;
  memcpy(&d, &v, 8);
  return d;
}
static inline float __uint_as_float(unsigned v) {
  float d;
  memcpy(&d, &v, 4);
  return d;
}

template <typename T> static inline T __ldg(const T *from) { return *from; }
template <typename T> static inline T __ldcs(const T *from) { return *from; }
/* A NaN becomes 0, as on a GPU. */
static inline float __saturatef(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }

static unsigned emulated_rank() { return EMULATED_CLUSTER > 1 ? emulated_now / emulated_in_block : 0; }
static void emulated_here() { threadIdx = emulated_ids[emulated_now], blockIdx = emulated_blocks[emulated_rank()]; }

static void emulated_turn() {
  if (!_setjmp(emulated_fibers[emulated_now])) _longjmp(emulated_scheduler, 1);
  emulated_here();
}

static void __syncthreads() {
  emulated_held[emulated_now] = 1;
  emulated_turn();
}

/* A fiber is the same thread of each block, of each launch. */
static void emulated_thread() {
  for (;;) {
    emulated_here();
    emulated_kernel(emulated_parameters);
    emulated_done[emulated_now] = 1;
    if (!_setjmp(emulated_fibers[emulated_now])) _longjmp(emulated_scheduler, 1);
  }
}

static void emulated_run(unsigned thread) {
  emulated_now = thread;
  if (_setjmp(emulated_scheduler)) return;
  if (emulated_begun[thread]) _longjmp(emulated_fibers[thread], 1);
  emulated_begun[thread] = 1;
  ucontext_t begin;
  getcontext(&begin);
  /* Of threads that exist alone: those of all kernels of a process lie side by side, too much for it to fork. */
  begin.uc_stack.ss_sp = malloc(EMULATED_STACK);
  begin.uc_stack.ss_size = EMULATED_STACK;
  begin.uc_link = NULL;
  makecontext(&begin, emulated_thread, 0);
  setcontext(&begin);
}

static void emulate(void (*kernel)(void **), const unsigned *grid, const unsigned *block, void **parameters) {
  emulated_in_block = block[0] * block[1] * block[2];
  const unsigned threads = emulated_in_block * EMULATED_CLUSTER;
  emulated_kernel = kernel, emulated_parameters = parameters;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  for (unsigned long long at = 0; at < (unsigned long long)grid[0] * grid[1] * grid[2]; at += EMULATED_CLUSTER) {
    for (unsigned i = 0; i < EMULATED_CLUSTER; i++)
      emulated_blocks[i] = {(unsigned)(at % grid[0]) + i, (unsigned)(at / grid[0] % grid[1]), (unsigned)(at / grid[0] / grid[1])};
    for (unsigned i = 0; i < threads; i++) {
      const unsigned in_block = i % emulated_in_block;
      emulated_ids[i] = {in_block % block[0], in_block / block[0] % block[1], in_block / block[0] / block[1]};
      emulated_done[i] = emulated_held[i] = 0;
    }
    for (unsigned left = threads; left;) {
      unsigned held = 0;
      for (unsigned i = 0; i < threads; i++) held += emulated_held[i] || emulated_done[i];
      if (held == threads) memset(emulated_held, 0, threads);
      left = threads;
      /* One thread at a time up to the next barrier, the last one first: no order may be relied upon. */
      for (unsigned i = threads; i-- > 0;) {
        if (!emulated_done[i] && !emulated_held[i]) emulated_run(i);
        left -= (unsigned)emulated_done[i];
      }
    }
  }
}
