/* The thread pool.
 *
 * One launch at a time is published in `pool`. Its items are cut into chunks; `claim` holds the launch's generation
 * (high half), how many chunks the caller has claimed, and how many the workers, 16 bits each; whoever moves a count on
 * owns the chunks that it passed. The caller claims like everybody else, so a worker that the system has not scheduled
 * is never waited for: once all chunks are claimed, the caller waits for those that workers have claimed, and for
 * nothing else.
 *
 * The caller takes chunks from the front and the workers from the back, so that a thread walks through neighbouring
 * memory, and through the same memory at the next call. A claim is a share of what is left: large ones at first, for
 * few interruptions, and single chunks at last, so that all threads end together.
 *
 * A worker reads the launch's fields after it has seen a generation in `claim`, and believes them only once its
 * compare-exchange on that generation succeeds. The next launch is published when every claimed chunk has ended,
 * so a success proves that the fields belong together.
 *
 * A program whose other libraries have threads of their own may lend them (ts_pool_lend). Its threads then take part in
 * place of the pool's. NOTE: OpenMP's threads spin for milliseconds behind each parallel region, on the cores that the
 * pool's workers need.
 */
#define _GNU_SOURCE
#include "ts_pool.h"
#include "ts_plan.h"
#include "ts_wait.h"

#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>

#define LINE 128          /* bytes; x86 fetches cache lines in pairs */
#define SPIN_NS 70000     /* how long a worker looks for the next launch before it sleeps */
#define PAUSES_PER_LOOK 8 /* at the clock */
#define FAN_OUT 8         /* sleepers that one thread wakes: the others are woken by those */
#define SHARE 3           /* a claim is one part in SHARE times the threads of the chunks that are left */
#define MAX_CHUNKS UINT16_MAX
#define STACK_BYTES ((size_t)8 << 20)

static struct {
  alignas(LINE) _Atomic uint64_t claim;
  alignas(LINE) _Atomic uint32_t done;  /* chunks of this launch that workers have ended */
  _Atomic uint32_t caller_sleeps;       /* on `done` */
  alignas(LINE) _Atomic uint32_t epoch; /* changes with every launch; workers watch it */
  _Atomic(ts_kernel) kernel;
  _Atomic(void *const *) p;
  _Atomic(const int64_t *) s;
  _Atomic(char *) scratch;
  _Atomic int64_t scratch_stride;
  _Atomic int64_t items;
  _Atomic int64_t chunk;
  _Atomic uint32_t chunks;
  _Atomic uint32_t threads;
  alignas(LINE) _Atomic uint32_t held; /* by a caller; guards what follows */
  uint32_t generation;
  uint32_t workers;
  struct {
    alignas(LINE) _Atomic uint32_t asleep;
    _Atomic int64_t place; /* what ts_keep_away needs to know of the thread */
  } worker[TS_MAX_THREADS];
} pool;

#define GET(field) atomic_load_explicit(&pool.field, memory_order_relaxed)
#define PUT(field, value) atomic_store_explicit(&pool.field, value, memory_order_relaxed)

/* Wake the sleepers among the threads that thread `node` wakes; the caller is thread 0, worker i thread i + 1. */
static void wake_next(uint32_t node, uint32_t threads) {
  for (uint64_t n = (uint64_t)node * FAN_OUT + 1; n <= (uint64_t)node * FAN_OUT + FAN_OUT && n < threads; n++) {
    _Atomic uint32_t *asleep = &pool.worker[n - 1].asleep;
    if (!atomic_load(asleep) || !atomic_exchange(asleep, 0)) continue;
    ts_keep_away(&pool.worker[n - 1].place);
    ts_wake(asleep);
  }
}

/* Compute chunks of the launch that is published, until none is left; returns how many. `lent`: the threads of a lent
 * team, 0 in a thread of the pool. */
