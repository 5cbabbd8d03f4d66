/* The C library: finds the plan of a problem on this machine among those that are linked in, and runs it.
 *
 * `tilesmith embed --name deconv` writes a header of these calls as deconv_create and so on.
 * docs/reference/c-library.md shows each call with its formula and operands.
 *
 * All calls may be made by any number of threads at a time, with the same handles too; only `destroy` and
 * `plan_destroy` must be the last call with theirs. Nothing exits, prints, or reads the environment. `prepare` and
 * `run` allocate nothing. A call that fails returns its status and leaves a text for ts_library_last_error.
 */
#ifndef TS_LIBRARY_H
#define TS_LIBRARY_H

#include "ts_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TS_LIBRARY_API
#define TS_LIBRARY_API /* of a shared library: __attribute__((visibility("default"))) */
#endif

/* Open the library for a GPU (`device` from 0, as CUDA counts) or for the CPU (-1). `flags`: 0, or TS_NEAREST |
 * TS_NO_REFERENCE. TS_CUDA_ERROR without a driver, or without that GPU. A machine for which the library has no kernels
 * is no error here: packages may follow. */
TS_LIBRARY_API ts_status ts_library_create(ts_library **library, int device, uint32_t flags);
/* NULL is allowed. Plans that it made stay valid. */
TS_LIBRARY_API void ts_library_destroy(ts_library *library);
/* Add the plans of a package file, `.kdb`; they come before those that are there already. Each byte that is used later
 * is compared with its digest. TS_BAD_PACKAGE, or TS_UNSUPPORTED for a package of another machine. */
TS_LIBRARY_API ts_status ts_library_load(ts_library *library, const char *path);
/* How many threads take part in the runs of plans that are created from now on: 1 to 1024; 0, the default: as many as
 * the plan was tuned for, at most the machine's. Without effect on a GPU. */
TS_LIBRARY_API ts_status ts_library_set_threads(ts_library *library, uint32_t threads);
/* The machine's name, as targets are named: x86_64-v4:2:zen5, sm_90a:132:h200. */
TS_LIBRARY_API const char *ts_library_machine(const ts_library *library);

/* Write the defaults; `struct_size` is sizeof(ts_desc), `abi_version` TS_ABI_VERSION. */
TS_LIBRARY_API ts_status ts_library_desc_init(ts_desc *desc, size_t struct_size, uint32_t abi_version);
/* The shape of y. TS_BAD_PROBLEM if there is no such problem. */
TS_LIBRARY_API ts_status ts_library_output_shape(const ts_desc *desc, ts_shape *shape);
/* TS_OK if there is a solution; TS_UNSUPPORTED with the reason; TS_BAD_PROBLEM. */
TS_LIBRARY_API ts_status ts_library_is_supported(const ts_library *library, const ts_desc *desc);
/* The solutions, best first: those that have room in `solutions`, of `capacity` records, each with its struct_size set.
 * `count` is how many there are (TS_OK with 0 if there is none). `solutions` may be NULL with a capacity of 0. */
TS_LIBRARY_API ts_status ts_library_find(const ts_library *library, const ts_desc *desc, ts_solution *solutions,
                                         uint32_t capacity, uint32_t *count);
/* Every problem that has a plan for this machine, in no order that a caller may rely on. */
TS_LIBRARY_API ts_status ts_library_enumerate(const ts_library *library, ts_visit visit, void *data);

/* Make a solution ready: `rank` as `find` told, or TS_BEST. Loads the kernels of a GPU. */
TS_LIBRARY_API ts_status ts_library_plan_create(const ts_library *library, const ts_desc *desc, uint32_t rank,
                                                ts_bound_plan **plan);
/* `needs` has its struct_size set. */
TS_LIBRARY_API ts_status ts_library_plan_sizes(const ts_bound_plan *plan, ts_needs *needs);
/* Pack the filter, operands->w, into `packed`. To be called once for each filter; does nothing if the plan needs none.
 * `stream`: a CUstream; NULL on the CPU. */
TS_LIBRARY_API ts_status ts_library_prepare(const ts_bound_plan *plan, const ts_operands *operands, void *packed,
                                            void *workspace, void *stream);
/* Compute. On a GPU the call returns when all is queued on `stream`. Calls that run at the same time have a workspace
 * each; they may share `packed`. */
TS_LIBRARY_API ts_status ts_library_run(const ts_bound_plan *plan, const ts_operands *operands, const void *packed,
                                        void *workspace, void *stream);
/* NULL is allowed. */
TS_LIBRARY_API void ts_library_plan_destroy(ts_bound_plan *plan);

/* Why the last call of this thread that failed did so: the value and the rule, in one line. Empty if none has. Valid
 * until the next call of this thread that fails. */
TS_LIBRARY_API const char *ts_library_last_error(void);
/* What a status means, in a few words. */
TS_LIBRARY_API const char *ts_library_status_string(ts_status status);
/* The name of the library and its version. */
TS_LIBRARY_API const char *ts_library_version(void);

#ifdef __cplusplus
}
#endif

#endif
