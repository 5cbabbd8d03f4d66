/* Inflating (RFC 1951). */
#ifndef TS_INFLATE_H
#define TS_INFLATE_H

#include <stddef.h>
#include <stdint.h>

/* A byte of deflated data makes at most this many. */
#define TS_INFLATE_MOST 1032

/* Inflate `from` into `to`: 1 if all of `from` is one deflated stream of exactly `to_size` bytes, else 0. Nothing is
 * written beyond `to_size`, nothing allocated, and the work is bounded by both sizes, whatever the bytes say. */
int ts_inflate(const void *from, size_t from_size, void *to, size_t to_size);

#endif
