/* The kernels of a plan: linked in, or from its package. */
#include "ts_library_parts.h"

#include <stdlib.h>
#include <string.h>

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
