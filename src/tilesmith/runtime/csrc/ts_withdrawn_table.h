/* Written by tests/runtime/machine_tables.py from plan/withdrawn.py; a test compares. */
#ifndef TS_WITHDRAWN_TABLE_H
#define TS_WITHDRAWN_TABLE_H

/* clang-format off */
static const struct { char solver[11], problem[9], config[10], wrong[47]; } mends[] = {
  {"wgmma_gemm", "acc=tf32", "swap_mn=1", "it copies sums that products are still writing"},
};

/* clang-format on */

#endif
