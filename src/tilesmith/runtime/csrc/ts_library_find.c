/* Look-up: a description, then the plans of packages for this machine, then those that can run. */
#include "ts_library_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SEEN 64
#define SLOT_ALIGNMENT 16 /* on a GPU */

/* One walk over the plans of a problem. */
typedef struct walk {
  const ts_library *library;
  const ts_asked *asked;
  ts_take take;
  void *data;
  const char *target; /* of the plans that were visited */
  uint32_t visited;
  int is_over;
  uint8_t seen[MOST_SEEN][TS_PACKAGE_DIGEST]; /* plans that several packages have count once */
  uint32_t seen_count;
  ts_status status; /* of the last plan that cannot run, and why */
  ts_error why;
} walk;

uint32_t ts_library_threads(const ts_library *library, const ts_plan *plan) {
  if (library->machine.is_cuda) return 1;
  const uint32_t set = atomic_load(&library->threads), cores = library->machine.cores;
  if (set || plan == NULL) return set ? set : cores;
  return plan->sizes.threads < cores ? plan->sizes.threads : cores;
}

int ts_library_has_reference(const ts_library *library) {
#ifdef TS_WITHOUT_REFERENCE
  (void)library;
  return 0;
#else
  return library->device < 0 && !(library->flags & TS_NO_REFERENCE);
#endif
}

/* TS_OK if the plan can run as the caller asks. */
static ts_status check_plan(const walk *it, const ts_candidate *candidate, ts_error *error) {
  const ts_plan *plan = candidate->plan;
  const ts_asked *asked = it->asked;
  if (plan->sizes.is_cuda != it->library->machine.is_cuda || plan->sizes.slots != asked->count)
    return ts_fail(error, TS_BAD_PLAN, "a plan of another family, or with %u operands for %u", plan->sizes.slots,
                   asked->count);
  for (uint32_t i = 0; i < asked->count; i++) {
    const ts_place *place = &asked->places[i];
    if (strcmp(plan->slots[i].name, place->name) != 0)
      return ts_fail(error, TS_BAD_PLAN, "operand %u of a plan is %s, and of the problem %s", i, plan->slots[i].name,
                     place->name);
    if (plan->sizes.is_cuda && place->offset % SLOT_ALIGNMENT)
      return ts_fail(error, TS_UNSUPPORTED, "%s_offset_c is %lld bytes: on a GPU a multiple of %d is needed",
                     place->called, (long long)place->offset, SLOT_ALIGNMENT);
  }
  const char *wrong = ts_plan_withdrawn(plan);
  if (wrong != NULL)
    return ts_fail(error, TS_UNSUPPORTED, "the kernels of a plan compute wrong numbers: %s; build the package anew",
                   wrong);
  const int64_t limit = asked->desc.workspace_limit;
  if (limit >= 0 && plan->sizes.workspace_bytes > limit)
    return ts_fail(error, TS_UNSUPPORTED, "its plan needs a workspace of %lld bytes; workspace_limit is %lld",
                   (long long)plan->sizes.workspace_bytes, (long long)limit);
  return ts_library_can_bind(candidate->source, plan, error) ? TS_OK : TS_UNSUPPORTED;
}

/* The plan of an entry, decoded. */
static ts_status open_plan(const walk *it, ts_candidate *candidate, uint32_t index, ts_error *error) {
  void *content = malloc((size_t)candidate->entry.size);
  if (content == NULL)
    return ts_fail(error, TS_NO_MEMORY, "no memory for a plan of %llu bytes",
                   (unsigned long long)candidate->entry.size);
  ts_status status = ts_package_read(candidate->source->package, index, content, (size_t)candidate->entry.size, error);
  if (status == TS_OK) status = ts_plan_open(content, (size_t)candidate->entry.size, &candidate->plan, error);
  free(content);
  if (status != TS_OK) return status;
  return ts_plan_set_threads(candidate->plan, ts_library_threads(it->library, candidate->plan), error);
}

