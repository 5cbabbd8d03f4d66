/* Runs plans whose kernels are linked in: PLAN TENSORS RESULT. The tensors of all slots lie one after the other in a
 * file; those of outputs come back. */
#include "ts_plan.h"

#include <stdio.h>
#include <stdlib.h>

#define KERNEL(symbol) void symbol(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end);
#include "kernels.h"
#undef KERNEL
#define KERNEL(symbol) {#symbol, symbol},
static const struct {
  const char *symbol;
  ts_kernel kernel;
} kernels[] = {
#include "kernels.h"
};

static void *memory(int64_t nbytes) {
  return nbytes ? aligned_alloc(64, ((size_t)nbytes + 63) / 64 * 64) : NULL;
}

int main(int count, char **words) {
  static char bytes[1 << 20];
  ts_error error = {""};
  ts_plan *plan;
  void *slots[16];
  FILE *file = count == 4 ? fopen(words[1], "rb") : NULL;
  if (file == NULL || ts_plan_open(bytes, fread(bytes, 1, sizeof bytes, file), &plan, &error))
    return puts(error.text), 2;
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    ts_plan_bind_kernel(plan, kernels[i].symbol, kernels[i].kernel, NULL); /* those of other plans are refused */
  const ts_plan_sizes sizes = ts_plan_get_sizes(plan);
  FILE *tensors = fopen(words[2], "rb"), *results = fopen(words[3], "wb");
  ts_slot slot;
  for (uint32_t i = 0; i < sizes.slots; i++) {
    if (ts_plan_get_slot(plan, i, &slot) != TS_OK || (slots[i] = memory(slot.nbytes)) == NULL) return 3;
    if (fread(slots[i], 1, (size_t)slot.nbytes, tensors) != (size_t)slot.nbytes) return 4;
  }
  void *packed = memory(sizes.packed_bytes), *workspace = memory(sizes.workspace_bytes);
  if (ts_plan_prepare(plan, slots, packed, workspace) != TS_OK) return 5;
  for (int i = 0; i < 2; i++)
    if (ts_plan_run(plan, slots, packed, workspace) != TS_OK) return 6;
  for (uint32_t i = 0; i < sizes.slots; i++) {
    ts_plan_get_slot(plan, i, &slot);
    if (slot.is_output) fwrite(slots[i], 1, (size_t)slot.nbytes, results);
  }
  return fclose(results) == 0 ? 0 : 7;
}
