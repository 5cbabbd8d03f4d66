/* A decoded plan. */
#ifndef TS_PLAN_H
#define TS_PLAN_H

#include "tilesmith_runtime.h"

#define TS_MAX_THREADS 1024
#define TS_MAX_PARAMETERS 256
#define TS_MAX_AXES 8
#define TS_MAX_SYMBOL 255
#define TS_MAX_MAP_RANK 5
#define TS_MAX_PLAN ((size_t)1 << 20) /* bytes of a serialised plan: decoding takes up to 24 times as many */

enum { TS_SPACE_SLOT, TS_SPACE_PACKED, TS_SPACE_WORKSPACE };

typedef struct ts_pointer {
  uint32_t space;
  uint32_t index;
  int64_t offset;
} ts_pointer;

typedef enum ts_family { TS_CPU, TS_CUDA } ts_family;

/* A tensor map's recipe; see plan/records.py. */
typedef struct ts_map {
  ts_pointer pointer;
  uint32_t dtype; /* index into the names of ts_decode.c: fp64 fp32 fp16 bf16 fp8e4m3 fp8e5m2 int8 int32 tf32 */
  uint32_t rank;
  int is_im2col;
  int64_t dims[TS_MAX_MAP_RANK];
  int64_t strides[TS_MAX_MAP_RANK];
  int64_t box[TS_MAX_MAP_RANK];
  int64_t steps[TS_MAX_MAP_RANK];
  int64_t swizzle;
  int64_t promotion;
  int64_t lower[TS_MAX_MAP_RANK];
  int64_t upper[TS_MAX_MAP_RANK];
  int64_t channels;
  int64_t pixels;
} ts_map;

enum { TS_PARAMETER_POINTER = 1, TS_PARAMETER_INTEGER, TS_PARAMETER_REAL, TS_PARAMETER_MAP };

typedef struct ts_step {
  int is_memset;
  /* launch */
  uint32_t artifact;
  const char *symbol;
  ts_kernel kernel;
  int64_t items;
  int64_t chunk;
  const int64_t *scalars;
  const ts_pointer *pointers;
  uint32_t pointer_count;
  /* a CUDA launch: all of it, and its parameters in order */
  int64_t grid[3];
  int64_t block[3];
  int64_t cluster[3];
  int64_t shared_bytes;
  int programmatic;
  const uint8_t *kinds;
  uint32_t parameter_count;
  uint32_t map_count;
  const ts_map **maps;
  uint32_t kernel_index; /* among the plan's launches */
  uint32_t first_map;    /* among the plan's maps */
  /* memset */
  ts_pointer target;
  int64_t nbytes;
  int value;
} ts_step;

struct ts_plan {
  ts_plan_sizes sizes;
  ts_family family;
  const char *problem;
  const char *target;
  const char *solver;
  const char *config;
  const char *provenance;
  uint32_t launches; /* of both parts */
  uint32_t maps;
  int64_t scratch_offset;
  int64_t scratch_stride;
  ts_slot *slots;
  uint8_t *slot_used; /* whether a step of the run part points at it */
  const uint8_t *digests;
  void **libraries;
  ts_step *prepare;
  ts_step *run;
  uint32_t unbound;          /* launches without a kernel */
  struct ts_cuda_plan *cuda; /* what a CUDA plan has loaded; NULL on a CPU */
  void *arena;
};

/* The CUDA half (ts_cuda_run.c). */
ts_status ts_cuda_bind_image(ts_plan *plan, uint32_t artifact, const void *image, size_t size, ts_error *error);
void ts_cuda_close(ts_plan *plan);

/* What is wrong with the kernels of a plan, which is not run then; NULL if nothing is known (plan/withdrawn.py). */
const char *ts_plan_withdrawn(const ts_plan *plan);

/* Write the message and return the status. */
ts_status ts_fail(ts_error *error, ts_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

#endif