static uint32_t take_part(uint32_t node, uint32_t lent) {
  uint32_t ended = 0;
  uint64_t claim = atomic_load_explicit(&pool.claim, memory_order_acquire);
  const uint32_t generation = (uint32_t)(claim >> 32);
  while ((uint32_t)(claim >> 32) == generation) {
    const ts_kernel kernel = GET(kernel);
    void *const *p = GET(p);
    const int64_t *s = GET(s);
    const int64_t stride = GET(scratch_stride), items = GET(items), chunk = GET(chunk);
    char *scratch = GET(scratch);
    const uint32_t front = (uint32_t)claim >> 16, back = (uint32_t)claim & UINT16_MAX;
    const uint32_t chunks = GET(chunks), threads = lent ? lent : GET(threads);
    if (front + back >= chunks || node >= threads) break;
    const uint32_t share = (chunks - front - back) / (SHARE * threads), count = share ? share : 1;
    const uint64_t step = node == 0 ? (uint64_t)count << 16 : count;
    atomic_thread_fence(memory_order_acquire);
    if (!atomic_compare_exchange_weak_explicit(&pool.claim, &claim, claim + step, memory_order_acq_rel,
                                               memory_order_acquire))
      continue;
    const int64_t begin = (int64_t)(node == 0 ? front : chunks - back - count) * chunk, length = (int64_t)count * chunk;
    kernel(p, s, scratch == NULL ? NULL : scratch + node * stride, begin,
           items - begin < length ? items : begin + length);
    ended += count;
    claim = atomic_load_explicit(&pool.claim, memory_order_acquire);
  }
  return ended;
}

static void *work(void *argument) {
  const uint32_t node = (uint32_t)(uintptr_t)argument;
  _Atomic uint32_t *asleep = &pool.worker[node - 1].asleep;
  uint32_t seen = 0;
  int64_t until = 0;
  ts_enter(&pool.worker[node - 1].place);
  for (;;) {
    uint32_t epoch;
    while ((epoch = atomic_load_explicit(&pool.epoch, memory_order_acquire)) == seen) {
      for (int i = 0; i < PAUSES_PER_LOOK; i++)
        ts_pause();
      if (ts_now() < until) continue;
      atomic_store(asleep, 1);
      if (atomic_load(&pool.epoch) == seen)
        while (atomic_load(asleep))
          ts_wait(asleep, 1);
      atomic_store(asleep, 0);
    }
    seen = epoch;
    const uint32_t threads = GET(threads);
    if (node >= threads) continue; /* a smaller team's launch is no reason to stay awake */
    wake_next(node, threads);
    const uint32_t ended = take_part(node, 0);
    if (ended) {
      atomic_fetch_add(&pool.done, ended);
      if (atomic_load(&pool.caller_sleeps)) ts_wake(&pool.done);
    }
    until = ts_now() + SPIN_NS;
  }
  return NULL;
}

/* Threads that the program lends, NULL if it does not. */
static _Atomic(ts_crew) crew;

/* The child of a fork has the forking thread alone: OpenMP would wait in it for threads that are gone. */
static void forget_workers(void) {
  atomic_store(&crew, NULL);
  pool.workers = 0;
  PUT(chunks, 0); /* nobody finishes a launch that another thread had published */
  for (uint32_t i = 0; i < TS_MAX_THREADS; i++)
    atomic_store(&pool.worker[i].asleep, 0);
  atomic_store(&pool.caller_sleeps, 0);
  atomic_store(&pool.held, 0);
  ts_wait_reset();
}

static pthread_once_t forks = PTHREAD_ONCE_INIT;

static void watch_forks(void) {
  pthread_atfork(NULL, NULL, forget_workers);
}

void ts_pool_lend(ts_crew lent) {
  pthread_once(&forks, watch_forks);
  atomic_store(&crew, lent);
}

/* One launch on lent threads. */
typedef struct crew_launch {
  pthread_t caller;
  uint32_t threads;
  _Atomic uint32_t arrived;
} crew_launch;

static void join_crew(void *data) {
  crew_launch *launch = data;
  const uint32_t node = pthread_equal(pthread_self(), launch->caller) ? 0 : atomic_fetch_add(&launch->arrived, 1) + 1;
  if (node < launch->threads) take_part(node, launch->threads);
}

