/* What is fuzzed: the reading of a problem's description, its check, its shape and its key.
 *
 * The input is the description's bytes in memory of exactly that size. The head is put right, or most mutations would
 * end there; it is also read as it is, if it asks for no more bytes than there are. */
#include "ts_problem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *copied(const void *bytes, size_t size) {
  void *memory = malloc(size ? size : 1);
  if (memory == NULL) abort();
  if (size) memcpy(memory, bytes, size);
  return memory;
}

/* The key in memory of exactly its size, and in one byte less. */
static void check_room(const ts_desc *desc, const char *key) {
  const size_t length = strlen(key);
  ts_error error = {{0}};
  char *exact = copied(key, length + 1), *less = copied(key, length);
  memset(exact, '?', length + 1);
  if (ts_problem_key(desc, exact, length + 1, &error) != TS_OK || strcmp(exact, key) != 0) abort();
  if (ts_problem_key(desc, less, length, &error) != TS_BAD_ARGUMENT || *less != 0) abort();
  free(exact);
  free(less);
}

static void describe(const ts_desc *desc) {
  ts_error error = {{0}};
  char *key = malloc(TS_KEY_ROOM);
  if (key == NULL) abort();
  const ts_status checked = ts_desc_check(desc, &error);
  if ((checked == TS_OK) != (*error.text == 0)) abort(); /* a refusal says why */
  ts_shape shape;
  if (ts_output_shape(desc, &shape, NULL) != checked) abort();
  if (checked == TS_OK && (shape.axes < 2 || shape.axes > 6 || shape.elements < 0)) abort();
  const ts_status named = ts_problem_key(desc, key, TS_KEY_ROOM, &error);
  if ((named == TS_OK) != (*key != 0) || (checked != TS_OK && named != checked)) abort();
  if (named == TS_BAD_ARGUMENT && checked == TS_OK) abort(); /* TS_KEY_ROOM is enough */
  if (named == TS_OK) check_room(desc, key);
  for (uint32_t index = 1; named == TS_OK && *key; index++)
    if (index > 5 || ts_problem_spelling(desc, index, key, TS_KEY_ROOM, NULL) != TS_OK) abort();
  free(key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 8) return 0;
  uint32_t *desc = copied(data, size);
  if (desc[0] <= size) describe((const ts_desc *)desc);
  desc[0] = (uint32_t)(size / 8 * 8);
  desc[1] = TS_ABI_VERSION;
  describe((const ts_desc *)desc);
  free(desc);
  return 0;
}
