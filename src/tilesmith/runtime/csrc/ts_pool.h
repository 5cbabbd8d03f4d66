/* The process's threads, lent to one call at a time. */
#ifndef TS_POOL_H
#define TS_POOL_H

#include "tilesmith_runtime.h"

/* One launch: items 0 to items - 1, handed out at least `chunk` at a time (the last ones excepted). */
typedef struct ts_work {
  ts_kernel kernel;
  void *const *p;
  const int64_t *s;
  char *scratch; /* thread i's scratch lies at scratch + i * scratch_stride */
  int64_t scratch_stride;
  int64_t items;
  int64_t chunk;
} ts_work;

/* A call's hold on the pool: asked for at its first parallel launch, kept to its end. */
typedef struct ts_team {
  uint32_t threads; /* the caller counted */
  enum { TS_TEAM_NOT_ASKED, TS_TEAM_HELD, TS_TEAM_ALONE } state;
} ts_team;

/* Run all items; returns when every one has ended. Alone, if the pool helps another caller. */
void ts_team_run(ts_team *team, const ts_work *work);
void ts_team_leave(ts_team *team);

/* Start the pool's threads now rather than at the first parallel launch, unless another call has the pool. */
void ts_pool_start(uint32_t threads);

/* Calls `member(data)` on the calling thread and on up to threads - 1 others, and returns when all have returned:
 * GOMP_parallel, whose flags are 0. */
typedef void (*ts_crew)(void (*member)(void *), void *data, unsigned threads, unsigned flags);

/* From now on launches run on threads that `crew` calls together; NULL: on the pool's own. */
void ts_pool_lend(ts_crew crew);

#endif
