/* Shared objects that are loaded from memory. */
#ifndef TS_IMAGE_H
#define TS_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/* Load the shared object that `bytes` hold: what the caller has compared with `digest` (its sha256) is what is mapped,
 * whatever becomes of the file that it was read from. One that is loaded already is shared. NULL where the system maps
 * no code from memory (it is Linux's alone), or refuses these bytes. */
void *ts_image_open(const uint8_t *digest, const void *bytes, size_t size);

/* Let go of what `ts_image_open` or `dlopen` gave. */
void ts_image_close(void *library);

#endif
