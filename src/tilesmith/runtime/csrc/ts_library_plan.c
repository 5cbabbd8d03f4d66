/* Plans of a library: chosen, bound, and their memory told. */
#include "ts_library_parts.h"
#include "ts_pool.h"

#include <stdlib.h>

#define SLOT_ALIGNMENT 16 /* on a GPU */

typedef struct choice {
  uint32_t wanted;
  uint32_t passed;
  ts_plan *plan;
  const ts_source *source;
} choice;

static int take_wanted(void *data, ts_candidate *candidate) {
  choice *it = data;
  if (it->passed++ != it->wanted) return 0;
  it->plan = candidate->plan;
  it->source = candidate->source;
  candidate->plan = NULL;
  return 1;
}

/* The reference, if it has the rank behind the plans. */
static ts_status make_reference(const ts_library *library, const ts_asked *asked, ts_bound_plan *made) {
#ifdef TS_WITHOUT_REFERENCE
  (void)library, (void)asked, (void)made;
  return TS_UNSUPPORTED;
#else
  ts_error error = {""};
  const ts_status status = ts_reference_open(&asked->desc, &made->reference, &error);
  if (status != TS_OK) return ts_library_failed(status, &error);
  made->threads = ts_library_threads(library, NULL);
  /* Of a problem without elements operands may be NULL; the reference knows which. */
  for (uint32_t i = 0; i < made->count; i++)
    made->slots[i].is_used = made->reference.items > 0 && !made->reference.is_blank;
  return TS_OK;
#endif
}

static ts_status choose(const ts_library *library, const ts_asked *asked, uint32_t rank, ts_bound_plan *made) {
  choice it = {rank == TS_BEST ? 0 : rank, 0, NULL, NULL};
  ts_error error = {""};
  ts_status status = ts_library_walk(library, asked, take_wanted, &it, NULL);
  if (it.plan == NULL) {
    const int has_reference = ts_library_has_reference(library);
    if (has_reference && it.wanted == it.passed) return make_reference(library, asked, made);
    if (it.passed == 0 && !has_reference) return status;
    return ts_library_fail(TS_BAD_ARGUMENT, "rank %u of %u solutions", rank, it.passed + (uint32_t)has_reference);
  }
  made->plan = it.plan;
  made->threads = it.plan->sizes.threads;
  for (uint32_t i = 0; i < made->count; i++) {
    if (made->device >= 0) made->slots[i].place.alignment = SLOT_ALIGNMENT;
    made->slots[i].is_used = it.plan->slot_used[i];
  }
  status = ts_library_bind(library, it.source, it.plan, &error);
  return status == TS_OK ? status : ts_library_fail(status, "%s: %s", asked->key, error.text);
}

ts_status ts_library_plan_create(const ts_library *library, const ts_desc *desc, uint32_t rank, ts_bound_plan **plan) {
  ts_asked asked;
  if (plan == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "plan must not be NULL");
  *plan = NULL;
  if (library == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "library must not be NULL");
  ts_status status = ts_library_ask(desc, &asked);
  if (status != TS_OK) return status;
  ts_bound_plan *made = calloc(1, sizeof *made);
  if (made == NULL) return ts_library_fail(TS_NO_MEMORY, "no memory for a plan");
  made->device = library->device;
  made->count = asked.count;
  for (uint32_t i = 0; i < asked.count; i++) {
    made->slots[i].place = asked.places[i];
  }
  status = choose(library, &asked, rank, made);
  if (status == TS_OK) {
    if (made->threads > 1) ts_pool_start(made->threads);
    *plan = made;
  } else
    ts_library_plan_destroy(made);
  return status;
}

void ts_library_plan_destroy(ts_bound_plan *plan) {
  if (plan == NULL) return;
  ts_plan_close(plan->plan);
  free(plan);
}

ts_status ts_library_plan_sizes(const ts_bound_plan *plan, ts_needs *needs) {
  if (plan == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "plan must not be NULL");
  const ts_plan *own = plan->plan;
  ts_needs found = {sizeof found, 1, 0, 0, plan->threads, plan->device, 0, 0, 0, 0};
  for (uint32_t i = 0; i < plan->count; i++)
    found.operands |= plan->slots[i].place.bit;
  found.results = plan->slots[plan->count - 1].place.bit;
  if (own != NULL) {
    found.alignment = own->sizes.alignment;
    found.workspace_bytes = own->sizes.workspace_bytes;
    found.packed_bytes = own->sizes.packed_bytes;
    found.must_prepare = own->sizes.prepare_steps > 0;
    found.slot_alignment = own->family == TS_CUDA ? SLOT_ALIGNMENT : 0;
  }
  return ts_library_write(needs, &found, sizeof found, "ts_needs");
}