/* Start workers until there are threads - 1, or the system gives no more; it is no error to have fewer. */
static void start_workers(uint32_t threads) {
  if (pool.workers + 1 >= threads) return;
  pthread_once(&forks, watch_forks);
  sigset_t every, before;
  sigfillset(&every); /* signals are for the program's own threads, but for those of what a thread does itself */
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    sigdelset(&every, faults[i]);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (pool.workers + 1 < threads) {
      pthread_t thread;
      if (pthread_create(&thread, &attributes, work, (void *)(uintptr_t)(pool.workers + 1)) != 0) break;
      pool.workers++;
    }
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wait_for(uint32_t count) {
  int64_t until = 0;
  uint32_t done;
  while ((done = atomic_load_explicit(&pool.done, memory_order_acquire)) != count) {
    for (int i = 0; i < PAUSES_PER_LOOK; i++)
      ts_pause();
    const int64_t now = ts_now();
    if (until == 0) until = now + SPIN_NS;
    if (now < until) continue;
    atomic_store(&pool.caller_sleeps, 1);
    if ((done = atomic_load(&pool.done)) != count) ts_wait(&pool.done, done);
    atomic_store(&pool.caller_sleeps, 0);
  }
}

void ts_team_run(ts_team *team, const ts_work *w) {
  if (w->items <= 0) return;
  if (team->threads > 1 && w->items > w->chunk && team->state == TS_TEAM_NOT_ASKED) {
    team->state = atomic_exchange_explicit(&pool.held, 1, memory_order_acquire) ? TS_TEAM_ALONE : TS_TEAM_HELD;
    if (team->state == TS_TEAM_HELD && atomic_load(&crew) == NULL) start_workers(team->threads);
  }
  const ts_crew lent = atomic_load(&crew);
  if (team->state != TS_TEAM_HELD || w->items <= w->chunk || (lent == NULL && pool.workers == 0)) {
    w->kernel(w->p, w->s, w->scratch, 0, w->items);
    return;
  }
  int64_t chunk = w->chunk;
  if ((w->items - 1) / chunk >= MAX_CHUNKS) chunk = (w->items - 1) / MAX_CHUNKS + 1;
  const uint32_t chunks = (uint32_t)((w->items - 1) / chunk + 1);
  const uint32_t threads = team->threads < chunks ? team->threads : chunks;
  /* Close the launch before: what it claimed may be less than the chunks of this one. The fence pairs with the one
   * in take_part: whoever reads a field below fails to claim, as the launch before is closed. */
  atomic_store_explicit(&pool.claim, ((uint64_t)pool.generation << 32) | UINT32_MAX, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  PUT(kernel, w->kernel);
  PUT(p, w->p);
  PUT(s, w->s);
  PUT(scratch, w->scratch);
  PUT(scratch_stride, w->scratch_stride);
  PUT(items, w->items);
  PUT(chunk, chunk);
  PUT(chunks, chunks);
  PUT(threads, lent == NULL ? threads : 1); /* a worker that is late for the launch before must not join lent threads */
  PUT(done, 0);
  const uint32_t generation = ++pool.generation;
  atomic_store_explicit(&pool.claim, (uint64_t)generation << 32, memory_order_release);
  if (lent != NULL) {
    crew_launch launch = {pthread_self(), threads, 0};
    lent(join_crew, &launch, threads, 0);
    return;
  }
  atomic_store(&pool.epoch, generation);
  wake_next(0, threads);
  wait_for(chunks - take_part(0, 0));
}

void ts_team_leave(ts_team *team) {
  if (team->state == TS_TEAM_HELD) atomic_store_explicit(&pool.held, 0, memory_order_release);
}

void ts_pool_start(uint32_t threads) {
  if (atomic_load(&crew) != NULL || atomic_exchange_explicit(&pool.held, 1, memory_order_acquire)) return;
  start_workers(threads);
  atomic_store_explicit(&pool.held, 0, memory_order_release);
}
