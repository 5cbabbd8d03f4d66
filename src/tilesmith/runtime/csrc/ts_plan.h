/* A decoded plan. */
#ifndef TS_PLAN_H
#define TS_PLAN_H

#include "tilesmith_runtime.h"

#define TS_MAX_THREADS 1024
#define TS_MAX_PARAMETERS 256
#define TS_MAX_AXES 8
#define TS_MAX_SYMBOL 255

enum { TS_SPACE_SLOT, TS_SPACE_PACKED, TS_SPACE_WORKSPACE };

typedef struct ts_pointer {
  uint32_t space;
  uint32_t index;
  int64_t offset;
} ts_pointer;

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
  /* memset */
  ts_pointer target;
  int64_t nbytes;
  int value;
} ts_step;

struct ts_plan {
  ts_plan_sizes sizes;
  int64_t scratch_offset;
  int64_t scratch_stride;
  ts_slot *slots;
  uint8_t *slot_used; /* whether a step of the run part points at it */
  const uint8_t *digests;
  void **libraries;
  ts_step *prepare;
  ts_step *run;
  uint32_t unbound; /* launches without a kernel */
  void *arena;
};

/* Write the message and return the status. */
ts_status ts_fail(ts_error *error, ts_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

#endif
