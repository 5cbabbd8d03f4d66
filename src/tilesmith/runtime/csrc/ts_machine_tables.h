/* Written by tests/runtime/machine_tables.py from targets/, where new machines go; a test compares. */
#ifndef TS_MACHINE_TABLES_H
#define TS_MACHINE_TABLES_H

#include "ts_target.h"

/* clang-format off */
/* x86-64: the features that each arch adds to the one before it. */
static const struct { char arch[15]; uint32_t adds; } x86_levels[] = {
  {"x86_64-v2", HAS_CX16 | HAS_POPCNT | HAS_SSE4_1 | HAS_SSE4_2 | HAS_SSSE3},
  {"x86_64-v3", HAS_ABM | HAS_AVX | HAS_AVX2 | HAS_BMI1 | HAS_BMI2 | HAS_F16C | HAS_FMA | HAS_MOVBE},
  {"x86_64-v4", HAS_AVX512BW | HAS_AVX512CD | HAS_AVX512DQ | HAS_AVX512F | HAS_AVX512VL},
  {"x86_64-v4-bf16", HAS_AVX512_BF16},
  {"x86_64-v4-amx", HAS_AMX_BF16 | HAS_AMX_TILE},
};

/* cpuid's text, and what targets call the maker. */
static const struct { char vendor[13], maker[8]; } makers[] = {
  {"AuthenticAMD", "amd"},
  {"GenuineIntel", "intel"},
  {"HygonGenuine", "hygon"},
  {"CentaurHauls", "centaur"},
};

/* AMD: family, first and last model. */
static const struct { uint8_t family, first, last; char name[5]; } amd[] = {
  {23, 0, 47, "zen1"},
  {23, 48, 255, "zen2"},
  {24, 0, 255, "zen1"},
  {25, 0, 15, "zen3"},
  {25, 16, 31, "zen4"},
  {25, 32, 95, "zen3"},
  {25, 96, 175, "zen4"},
  {26, 0, 255, "zen5"},
};

/* Intel: models of family 6. */
static const struct { uint8_t model; char name[16]; } intel[] = {
  {60, "haswell"},
  {61, "broadwell"},
  {63, "haswell"},
  {69, "haswell"},
  {70, "haswell"},
  {71, "broadwell"},
  {78, "skylake"},
  {79, "broadwell"},
  {85, "skylake-sp"},
  {86, "broadwell"},
  {94, "skylake"},
  {106, "ice-lake-sp"},
  {108, "ice-lake-sp"},
  {125, "ice-lake"},
  {126, "ice-lake"},
  {140, "tiger-lake"},
  {141, "tiger-lake"},
  {142, "skylake"},
  {143, "sapphire-rapids"},
  {151, "alder-lake"},
  {154, "alder-lake"},
  {158, "skylake"},
  {165, "skylake"},
  {166, "skylake"},
  {167, "rocket-lake"},
  {170, "meteor-lake"},
  {172, "meteor-lake"},
  {173, "granite-rapids"},
  {174, "granite-rapids"},
  {175, "sierra-forest"},
  {181, "arrow-lake"},
  {183, "raptor-lake"},
  {186, "raptor-lake"},
  {189, "lunar-lake"},
  {190, "gracemont"},
  {191, "raptor-lake"},
  {197, "arrow-lake"},
  {198, "arrow-lake"},
  {207, "emerald-rapids"},
};

/* Arm: who made the core, and which one it is. */
static const struct { uint16_t implementer, part; char name[13]; } arm[] = {
  {65, 3331, "cortex-a53"},
  {65, 3335, "cortex-a57"},
  {65, 3336, "cortex-a72"},
  {65, 3339, "cortex-a76"},
  {65, 3340, "neoverse-n1"},
  {65, 3392, "neoverse-v1"},
  {65, 3394, "cortex-a78ae"},
  {65, 3401, "neoverse-n2"},
  {65, 3407, "neoverse-v2"},
  {65, 3460, "neoverse-v3"},
  {65, 3470, "neoverse-n3"},
};

/* Words of a device's name that do not tell cards apart. */
static const char noise[][9] = {"device", "geforce", "gpu", "graphics", "nvidia", "quadro", "tesla"};

/* clang-format on */

#endif
