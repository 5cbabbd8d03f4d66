/* All problems that a library holds for this machine. */
#include "ts_library_parts.h"

#include <string.h>

/* Whether a package that comes before has a plan for the problem. */
static int is_held_before(const ts_sources *sources, uint32_t place, const char *key, size_t key_bytes) {
  for (uint32_t i = 0; i < place; i++) {
    char name[TS_PACKAGE_MOST_NAME];
    uint32_t index;
    const size_t target_bytes = strlen(sources->items[i].name);
    if (key_bytes + 1 + target_bytes > sizeof name) continue;
    memcpy(name, key, key_bytes);
    name[key_bytes] = '\n';
    memcpy(name + key_bytes + 1, sources->items[i].name, target_bytes);
    if (ts_package_find(sources->items[i].package, TS_ENTRY_PLAN, name, key_bytes + 1 + target_bytes, 0, &index,
                        NULL) == TS_OK)
      return 1;
  }
  return 0;
}

/* How many plans follow that have the name of this one, itself counted. */
static uint32_t count_ranks(const ts_package *package, uint32_t index, const ts_entry *first) {
  uint32_t count = 1;
  ts_entry next;
  while (ts_package_entry(package, index + count, &next, NULL) == TS_OK && next.kind == first->kind &&
         next.name_bytes == first->name_bytes && memcmp(next.name, first->name, next.name_bytes) == 0)
    count++;
  return count;
}

static ts_status visit_package(const ts_sources *sources, uint32_t place, ts_visit visit, void *data, int *is_over) {
  const ts_source *source = &sources->items[place];
  const uint32_t entries = ts_package_get_facts(source->package)->entries;
  for (uint32_t i = 0; i < entries && !*is_over; i++) {
    ts_entry entry;
    ts_error error = {""};
    const ts_status status = ts_package_entry(source->package, i, &entry, &error);
    if (status != TS_OK) return ts_library_failed(status, &error);
    if (entry.kind != TS_ENTRY_PLAN) break; /* plans come first */
    const char *feed = memchr(entry.name, '\n', entry.name_bytes);
    const size_t key_bytes = feed == NULL ? 0 : (size_t)(feed - entry.name);
    const size_t target_bytes = feed == NULL ? 0 : entry.name_bytes - key_bytes - 1;
    if (entry.rank || key_bytes >= TS_KEY_ROOM || target_bytes != strlen(source->name) ||
        memcmp(entry.name + key_bytes + 1, source->name, target_bytes) != 0 ||
        is_held_before(sources, place, entry.name, key_bytes))
      continue;
    char key[TS_KEY_ROOM];
    memcpy(key, entry.name, key_bytes);
    key[key_bytes] = 0;
    const ts_held_problem held = {
        sizeof held, count_ranks(source->package, i, &entry), key, source->name, entry.time_us, source->origin, 0};
    *is_over = visit(data, &held) != 0;
  }
  return TS_OK;
}

ts_status ts_library_enumerate(const ts_library *library, ts_visit visit, void *data) {
  if (library == NULL || visit == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "library and visit must not be NULL");
  const ts_sources *sources = atomic_load(&library->sources);
  int is_over = 0;
  for (uint32_t i = 0; sources != NULL && i < sources->count && !is_over; i++) {
    const ts_status status = visit_package(sources, i, visit, data, &is_over);
    if (status != TS_OK) return status;
  }
  return TS_OK;
}
