/* Reads package indexes. */
#include "ts_index.h"
#include "ts_plan.h"

#include <stdlib.h>
#include <string.h>

#define REFUSE(...) return ts_fail(error, TS_BAD_ARGUMENT, __VA_ARGS__)

enum { TARGET, NAME, COUNTER, DIGEST, SIZE, PLACE, FIELDS };
static const char *const field_names[] = {"target", "name", "counter", "sha256", "size", "file"};

static int has_only(const char *text, size_t most, const char *allowed) {
  const size_t length = strlen(text);
  return length > 0 && length <= most && strspn(text, allowed) == length;
}

#define DIGITS "0123456789"
#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* A decimal number without leading zeros that is at most `most`. */
static int is_number(const char *text, const char *most) {
  return has_only(text, 20, DIGITS) && (text[0] != '0' || text[1] == 0) && ts_index_compare_counters(text, most) <= 0;
}

static int is_hex(const char *text, size_t digits) {
  return strlen(text) == digits && has_only(text, digits, DIGITS "abcdef");
}

static int is_file(const char *text) {
  const size_t length = strlen(text);
  return has_only(text, 200, DIGITS LOWER UPPER "._+-") && text[0] != '.' && text[0] != '-' && length > 4 &&
         strcmp(text + length - 4, ".kdb") == 0;
}

static int keeps_rule(int field, const char *text) {
  switch (field) {
  case TARGET:
    return has_only(text, 95, DIGITS LOWER UPPER "._:+-") && strspn(text, DIGITS LOWER UPPER) > 0;
  case NAME:
    return has_only(text, 63, DIGITS LOWER "._-") && strspn(text, DIGITS LOWER) > 0;
  case COUNTER:
    return is_number(text, "18446744073709551615");
  case DIGEST:
    return is_hex(text, 64);
  case SIZE:
    return is_number(text, "1073741824") && ts_index_compare_counters(text, "512") >= 0;
  default:
    return is_file(text);
  }
}

int ts_index_compare_counters(const char *a, const char *b) {
  const size_t a_length = strlen(a), b_length = strlen(b);
  return a_length != b_length ? (a_length > b_length) - (a_length < b_length) : strcmp(a, b);
}

/* Cut a line at its spaces; how many fields it has, FIELDS + 1 for more. */
static int split(char *line, const char *fields[FIELDS]) {
  int count = 0;
  for (char *at = line; at != NULL && count <= FIELDS; count++) {
    if (count < FIELDS) fields[count] = at;
    if ((at = strchr(at, ' ')) != NULL) *at++ = 0;
  }
  return count;
}

/* The order of lines: by name, target and counter. */
static int compare(const ts_index_line *a, const ts_index_line *b) {
  int order = strcmp(a->name, b->name);
  if (order == 0) order = strcmp(a->target, b->target);
  return order != 0 ? order : ts_index_compare_counters(a->counter, b->counter);
}

static ts_status add_line(ts_index *index, char *line, uint32_t number, ts_error *error) {
  const char *fields[FIELDS];
  if (split(line, fields) != FIELDS) REFUSE("line %u has no six fields with one space between", number);
  for (int i = 0; i < FIELDS; i++)
    if (!keeps_rule(i, fields[i]))
      REFUSE("line %u: its %s breaks the rule: '%.64s'", number, field_names[i], fields[i]);
  if (index->count == TS_INDEX_MOST_LINES) REFUSE("there are over %d packages", TS_INDEX_MOST_LINES);
  ts_index_line *made = &index->lines[index->count];
  *made = (ts_index_line){fields[TARGET], fields[NAME], fields[COUNTER], fields[DIGEST], fields[SIZE], fields[PLACE]};
  if (index->count > 0 && compare(made - 1, made) >= 0)
    REFUSE("line %u is not behind the one before it, in the order of name, target and counter", number);
  for (uint32_t i = 0; i < index->count; i++)
    if (strcmp(index->lines[i].file, made->file) == 0) REFUSE("line %u repeats the file '%s'", number, made->file);
  index->count++;
  return TS_OK;
}

static ts_status check_end(ts_index *index, char *line, char *rest, ts_error *error) {
  const char *fields[FIELDS];
  if (split(line, fields) != 2 || !is_number(fields[1], "4096") || strtoul(fields[1], NULL, 10) != index->count)
    REFUSE("its end does not count its %u packages", index->count);
  if (*rest == 0) return TS_OK;
  char *end = strchr(rest, '\n');
  *end = 0;
  if (end[1] != 0 || split(rest, fields) != 3 || strcmp(fields[0], "signed") != 0 || !is_hex(fields[1], 64) ||
      !is_hex(fields[2], 128))
    REFUSE("what follows its end is no signature");
  index->public_key = fields[1];
  index->signature = fields[2];
  return TS_OK;
}

ts_status ts_index_read(char *text, size_t size, ts_index *index, ts_error *error) {
  static const char first[] = "tilesmith packages 1\n";
  index->count = 0;
  index->public_key = index->signature = NULL;
  if (size > TS_INDEX_MOST_BYTES) REFUSE("it is over %d bytes", TS_INDEX_MOST_BYTES);
  for (size_t i = 0; i < size; i++)
    if (text[i] != '\n' && (text[i] < ' ' || text[i] > '~')) REFUSE("byte %zu is not printable ASCII", i);
  text[size] = 0;
  if (strncmp(text, first, sizeof first - 1) != 0) REFUSE("its first line is not 'tilesmith packages 1'");
  if (text[size - 1] != '\n') REFUSE("its last line is cut off");
  char *at = text + sizeof first - 1;
  for (uint32_t number = 2; *at != 0; number++) {
    char *line = at;
    at = strchr(line, '\n');
    *at++ = 0;
    if (strncmp(line, "end ", 4) == 0) return check_end(index, line, at, error);
    const ts_status status = add_line(index, line, number, error);
    if (status != TS_OK) return status;
  }
  REFUSE("its end is missing");
}
