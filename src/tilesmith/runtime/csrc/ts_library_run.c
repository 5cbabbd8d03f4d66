/* The calls that compute. Nothing is allocated here. */
#include "ts_library_parts.h"

#include <string.h>

/* The address of an operand, by its place in ts_operands. */
static void *given(const ts_operands *operands, uint32_t bit) {
  switch (bit) {
  case TS_HAS_X:
    return operands->x;
  case TS_HAS_W:
    return operands->w;
  case TS_HAS_Y:
    return operands->y;
  case TS_HAS_BIAS:
    return operands->bias;
  case TS_HAS_RESIDUAL:
    return operands->residual;
  default:
    return operands->scale;
  }
}

/* The addresses of the plan's slots. `bits`: the operands that this call reads or writes. */
static ts_status fill_slots(const ts_bound_plan *plan, const ts_operands *operands, uint32_t bits,
                            void *slots[TS_MOST_SLOTS]) {
  ts_operands own;
  CHECK(ts_library_read(&own, sizeof own, operands, offsetof(ts_operands, bias), "ts_operands"));
  if (own.abi_version != TS_ABI_VERSION)
    return ts_library_fail(TS_BAD_ARGUMENT, "abi_version of ts_operands is %u, this library has %d", own.abi_version,
                           TS_ABI_VERSION);
  for (uint32_t i = 0; i < plan->count; i++) {
    const ts_place *place = &plan->slots[i].place;
    char *address = given(&own, place->bit);
    slots[i] = NULL;
    if (!(place->bit & bits)) continue;
    if (address == NULL) {
      if (!plan->slots[i].is_used) continue;
      return ts_library_fail(TS_BAD_ARGUMENT, "operand %s must not be NULL", place->called);
    }
    slots[i] = address + place->offset;
    if ((uintptr_t)slots[i] % place->alignment)
      return ts_library_fail(TS_BAD_ARGUMENT, "operand %s at address %p is not aligned to %u bytes", place->called,
                             slots[i], place->alignment);
  }
  return TS_OK;
}

static ts_status check_memory(const ts_bound_plan *plan, const void *packed, const void *workspace) {
  if (plan->plan == NULL) return TS_OK;
  const ts_plan_sizes *sizes = &plan->plan->sizes;
  const struct {
    const char *name;
    int64_t bytes;
    const void *address;
  } memories[] = {{"packed", sizes->packed_bytes, packed}, {"workspace", sizes->workspace_bytes, workspace}};
  for (int i = 0; i < 2; i++)
    if (memories[i].bytes && (memories[i].address == NULL || (uintptr_t)memories[i].address % sizes->alignment))
      return ts_library_fail(TS_BAD_ARGUMENT, "%s at address %p: %lld bytes, aligned to %u, are needed",
                             memories[i].name, memories[i].address, (long long)memories[i].bytes, sizes->alignment);
  return TS_OK;
}

static ts_status begin(const ts_bound_plan *plan, const void *packed, const void *workspace, const void *stream) {
  if (plan == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "plan must not be NULL");
  if (plan->device < 0 && stream != NULL)
    return ts_library_fail(TS_BAD_ARGUMENT, "stream %p: a plan of the CPU has none", stream);
  return check_memory(plan, packed, workspace);
}

ts_status ts_library_prepare(const ts_bound_plan *plan, const ts_operands *operands, void *packed, void *workspace,
                             void *stream) {
  void *slots[TS_MOST_SLOTS];
  ts_error error = {""};
  CHECK(begin(plan, packed, workspace, stream));
  if (plan->plan == NULL || plan->plan->sizes.prepare_steps == 0) return TS_OK;
  CHECK(fill_slots(plan, operands, TS_HAS_W, slots));
  if (slots[1] == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "operand w must not be NULL");
  if (plan->device < 0) return ts_plan_prepare(plan->plan, slots, packed, workspace);
  const ts_status status = ts_plan_prepare_on(plan->plan, plan->device, stream, slots, packed, workspace, &error);
  return status == TS_OK ? status : ts_library_failed(status, &error);
}

ts_status ts_library_run(const ts_bound_plan *plan, const ts_operands *operands, const void *packed, void *workspace,
                         void *stream) {
  void *slots[TS_MOST_SLOTS];
  ts_error error = {""};
  CHECK(begin(plan, packed, workspace, stream));
  CHECK(fill_slots(plan, operands, ~0u, slots));
#ifndef TS_WITHOUT_REFERENCE
  if (plan->plan == NULL) {
    const ts_status status = ts_reference_run(&plan->reference, slots, plan->threads);
    return status == TS_OK ? status : ts_library_fail(status, "the reference: an operand is NULL");
  }
#endif
  const ts_status status = plan->device < 0
                               ? ts_plan_run(plan->plan, slots, packed, workspace)
                               : ts_plan_run_on(plan->plan, plan->device, stream, slots, packed, workspace, &error);
  if (status == TS_OK) return status;
  return *error.text ? ts_library_failed(status, &error) : ts_library_fail(status, "%s", ts_status_text(status));
}
