/* What the files of the C library share. */
#ifndef TS_LIBRARY_PARTS_H
#define TS_LIBRARY_PARTS_H

#include "ts_check.h"
#include "ts_library.h"
#include "ts_library_data.h"
#include "ts_machine.h"
#include "ts_package.h"
#ifndef TS_WITHOUT_REFERENCE /* of a library that shall not hold it */
#include "ts_reference.h"
#endif

#include <pthread.h>
#include <stdatomic.h>

/* A package that suits the machine. */
typedef struct ts_source {
  ts_package *package;
  const char *name; /* of the target that its plans are under */
  ts_target target;
  uint32_t origin; /* TS_FROM_LIBRARY or TS_FROM_PACKAGE */
} ts_source;

/* The packages that suit the machine, the newest first. A list never changes: `load` makes another one. Earlier lists
 * stay until the end, as calls of other threads may read them. */
typedef struct ts_sources {
  struct ts_sources *earlier;
  uint32_t count;
  ts_source items[];
} ts_sources;

struct ts_library {
  int device;
  uint32_t flags;
  ts_target machine;
  char name[TS_TARGET_ROOM];
  char made_for[256];       /* the targets of the packages that are linked in; cut to what fits */
  _Atomic uint32_t threads; /* as set; 0: each plan's own */
  _Atomic(ts_sources *) sources;
  pthread_mutex_t loading;
};

/* --- what a description asks for --- */

enum { TS_MOST_SLOTS = 6 };

/* An operand of the call that a slot of the canonical problem stands for. */
typedef struct ts_place {
  const char *name;   /* of the slot, as plans have it */
  const char *called; /* in ts_operands */
  uint32_t bit;       /* TS_HAS_X, ... */
  int64_t offset;     /* bytes to its first element */
  uint32_t alignment; /* bytes of its elements */
} ts_place;

typedef struct ts_asked {
  ts_desc desc; /* in full, checked */
  uint32_t count;
  ts_place places[TS_MOST_SLOTS]; /* in the order of slots */
  char key[TS_KEY_ROOM];
} ts_asked;

/* TS_BAD_PROBLEM or TS_BAD_ARGUMENT with a text. */
ts_status ts_library_ask(const ts_desc *desc, ts_asked *asked);

/* --- solutions --- */

/* A plan that can run here. */
typedef struct ts_candidate {
  const ts_source *source;
  ts_entry entry;
  ts_plan
      *plan; /* decoded, with its number of threads; no kernel is bound. Closed after the visit unless it is taken */
} ts_candidate;

/* 0: go on. Takes the plan over by setting it to NULL. */
typedef int (*ts_take)(void *data, ts_candidate *candidate);

/* Visit the usable plans of a problem, best first. `count`, if not NULL, becomes how many were visited. When there is
 * none the reason is left for last_error, under TS_UNSUPPORTED. */
ts_status ts_library_walk(const ts_library *library, const ts_asked *asked, ts_take take, void *data, uint32_t *count);
/* Whether the plain reference may compute it. */
int ts_library_has_reference(const ts_library *library);
uint32_t ts_library_threads(const ts_library *library, const ts_plan *plan);

/* Bind all kernels of a plan, and load those of a GPU. */
ts_status ts_library_bind(const ts_library *library, const ts_source *source, ts_plan *plan, ts_error *error);
/* Whether it could be bound; `error` has the reason. */
int ts_library_can_bind(const ts_source *source, const ts_plan *plan, ts_error *error);

struct ts_bound_plan {
  ts_plan *plan; /* NULL: the reference */
#ifndef TS_WITHOUT_REFERENCE
  ts_reference reference;
#endif
  int device;
  uint32_t threads;
  uint32_t count;
  struct {
    ts_place place;
    int is_used;
  } slots[TS_MOST_SLOTS];
};

/* --- errors --- */

/* Leave a text for ts_library_last_error; returns the status. */
ts_status ts_library_fail(ts_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* The same with what the runtime said. */
ts_status ts_library_failed(ts_status status, const ts_error *error);

/* Read a caller's record, which begins with its struct_size, into one of this library's size; what it lacks is 0. */
ts_status ts_library_read(void *own, size_t own_size, const void *given, size_t least, const char *name);
/* Write as much of a record as the caller has; its struct_size is kept. */
ts_status ts_library_write(void *given, const void *own, size_t own_size, const char *name);

#endif
