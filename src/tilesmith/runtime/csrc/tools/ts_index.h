/* Package indexes: the text file that says which packages lie beside it. docs/reference/package-index.md has its rules.
 */
#ifndef TS_INDEX_H
#define TS_INDEX_H

#include "tilesmith_runtime.h"

#define TS_INDEX_MOST_BYTES (1 << 20)
#define TS_INDEX_MOST_LINES 4096

/* A line's fields; texts end with a NUL. */
typedef struct ts_index_line {
  const char *target;
  const char *name;
  const char *counter;
  const char *digest;
  const char *size;
  const char *file;
} ts_index_line;

/* `public_key` and `signature` are hex digits; NULL in an index that is not signed. */
typedef struct ts_index {
  uint32_t count;
  const char *public_key;
  const char *signature;
  ts_index_line lines[TS_INDEX_MOST_LINES];
} ts_index;

/* Read the index in `text`, whose line ends and spaces become NULs; `text` has room for `size` + 1 bytes and outlives
 * the index. TS_BAD_ARGUMENT with the line for one that breaks a rule. Its signature is not verified. */
ts_status ts_index_read(char *text, size_t size, ts_index *index, ts_error *error);

/* Which of two decimal numbers without leading zeros is the greater: negative for the second one, 0 for neither. */
int ts_index_compare_counters(const char *a, const char *b);

#endif
