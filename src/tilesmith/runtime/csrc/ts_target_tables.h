/* Written by tests/runtime/machine_tables.py from targets/, where new machines go; a test compares. */
#ifndef TS_TARGET_TABLES_H
#define TS_TARGET_TABLES_H

#include "ts_target.h"

/* clang-format off */
/* CPUs, of one instruction set the lowest first: each runs what those before it run. */
static const struct { char arch[15]; int instruction_set; } cpu_archs[] = {
  {"x86_64-v2", 0},
  {"x86_64-v3", 0},
  {"x86_64-v4", 0},
  {"x86_64-v4-bf16", 0},
  {"x86_64-v4-amx", 0},
  {"aarch64", 1},
};

/* GPUs; code of those that are `portable` runs on later minors of the same major. PTX runs on all that is
 * later; `like` is the arch of its common card. */
static const struct { char arch[11]; int major, minor, portable, is_ptx; char like[8]; } cuda_archs[] = {
  {"sm_80", 8, 0, 1, 0, "sm_80"},
  {"sm_86", 8, 6, 1, 0, "sm_86"},
  {"sm_87", 8, 7, 1, 0, "sm_87"},
  {"sm_89", 8, 9, 1, 0, "sm_89"},
  {"sm_90a", 9, 0, 0, 0, "sm_90a"},
  {"sm_100a", 10, 0, 0, 0, "sm_100a"},
  {"sm_120a", 12, 0, 0, 0, "sm_120a"},
  {"compute_80", 8, 0, 1, 1, "sm_86"},
  {"compute_89", 8, 9, 1, 1, "sm_89"},
};

/* The first of each arch is its common card. */
static const struct { char name[15], arch[8]; uint32_t cores; } cards[] = {
  {"a100-sxm4-40gb", "sm_80", 108},
  {"a100-sxm4-80gb", "sm_80", 108},
  {"a40", "sm_86", 84},
  {"a10", "sm_86", 72},
  {"orin", "sm_87", 16},
  {"l40s", "sm_89", 142},
  {"l4", "sm_89", 58},
  {"rtx-4090", "sm_89", 128},
  {"h200", "sm_90a", 132},
  {"h100-80gb-hbm3", "sm_90a", 132},
  {"h100-pcie", "sm_90a", 114},
  {"h100-nvl", "sm_90a", 132},
  {"gh200-480gb", "sm_90a", 132},
  {"b200", "sm_100a", 148},
  {"rtx-5090", "sm_120a", 170},
};

/* clang-format on */

#endif
