/* Tilesmith's runtime: decodes serialised plans and launches them. C11; needs the C library and pthreads alone.
 *
 * One plan may be run by any number of threads at a time, each call with its own workspace. Nothing is allocated in
 * ts_plan_prepare and ts_plan_run (the pool's threads start with the first parallel call). Do not unload the library
 * once a plan has run: the threads of its pool live as long as the process.
 */
#ifndef TILESMITH_RUNTIME_H
#define TILESMITH_RUNTIME_H

#include "ts_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel computes items begin to end - 1. `p` holds the launch's pointers, `s` its scalars, in order; `scratch` is
 * this thread's scratch memory. */
typedef void (*ts_kernel)(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end);

typedef struct ts_plan ts_plan;

typedef struct ts_plan_sizes {
  int64_t packed_bytes;    /* memory that ts_plan_prepare writes and ts_plan_run reads */
  int64_t workspace_bytes; /* scratch memory of one call */
  uint32_t alignment;      /* of both, in bytes */
  uint32_t threads;
  uint32_t slots;
  uint32_t artifacts;
  uint32_t prepare_steps; /* 0: nothing to prepare */
  uint32_t run_steps;
  int is_cuda; /* addresses are a GPU's, and the plan runs through ts_plan_prepare_on and ts_plan_run_on */
} ts_plan_sizes;

/* A tensor that the caller gives. Shape and strides count elements; `nbytes` spans from the first to the last one. With
 * `in_place` it may be the result's memory: each element is read before it is written. */
typedef struct ts_slot {
  const char *name;
  const char *dtype;
  const int64_t *shape;
  const int64_t *strides;
  int64_t nbytes;
  uint32_t axes;
  int is_output;
  int in_place;
} ts_slot;

/* Decode a plan; every read and every offset in it is checked. `bytes` may be freed afterwards. */
ts_status ts_plan_open(const void *bytes, size_t size, ts_plan **plan, ts_error *error);
void ts_plan_close(ts_plan *plan);

ts_plan_sizes ts_plan_get_sizes(const ts_plan *plan);
/* Run with another number of threads than the plan was made for, from 1 to 1024 (of a CUDA plan 1); items are handed
 * out dynamically, so any number gives the same result. The size of the workspace follows. To be called before the plan
 * is shared. */
ts_status ts_plan_set_threads(ts_plan *plan, uint32_t threads, ts_error *error);
ts_status ts_plan_get_slot(const ts_plan *plan, uint32_t index, ts_slot *slot);
/* The sha256 (32 bytes) of the artifact that `index` stands for; NULL if there is none. */
const uint8_t *ts_plan_get_digest(const ts_plan *plan, uint32_t index);

/* Bind an artifact's symbols from the shared object at `path`, which the caller has checked against the digest. */
ts_status ts_plan_bind_file(ts_plan *plan, uint32_t artifact, const char *path, ts_error *error);
/* Bind an artifact from its bytes, which the caller has checked against the digest: a cubin, which is copied, or a
 * shared object, which Linux loads from memory. */
ts_status ts_plan_bind_image(ts_plan *plan, uint32_t artifact, const void *image, size_t size, ts_error *error);
/* The same; a shared object that the system does not load from memory is loaded from `path`, where its bytes lie. */
ts_status ts_plan_bind_bytes(ts_plan *plan, uint32_t artifact, const void *bytes, size_t size, const char *path,
                             ts_error *error);
/* Bind one kernel that is linked into the program. */
ts_status ts_plan_bind_kernel(ts_plan *plan, const char *symbol, ts_kernel kernel, ts_error *error);

/* `slots` has one address a slot, aligned to its element; a slot that no step reads may be NULL. `packed` and
 * `workspace` are aligned as the plan says, and NULL when their size is 0. Prepare reads slot 1, the filter, alone. */
ts_status ts_plan_prepare(const ts_plan *plan, void *const *slots, void *packed, void *workspace);
ts_status ts_plan_run(const ts_plan *plan, void *const *slots, const void *packed, void *workspace);
/* For checks: the same on the calling thread alone, as a call runs while another one holds the pool. The items of each
 * launch come in `pieces` pieces (1: all at once), the last piece first, and every byte of scratch is `fill` at the
 * beginning of each: what the pool's threads may do in some order, in the one that shows most. */
typedef enum ts_part { TS_PREPARE, TS_RUN } ts_part;
ts_status ts_plan_run_in_pieces(const ts_plan *plan, ts_part part, void *const *slots, void *packed, void *workspace,
                                uint32_t pieces, int fill);

/* --- CUDA plans ---
 *
 * The driver is opened at first use (NULL: libcuda.so.1); naming a library after that has no effect. */
ts_status ts_cuda_open(const char *library, ts_error *error);
/* Load the plan's kernels on a device now rather than at its first call there. */
ts_status ts_plan_load_on(const ts_plan *plan, int device, ts_error *error);
/* 1 if the calling thread's context is the primary one of `device`, and calls have run there. */
int ts_cuda_is_current(int device);
/* As ts_plan_prepare and ts_plan_run, asynchronously on `stream` (a CUstream; NULL: the default stream) in the primary
 * context of `device` (-1: the device of the calling thread's context, else 0). Slots are aligned to 16 bytes. Nothing
 * is allocated on the device or synchronised, but for loading kernels at the first call on it: all calls may be
 * captured into CUDA graphs. Kernels stay loaded as long as the process lives, since graphs may hold them. */
ts_status ts_plan_prepare_on(const ts_plan *plan, int device, void *stream, void *const *slots, void *packed,
                             void *workspace, ts_error *error);
ts_status ts_plan_run_on(const ts_plan *plan, int device, void *stream, void *const *slots, const void *packed,
                         void *workspace, ts_error *error);

/* What a status means, in a few words. */
const char *ts_status_text(ts_status status);

#ifdef __cplusplus
}
#endif

#endif
