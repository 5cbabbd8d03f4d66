/* What machine this is, and which targets suit it: the names that Python's targets/ gives (`x86_64-v4:2:zen5`: arch,
 * cores, processor; `sm_90a:132:h200`: arch, SMs, card).
 *
 * Nothing here allocates, prints, or reads an environment variable: a library in a server takes what its caller says.
 * Any number of threads may call. Where the processor has matrix tiles, Linux is asked to let this process use them.
 * Without /proc and /sys, processors of x86-64 are told by cpuid, those of aarch64 by their identification register or
 * else as `generic`; the cores are then those of the affinity mask.
 */
#ifndef TS_MACHINE_H
#define TS_MACHINE_H

#include "tilesmith_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TS_CARD_LENGTH 48
#define TS_TARGET_ROOM 80 /* bytes; no target's name with its closing 0 is longer */

typedef struct ts_target {
  char arch[24];
  char card[TS_CARD_LENGTH + 1]; /* of a GPU, or the processor; `generic` where nothing is known of it */
  uint32_t cores;                /* threads of a CPU, SMs of a GPU */
  int is_cuda;
} ts_target;

/* The cores that this process may use: its affinity mask, and the quota of its control group. From 1 on. */
uint32_t ts_machine_cores(void);

/* The CPU, for `cores` threads (0: all that this process may use, 1024 at most). `highest` caps its arch, as
 * TILESMITH_CPU_LEVEL does for Python: `x86_64-v3`; NULL or empty: no cap. TS_BAD_ARGUMENT for a cap that is no x86
 * arch or over 1024 cores, TS_NOT_FOUND for a processor that Tilesmith does not run on. */
ts_status ts_machine_cpu(uint32_t cores, const char *highest, ts_target *target, ts_error *error);

/* The GPUs that the driver lists (ts_cuda_open names another driver). TS_CUDA_ERROR without a driver. */
ts_status ts_machine_gpus(uint32_t *count, ts_error *error);
/* One of them; no context is made. TS_NOT_FOUND for a GPU that Tilesmith does not run on. */
ts_status ts_machine_gpu(uint32_t device, ts_target *target, ts_error *error);

/* The target of a name. What is left out: of a CPU one core and `generic`, of a GPU the SMs and the name of the
 * arch's common card. TS_BAD_ARGUMENT for what is no target's name. */
ts_status ts_target_read(const char *name, ts_target *target, ts_error *error);
/* Its name in full, which it returns. */
const char *ts_target_name(const ts_target *target, char name[TS_TARGET_ROOM]);

/* How the kernels of a target suit a machine's target. */
typedef enum ts_fit {
  TS_FIT_NONE,    /* the machine lacks instructions of it, or it is a GPU of another arch */
  TS_FIT_NEAREST, /* correct, chosen for another machine: another card or number of SMs, or more threads than cores */
  TS_FIT_RUNS,    /* a CPU of the same or a lower arch, with no more threads than the machine's cores */
  TS_FIT_EXACT    /* the same name */
} ts_fit;
ts_fit ts_target_fit(const ts_target *machine, const ts_target *other);

/* Negative if `a` is nearer to the machine than `b`, 0 if they are the same target. First the same arch, then the
 * highest arch below it, then other archs; then the nearest number of cores (the least |log(cores / machine's)|); of
 * two with the same distance the same card first; then in the order of names. */
int ts_target_compare(const ts_target *machine, const ts_target *a, const ts_target *b);

/* Fills `order` with the indices of those of `names` that fit at least as well as `least`: the best fit first, of one
 * fit the nearest first, of one name the first. Returns how many. Names that are no targets are left out. */
uint32_t ts_target_rank(const ts_target *machine, const char *const *names, uint32_t count, ts_fit least,
                        uint32_t *order);

#ifdef __cplusplus
}
#endif

#endif
