/* A problem, a convolution or a matrix product, as a plain record: what it is, its checks, and its key.
 *
 *     ts_desc desc;
 *     ts_desc_init(&desc, sizeof desc, TS_ABI_VERSION);
 *     desc.layout = TS_NHWC, desc.n = 1, desc.c = 32, desc.k = 64, ...
 *     char key[TS_KEY_ROOM];
 *     ts_error error;
 *     if (ts_problem_key(&desc, key, sizeof key, &error) != TS_OK) fail(error.text);
 *
 * A field that a problem does not read must have the value that ts_desc_init gave it. Nothing here allocates, prints or
 * keeps anything. The reference has a table of the fields: docs/reference/c-descriptor.md. C99.
 */
#ifndef TS_PROBLEM_H
#define TS_PROBLEM_H

#include "ts_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Write the defaults. `struct_size` is sizeof(ts_desc), `abi_version` TS_ABI_VERSION, both as the caller was compiled:
 * a newer library fills a shorter record, and an older library zeroes what it does not know. */
ts_status ts_desc_init(ts_desc *desc, size_t struct_size, uint32_t abi_version);
/* TS_OK if there is such a problem. TS_BAD_PROBLEM: `error` names the field, its value and the rule. TS_BAD_ARGUMENT:
 * a null pointer, or a record of another version. */
ts_status ts_desc_check(const ts_desc *desc, ts_error *error);
/* The shape of y, which is the forward result in every mode. */
ts_status ts_output_shape(const ts_desc *desc, ts_shape *shape, ts_error *error);
/* The problem's name in databases, as text that ends with 0: the same for all descriptions of one problem. It goes to
 * `out` of `room` bytes; if they are too few, to no place, and the answer is TS_BAD_ARGUMENT. */
ts_status ts_problem_key(const ts_desc *desc, char *out, size_t room, ts_error *error);
/* All keys under which databases may hold the problem, in the order in which they are looked up: an axis of size 1 has
 * several places in a layout. 0 is the key of ts_problem_key; the text is empty from the first `index` that has none.
 */
ts_status ts_problem_spelling(const ts_desc *desc, uint32_t index, char *out, size_t room, ts_error *error);

#ifdef __cplusplus
}
#endif

#endif
