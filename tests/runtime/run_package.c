/* Runs a plan of a package with the binaries that the package has: PACKAGE NAME TENSORS RESULT, where NAME is a file
 * with the plan's name. The tensors of all slots lie one after the other in a file; those of outputs come back. */
#include "ts_package.h"
#include "ts_plan.h"

#include <stdio.h>
#include <stdlib.h>

static ts_error error = {""};

static void *memory(int64_t nbytes) {
  return nbytes ? aligned_alloc(64, ((size_t)nbytes + 63) / 64 * 64) : NULL;
}

/* The content of an entry; ends the program if there is none. */
static void *content(const ts_package *package, ts_entry_kind kind, const char *name, size_t length, size_t *size) {
  uint32_t index;
  ts_entry entry;
  void *bytes = NULL;
  ts_status status = ts_package_find(package, kind, name, length, 0, &index, &error);
  if (status == TS_OK) status = ts_package_entry(package, index, &entry, &error);
  if (status == TS_OK) status = ts_package_read(package, index, bytes = malloc(entry.size), entry.size, &error);
  if (status != TS_OK) printf("%.*s: %d %s\n", (int)length, name, (int)status, error.text), exit(2);
  *size = entry.size;
  return bytes;
}

int main(int count, char **words) {
  static char name[TS_PACKAGE_MOST_NAME];
  ts_package *package;
  ts_plan *plan;
  ts_slot slot;
  size_t size;
  void *slots[16];
  FILE *file = count == 5 ? fopen(words[2], "rb") : NULL;
  if (file == NULL || ts_package_open_file(words[1], &package, &error) || ts_package_verify(package, &error))
    return puts(error.text), 1;
  const size_t length = fread(name, 1, sizeof name, file);
  void *bytes = content(package, TS_ENTRY_PLAN, name, length, &size);
  if (ts_plan_open(bytes, size, &plan, &error)) return puts(error.text), 3;
  const ts_plan_sizes sizes = ts_plan_get_sizes(plan);
  for (uint32_t i = 0; i < sizes.artifacts; i++) {
    char hex[65];
    for (int at = 0; at < 32; at++)
      snprintf(hex + 2 * at, 3, "%02x", ts_plan_get_digest(plan, i)[at]);
    void *binary = content(package, TS_ENTRY_BINARY, hex, 64, &size);
    if (ts_plan_bind_image(plan, i, binary, size, &error) != TS_OK) return puts(error.text), 4;
  }
  FILE *tensors = fopen(words[3], "rb"), *results = fopen(words[4], "wb");
  for (uint32_t i = 0; i < sizes.slots; i++) {
    if (ts_plan_get_slot(plan, i, &slot) != TS_OK || (slots[i] = memory(slot.nbytes)) == NULL) return 5;
    if (fread(slots[i], 1, (size_t)slot.nbytes, tensors) != (size_t)slot.nbytes) return 6;
  }
  void *packed = memory(sizes.packed_bytes), *workspace = memory(sizes.workspace_bytes);
  if (ts_plan_prepare(plan, slots, packed, workspace) != TS_OK) return 7;
  for (int i = 0; i < 2; i++)
    if (ts_plan_run(plan, slots, packed, workspace) != TS_OK) return 8;
  for (uint32_t i = 0; i < sizes.slots; i++) {
    ts_plan_get_slot(plan, i, &slot);
    if (slot.is_output) fwrite(slots[i], 1, (size_t)slot.nbytes, results);
  }
  return fclose(results) == 0 ? 0 : 9;
}