/* Hand out one plan, unless it was there already or cannot run. */
static void visit_plan(walk *it, const ts_source *source, uint32_t index) {
  ts_candidate candidate = {source, {0}, NULL};
  ts_error error = {""};
  ts_status status = ts_package_entry(source->package, index, &candidate.entry, &error);
  if (status == TS_OK) {
    for (uint32_t i = 0; i < it->seen_count; i++)
      if (memcmp(it->seen[i], candidate.entry.digest, TS_PACKAGE_DIGEST) == 0) return;
    status = open_plan(it, &candidate, index, &error);
  }
  if (status == TS_OK) status = check_plan(it, &candidate, &error);
  if (status == TS_OK) {
    if (it->seen_count < MOST_SEEN) memcpy(it->seen[it->seen_count++], candidate.entry.digest, TS_PACKAGE_DIGEST);
    it->target = source->name;
    it->visited++;
    it->is_over = it->take(it->data, &candidate) != 0;
  } else {
    it->status = status;
    it->why = error;
  }
  ts_plan_close(candidate.plan);
}

/* The plans that one package has under one key; 0 if there are none. */
static int visit_key(walk *it, const ts_source *source, const char *key) {
  char name[TS_KEY_ROOM + TS_TARGET_ROOM];
  const size_t size = (size_t)snprintf(name, sizeof name, "%s\n%s", key, source->name);
  for (uint32_t rank = 0;; rank++) {
    uint32_t index;
    ts_error error = {""};
    const ts_status status = size < sizeof name
                                 ? ts_package_find(source->package, TS_ENTRY_PLAN, name, size, rank, &index, &error)
                                 : TS_NOT_FOUND;
    if (status == TS_OK) visit_plan(it, source, index);
    if (status == TS_OK && !it->is_over) continue;
    if (status != TS_OK && status != TS_NOT_FOUND) {
      it->status = status;
      it->why = error;
    }
    return rank > 0 || status == TS_OK;
  }
}

/* The plans of a description in the packages of the nearest target that has any. */
static void visit_desc(walk *it, const ts_desc *desc, const ts_sources *sources, const uint32_t *order) {
  for (uint32_t i = 0; i < sources->count && !it->is_over; i++) {
    const ts_source *source = &sources->items[order[i]];
    if (it->visited && strcmp(it->target, source->name) != 0) return;
    char key[TS_KEY_ROOM];
    for (uint32_t spelling = 0;; spelling++) {
      if (ts_problem_spelling(desc, spelling, key, sizeof key, NULL) != TS_OK || *key == 0) break;
      if (visit_key(it, source, key)) break; /* a package has it under one of them */
    }
  }
}

/* A plan without a limit may obey it, and a deterministic one is an answer for a caller who does not ask for that. */
static void visit_variants(walk *it, const ts_sources *sources, const uint32_t *order) {
  for (int variant = 0; variant < 4 && it->visited == 0 && !it->is_over; variant++) {
    ts_desc desc = it->asked->desc;
    if ((variant & 1 && desc.workspace_limit < 0) || (variant & 2 && desc.deterministic)) continue;
    if (variant & 1) desc.workspace_limit = -1;
    if (variant & 2) desc.deterministic = 1;
    visit_desc(it, &desc, sources, order);
  }
}

/* Leave the reason why there is no solution. */
static ts_status refuse(const walk *it, uint32_t packages) {
  const ts_library *library = it->library;
  const char *own = ts_library_contents.name;
  if (it->status != TS_OK) return ts_library_fail(it->status, "%s for %s: %s", own, it->asked->key, it->why.text);
  if (packages)
    return ts_library_fail(TS_UNSUPPORTED, "%s has no plan for %s on %s; it is for %s", own, it->asked->key,
                           library->name, *library->made_for ? library->made_for : "what is loaded");
  return ts_library_fail(TS_UNSUPPORTED, "%s has no kernels for %s, this machine; it is for %s", own, library->name,
                         *library->made_for ? library->made_for : "packages, and none is loaded");
}

/* The places of all packages, that of the nearest target first, of one target the newest. Of a CPU the arch counts
 * before the threads, since a plan runs on any number of those. */
static void rank_sources(const ts_library *library, const ts_sources *sources, uint32_t *order) {
  ts_target machine = library->machine;
  if (!machine.is_cuda) machine.cores = ts_library_threads(library, NULL);
  for (uint32_t i = 0; i < sources->count; i++) {
    uint32_t at = i;
    for (; at > 0; at--) {
      const ts_source *other = &sources->items[order[at - 1]];
      if (ts_target_compare(&machine, &sources->items[i].target, &other->target) >= 0) break;
      order[at] = order[at - 1];
    }
    order[at] = i;
  }
}

