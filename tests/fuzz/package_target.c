/* What is fuzzed: the reader of kernel packages, inflating, and expanding LZMA.
 *
 * The input is a package. It is opened as it is, and once more with every digest made right, from the entries up to the
 * header: mutations would never get past them. All that a package lets through is read. The input is also
 * inflated, and expanded as LZMA. */
#include "ts_inflate.h"
#include "ts_lzma.h"
#include "ts_package.h"
#include "ts_sha256.h"

#include <stdlib.h>
#include <string.h>

#define HEADER 512
#define ROW 56
#define RECORD 112
#define PAGE 64
#define MOST_CONTENT (1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t number(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  while (bytes--)
    value = value << 8 | at[bytes];
  return value;
}

static void put(uint8_t *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    at[i] = (uint8_t)(value >> (8 * i));
}

static void *memory(size_t size) {
  void *found = malloc(size ? size : 1);
  if (found == NULL) abort();
  return found;
}

/* Make the digests of an entry right: `stored` are its bytes. */
static void mend_entry(uint8_t *page, uint32_t page_bytes, uint8_t *record, const uint8_t *stored,
                       uint64_t stored_bytes) {
  const uint64_t most = number(record + 32, 8);
  uint8_t *content = NULL;
  ts_sha256(stored, stored_bytes, record + 80);
  memcpy(record + 48, record + 80, TS_SHA256_BYTES);
  if (record[1] && record[1] <= 2 && most <= MOST_CONTENT) {
    content = memory(most);
    if ((record[1] == 1 ? ts_inflate : ts_unlzma)(stored, stored_bytes, content, most))
      ts_sha256(content, most, record + 48);
    free(content);
  }
  const uint32_t name_at = (uint32_t)number(record + 12, 4);
  if (record[0] == TS_ENTRY_BINARY && number(record + 16, 4) == 64 && page_bytes >= 64 && name_at <= page_bytes - 64)
    for (int i = 0; i < 64; i++)
      page[name_at + i] = (uint8_t)"0123456789abcdef"[record[48 + i / 2] >> (i % 2 ? 0 : 4) & 15];
}

static void mend(uint8_t *bytes, size_t size) {
  if (size < HEADER) return;
  put(bytes + 16, size, 8);
  const uint32_t pages = (uint32_t)number(bytes + 28, 4);
  const uint64_t table = number(bytes + 32, 8), index = number(bytes + 40, 8);
  if (table <= size - HEADER && index <= size - HEADER - table) put(bytes + 48, size - HEADER - table - index, 8);
  if (table <= size - HEADER && pages <= table / ROW) {
    uint64_t at = HEADER + table;
    for (uint32_t i = 0; i < pages; i++) {
      uint8_t *row = bytes + HEADER + (size_t)i * ROW;
      const uint32_t page_bytes = (uint32_t)number(row + 8, 4);
      uint64_t stored_at = number(row, 8);
      if (page_bytes > size - at) break;
      for (uint32_t k = 0; k < PAGE && (k + 1) * RECORD <= page_bytes; k++) {
        uint8_t *record = bytes + at + (size_t)k * RECORD;
        const uint64_t stored_bytes = number(record + 24, 8);
        if (stored_at > size || stored_bytes > size - stored_at) break;
        mend_entry(bytes + at, page_bytes, record, bytes + stored_at, stored_bytes);
        stored_at += stored_bytes;
      }
      ts_sha256(bytes + at, page_bytes, row + 24);
      at += page_bytes;
    }
    ts_sha256(bytes + HEADER, table, bytes + 80);
  }
  ts_sha256(bytes, 480, bytes + 480);
}

static size_t read_entry(const ts_package *package, uint32_t index) {
  ts_entry entry;
  ts_error error = {{0}};
  if (ts_package_entry(package, index, &entry, &error) != TS_OK) return *error.text == 0 ? abort(), 0 : 0;
  uint32_t found = UINT32_MAX;
  if (ts_package_find(package, entry.kind, entry.name, entry.name_bytes, entry.rank, &found, &error) != TS_OK ||
      found != index)
    abort(); /* what is there is found */
  if (ts_package_find(package, entry.kind, entry.name, entry.name_bytes - 1, entry.rank, &found, NULL) == TS_OK &&
      found == index)
    abort();
  size_t seen = entry.digest[31] + entry.stored_digest[31];
  if (entry.size <= MOST_CONTENT) { /* memory of these very sizes, so that a byte beyond them is seen */
    uint8_t *content = memory(entry.size), *stored = memory(entry.stored_bytes);
    if (ts_package_read(package, index, content, entry.size, &error) == TS_OK) seen += content[entry.size - 1];
    if (ts_package_read(package, index, content, entry.size - 1, NULL) == TS_OK) abort();
    if (ts_package_read_stored(package, index, stored, entry.stored_bytes, &error) == TS_OK)
      seen += stored[entry.stored_bytes - 1];
    free(content);
    free(stored);
  }
  return seen;
}

static volatile size_t read_bytes;

static void read_package(const uint8_t *bytes, size_t size) {
  ts_package *package = NULL;
  ts_error error = {{0}};
  if (ts_package_open(bytes, size, &package, &error) != TS_OK) {
    if (package != NULL || *error.text == 0) abort(); /* a refusal says why */
    return;
  }
  const ts_package_facts *facts = ts_package_get_facts(package);
  size_t seen = strlen(facts->name) + strlen(facts->target) + strlen(facts->maker) + strlen(facts->generator);
  const ts_status signature = ts_package_check_signature(package, NULL, &error);
  if ((signature == TS_NOT_FOUND) == facts->is_signed || (signature == TS_OK && !facts->is_signed)) abort();
  uint32_t index;
  if (ts_package_find(package, TS_ENTRY_FIND, "q\nt", 3, 0, &index, &error) == TS_OK) seen += index;
  for (uint32_t i = 0; i < facts->entries; i++)
    if (i < 3 || facts->entries - i < 3) seen += read_entry(package, i); /* ts_package_verify reads all */
  if (ts_package_verify(package, &error) == TS_OK) seen++;
  read_bytes = seen; /* so that no read is left out */
  ts_package_close(package);
}

static void expand(const uint8_t *data, size_t size) {
  if (size < 3) return;
  const size_t room = number(data, 3) % 100000;
  uint8_t *content = memory(room);
  ts_inflate(data + 3, size - 3, content, room);
  ts_unlzma(data + 3, size - 3, content, room);
  free(content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  expand(data, size);
  read_package(data, size);
  uint8_t *bytes = memory(size);
  memcpy(bytes, data, size);
  mend(bytes, size);
  read_package(bytes, size);
  free(bytes);
  return 0;
}
