/* Many threads read one package at once: `races FILE`. Built with the thread sanitizer. */
#include "ts_package.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, TURNS = 100 };

static ts_package *package;

static void *work(void *seed) {
  uint32_t state = (uint32_t)(size_t)seed;
  const uint32_t entries = ts_package_get_facts(package)->entries;
  for (int turn = 0; turn < TURNS; turn++) {
    state = state * 1664525u + 1013904223u;
    const uint32_t index = (state >> 8) % entries;
    ts_entry entry;
    uint32_t found;
    if (ts_package_entry(package, index, &entry, NULL) != TS_OK) return "entry";
    void *content = malloc(entry.size);
    const int right =
        ts_package_find(package, entry.kind, entry.name, entry.name_bytes, entry.rank, &found, NULL) == TS_OK &&
        found == index && ts_package_read(package, index, content, entry.size, NULL) == TS_OK;
    free(content);
    if (!right) return "read";
  }
  return NULL;
}

int main(int argc, char **argv) {
  for (int turn = 0; turn < 5; turn++) {
    ts_error error;
    if (argc != 2 || ts_package_open_file(argv[1], &package, &error) != TS_OK) return 2;
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
      if (pthread_create(&threads[i], NULL, work, (void *)(i + 1)) != 0) return 3;
    for (size_t i = 0; i < THREADS; i++) {
      void *wrong;
      if (pthread_join(threads[i], &wrong) != 0 || wrong != NULL) return puts(wrong), 4;
    }
    ts_package_close(package);
  }
  return 0;
}
