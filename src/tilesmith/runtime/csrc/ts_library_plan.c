/* Plans of a library: kernels bound, memory told, then run. */
#include "ts_library_parts.h"
#include "ts_pool.h"

#include <stdlib.h>
#include <string.h>

#define SLOT_ALIGNMENT 16 /* on a GPU */

/* --- binding --- */

static const ts_library_artifact *linked(const uint8_t *digest) {
  uint32_t low = 0, high = ts_library_contents.artifact_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const ts_library_artifact *artifact = &ts_library_contents.artifacts[middle];
    const int order = memcmp(artifact->digest, digest, sizeof artifact->digest);
    if (order == 0) return artifact;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

static ts_status find_binary(const ts_source *source, const uint8_t *digest, uint32_t *index, ts_error *error) {
  char name[2 * TS_PACKAGE_DIGEST];
  for (int i = 0; i < 2 * TS_PACKAGE_DIGEST; i++)
    name[i] = "0123456789abcdef"[digest[i / 2] >> (i % 2 ? 0 : 4) & 15];
  const ts_status status = ts_package_find(source->package, TS_ENTRY_BINARY, name, sizeof name, 0, index, error);
  if (status == TS_NOT_FOUND)
    return ts_fail(error, status, "its kernel %.16s... is neither linked in nor in the package", name);
  return status;
}

int ts_library_can_bind(const ts_source *source, const ts_plan *plan, ts_error *error) {
  for (uint32_t i = 0; i < plan->sizes.artifacts; i++) {
    const uint8_t *digest = ts_plan_get_digest(plan, i);
    uint32_t index;
    if (plan->family == TS_CPU && linked(digest) != NULL) continue;
    if (find_binary(source, digest, &index, error) != TS_OK) return 0;
  }
  return 1;
}

static ts_status bind_linked(ts_plan *plan, const ts_library_artifact *artifact, const ts_step *steps, uint32_t count,
                             uint32_t index, ts_error *error) {
  for (uint32_t i = 0; i < count; i++) {
    if (steps[i].is_memset || steps[i].artifact != index) continue;
    uint32_t at = 0;
    while (at < artifact->count && strcmp(artifact->kernels[at].symbol, steps[i].symbol) != 0)
      at++;
    if (at == artifact->count)
      return ts_fail(error, TS_NOT_LOADED, "the kernel %s is not among those linked in for its digest",
                     steps[i].symbol);
    CHECK(ts_plan_bind_kernel(plan, steps[i].symbol, artifact->kernels[at].kernel, error));
  }
  return TS_OK;
}

static ts_status bind_packaged(ts_plan *plan, const ts_source *source, uint32_t index, ts_error *error) {
  uint32_t place;
  ts_entry entry;
  CHECK(find_binary(source, ts_plan_get_digest(plan, index), &place, error));
  CHECK(ts_package_entry(source->package, place, &entry, error));
  void *bytes = malloc((size_t)entry.size);
  if (bytes == NULL)
    return ts_fail(error, TS_NO_MEMORY, "no memory for a kernel of %llu bytes", (unsigned long long)entry.size);
  ts_status status = ts_package_read(source->package, place, bytes, (size_t)entry.size, error);
  if (status == TS_OK) status = ts_plan_bind_image(plan, index, bytes, (size_t)entry.size, error);
  free(bytes);
  return status;
}

ts_status ts_library_bind(const ts_library *library, const ts_source *source, ts_plan *plan, ts_error *error) {
  for (uint32_t i = 0; i < plan->sizes.artifacts; i++) {
    const ts_library_artifact *artifact = plan->family == TS_CPU ? linked(ts_plan_get_digest(plan, i)) : NULL;
    if (artifact == NULL) {
      CHECK(bind_packaged(plan, source, i, error));
      continue;
    }
    CHECK(bind_linked(plan, artifact, plan->prepare, plan->sizes.prepare_steps, i, error));
    CHECK(bind_linked(plan, artifact, plan->run, plan->sizes.run_steps, i, error));
  }
  return plan->family == TS_CUDA ? ts_plan_load_on(plan, library->device, error) : TS_OK;
}

/* --- creation --- */

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
    made->slots[i].is_used = 1;
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
