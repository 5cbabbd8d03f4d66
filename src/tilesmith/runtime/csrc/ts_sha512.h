/* SHA-512 (FIPS 180-4). */
#ifndef TS_SHA512_H
#define TS_SHA512_H

#include <stddef.h>
#include <stdint.h>

typedef struct ts_sha512_part {
  const void *bytes;
  size_t size;
} ts_sha512_part;

/* The digest of several parts, one after the other; together they are shorter than 2^61 bytes. */
void ts_sha512(const ts_sha512_part *parts, int count, uint8_t digest[64]);

#endif