ts_status ts_library_walk(const ts_library *library, const ts_asked *asked, ts_take take, void *data, uint32_t *count) {
  walk it = {library, asked, take, data, NULL, 0, 0, {{0}}, 0, TS_OK, {""}};
  const ts_sources *sources = atomic_load(&library->sources);
  const uint32_t packages = sources == NULL ? 0 : sources->count;
  uint32_t *order = calloc(packages + 1, sizeof *order);
  if (order != NULL && sources != NULL) {
    rank_sources(library, sources, order);
    visit_variants(&it, sources, order);
  }
  if (order == NULL) it.status = ts_fail(&it.why, TS_NO_MEMORY, "no memory for a list of %u packages", packages);
  free(order);
  if (count != NULL) *count = it.visited;
  return it.visited ? TS_OK : refuse(&it, packages);
}

/* --- calls --- */

static int take_first(void *data, ts_candidate *candidate) {
  (void)data, (void)candidate;
  return 1;
}

static ts_status begin(const ts_library *library, const ts_desc *desc, ts_asked *asked) {
  if (library == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "library must not be NULL");
  return ts_library_ask(desc, asked);
}

ts_status ts_library_is_supported(const ts_library *library, const ts_desc *desc) {
  ts_asked asked;
  const ts_status status = begin(library, desc, &asked);
  if (status != TS_OK || ts_library_has_reference(library)) return status;
  return ts_library_walk(library, &asked, take_first, NULL, NULL);
}

typedef struct listing {
  ts_solution *solutions;
  uint32_t capacity;
  uint32_t count;
  ts_status status;
} listing;

static void list(listing *into, ts_solution *solution) {
  solution->rank = into->count;
  if (into->count < into->capacity && into->status == TS_OK) {
    char *place = (char *)into->solutions + (size_t)into->count * into->solutions->struct_size;
    into->status = ts_library_write(place, solution, sizeof *solution, "ts_solution");
  }
  into->count++;
}

static int take_solution(void *data, ts_candidate *candidate) {
  const ts_plan_sizes *sizes = &candidate->plan->sizes;
  ts_solution solution = {sizeof solution,
                          0,
                          candidate->entry.time_us,
                          sizes->workspace_bytes,
                          sizes->packed_bytes,
                          sizes->threads,
                          candidate->source->origin,
                          "",
                          "",
                          ""};
  snprintf(solution.solver, sizeof solution.solver, "%s", candidate->plan->solver);
  snprintf(solution.config, sizeof solution.config, "%s", candidate->plan->config);
  snprintf(solution.target, sizeof solution.target, "%s", candidate->source->name);
  list(data, &solution);
  return 0;
}

ts_status ts_library_find(const ts_library *library, const ts_desc *desc, ts_solution *solutions, uint32_t capacity,
                          uint32_t *count) {
  ts_asked asked;
  ts_status status = begin(library, desc, &asked);
  if (status != TS_OK) return status;
  if (count == NULL || (solutions == NULL && capacity))
    return ts_library_fail(TS_BAD_ARGUMENT, "solutions (for a capacity of %u) and count must not be NULL", capacity);
  for (uint32_t i = 1; i < capacity; i++) {
    uint32_t size;
    memcpy(&size, (const char *)solutions + (size_t)i * solutions->struct_size, sizeof size);
    if (size != solutions->struct_size)
      return ts_library_fail(TS_BAD_ARGUMENT, "struct_size of solution %u is %u, that of the first %u", i, size,
                             solutions->struct_size);
  }
  listing into = {solutions, capacity, 0, TS_OK};
  ts_library_walk(library, &asked, take_solution, &into, NULL);
  if (ts_library_has_reference(library)) {
    ts_solution reference = {sizeof reference,  0,           0,  0, 0, ts_library_threads(library, NULL),
                             TS_FROM_REFERENCE, "reference", "", ""};
    snprintf(reference.target, sizeof reference.target, "%s", library->name);
    list(&into, &reference);
  }
  *count = into.count;
  return into.status;
}
