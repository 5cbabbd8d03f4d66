/* Finds a public key among the lines of a file. */
#include "ts_keys.h"

#include <string.h>

#define DIGITS 44 /* of 32 bytes in base64, with one '=' */

/* A key has one spelling, so it is compared as text. */
static void encode(const uint8_t key[32], char text[DIGITS + 1]) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int i = 0, at = 0; i < 32; i += 3, at += 4) {
    const uint32_t bits =
        (uint32_t)key[i] << 16 | (uint32_t)(i + 1 < 32 ? key[i + 1] : 0) << 8 | (i + 2 < 32 ? key[i + 2] : 0);
    for (int j = 0; j < 4; j++)
      text[at + j] = digits[bits >> (18 - 6 * j) & 63];
  }
  text[DIGITS - 1] = '=';
  text[DIGITS] = 0;
}

static int is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

/* Moves behind `word` where the line begins with it. */
static int skip(const char **line, const char *word) {
  const size_t length = strlen(word);
  if (strncmp(*line, word, length) != 0) return 0;
  *line += length;
  return 1;
}

ts_key_standing ts_keys_find(const char *text, const uint8_t key[32], char name[TS_KEYS_NAME]) {
  char spelling[DIGITS + 1];
  ts_key_standing standing = TS_KEY_UNKNOWN;
  encode(key, spelling);
  for (const char *line = text, *next; *line; line = next) {
    const char *end = line + strcspn(line, "\n");
    next = *end ? end + 1 : end;
    while (line < end && is_blank(*line))
      line++;
    while (end > line && is_blank(end[-1]))
      end--;
    const int is_revoked = skip(&line, "revoked ");
    while (line < end && is_blank(*line))
      line++;
    if (!skip(&line, "ed25519:") || !skip(&line, spelling) || !skip(&line, " ")) continue;
    const size_t length = line < end ? (size_t)(end - line) : 0;
    if (length == 0 || length >= TS_KEYS_NAME) continue;
    if (standing != TS_KEY_UNKNOWN && !is_revoked) continue; /* the first one names it */
    memcpy(name, line, length);
    name[length] = 0;
    standing = is_revoked ? TS_KEY_REVOKED : TS_KEY_TRUSTED;
    if (is_revoked) break;
  }
  return standing;
}
