/* CUDA C++ on the host, one block after the other: the threads of a block are fibers that take turns at barriers. */
/* C's headers alone: <cmath> with its templates takes half of the compiler's time. */
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct emulated_index {
  unsigned x, y, z;
};
static emulated_index threadIdx, blockIdx, blockDim, gridDim;

#define __device__ static
#define __global__
#define __constant__
#define __shared__ static
#define __noinline__
#define __forceinline__ inline
#define __launch_bounds__(...)

static ucontext_t emulated_scheduler, emulated_fibers[1024];
static emulated_index emulated_ids[1024];
static char emulated_done[1024], emulated_held[1024]; /* held: at a barrier of the block */
static char *emulated_stacks;
static unsigned emulated_now;
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

/* A NaN becomes 0, as on a GPU. */
static inline float __saturatef(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }

static void emulated_turn() {
  const unsigned mine = emulated_now;
  swapcontext(&emulated_fibers[mine], &emulated_scheduler);
  emulated_now = mine;
  threadIdx = emulated_ids[mine];
}

static void __syncthreads() {
  emulated_held[emulated_now] = 1;
  emulated_turn();
}

static void emulated_thread() {
  threadIdx = emulated_ids[emulated_now];
  emulated_kernel(emulated_parameters);
  emulated_done[emulated_now] = 1;
}

static void emulate(void (*kernel)(void **), const unsigned *grid, const unsigned *block, void **parameters) {
  const unsigned threads = block[0] * block[1] * block[2];
  if (!emulated_stacks) emulated_stacks = (char *)malloc((size_t)EMULATED_STACK * 1024);
  emulated_kernel = kernel, emulated_parameters = parameters;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  for (unsigned long long at = 0; at < (unsigned long long)grid[0] * grid[1] * grid[2]; at++) {
    blockIdx = {(unsigned)(at % grid[0]), (unsigned)(at / grid[0] % grid[1]), (unsigned)(at / grid[0] / grid[1])};
    for (unsigned i = 0; i < threads; i++) {
      emulated_ids[i] = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
      emulated_done[i] = emulated_held[i] = 0;
      getcontext(&emulated_fibers[i]);
      emulated_fibers[i].uc_stack.ss_sp = emulated_stacks + (size_t)EMULATED_STACK * i;
      emulated_fibers[i].uc_stack.ss_size = EMULATED_STACK;
      emulated_fibers[i].uc_link = &emulated_scheduler;
      makecontext(&emulated_fibers[i], emulated_thread, 0);
    }
    for (unsigned left = threads; left;) {
      unsigned held = 0;
      for (unsigned i = 0; i < threads; i++) held += emulated_held[i] || emulated_done[i];
      if (held == threads) memset(emulated_held, 0, threads);
      left = threads;
      /* One thread at a time up to the next barrier, the last one first: no order may be relied upon. */
      for (unsigned i = threads; i-- > 0;) {
        if (!emulated_done[i] && !emulated_held[i]) {
          emulated_now = i;
          swapcontext(&emulated_scheduler, &emulated_fibers[i]);
        }
        left -= (unsigned)emulated_done[i];
      }
    }
  }
}
