/* Expanding LZMA streams, which are a fifth smaller than deflated ones for machine code of GPUs. */
#ifndef TS_LZMA_H
#define TS_LZMA_H

#include <stddef.h>
#include <stdint.h>

/* Expand `from` into `to`: 1 if all of `from` is one stream of exactly `to_size` bytes, else 0. A stream is what
 * liblzma calls raw LZMA1, with lc 1, lp 2, pb 3 and an end marker. Nothing is written beyond `to_size`, nothing
 * allocated, and the work is bounded by `to_size`, whatever the bytes say. */
int ts_unlzma(const void *from, size_t from_size, void *to, size_t to_size);

#endif
