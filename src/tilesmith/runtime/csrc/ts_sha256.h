/* SHA-256 (FIPS 180-4). */
#ifndef TS_SHA256_H
#define TS_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define TS_SHA256_BYTES 32

/* The digest of `size` bytes; `bytes` may be NULL when `size` is 0. */
void ts_sha256(const void *bytes, size_t size, uint8_t digest[TS_SHA256_BYTES]);

#endif
