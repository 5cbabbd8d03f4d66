/* What the detection of machines and the names of targets share. */
#ifndef TS_TARGET_H
#define TS_TARGET_H

#include "ts_machine.h"

#define TS_GENERIC "generic" /* a card, or a processor, of which nothing is known */

/* The kernel's names of the features that tell the levels of x86-64 apart. */
enum {
  HAS_CX16 = 1 << 0,
  HAS_POPCNT = 1 << 1,
  HAS_SSE4_1 = 1 << 2,
  HAS_SSE4_2 = 1 << 3,
  HAS_SSSE3 = 1 << 4,
  HAS_AVX = 1 << 5,
  HAS_AVX2 = 1 << 6,
  HAS_BMI1 = 1 << 7,
  HAS_BMI2 = 1 << 8,
  HAS_F16C = 1 << 9,
  HAS_FMA = 1 << 10,
  HAS_ABM = 1 << 11,
  HAS_MOVBE = 1 << 12,
  HAS_AVX512F = 1 << 13,
  HAS_AVX512BW = 1 << 14,
  HAS_AVX512CD = 1 << 15,
  HAS_AVX512DQ = 1 << 16,
  HAS_AVX512VL = 1 << 17,
  HAS_AVX512_BF16 = 1 << 18,
  HAS_AMX_TILE = 1 << 19,
  HAS_AMX_BF16 = 1 << 20
};

/* ts_machine_names.c. The highest arch whose features are all there; NULL if there is none. */
const char *ts_x86_arch(uint32_t features);
/* The lower of an arch and a cap on x86-64; NULL for a cap that does not exist. */
const char *ts_capped_arch(const char *arch, const char *highest);
/* What targets call a processor: cpuid's text, family and model; or who made an Arm core, and which it is. */
void ts_x86_card(const char *vendor, uint32_t family, uint32_t model, char card[TS_CARD_LENGTH + 1]);
void ts_arm_card(uint32_t implementer, uint32_t part, char card[TS_CARD_LENGTH + 1]);
/* The card of a device that its driver calls `name`: lower-case words joined by hyphens, without the maker's. */
void ts_gpu_card(const char *name, char card[TS_CARD_LENGTH + 1]);

/* ts_machine.c. Whole cores that a version 2 control group grants by its text, `QUOTA PERIOD`, rounded up; 0 without a
 * quota. */
int64_t ts_quota_cores(const char *text);

/* ts_target.c. The arch of a GPU: its own record, else the newest whose code it runs; NULL if there is none. */
const char *ts_cuda_arch(int major, int minor);

#endif
