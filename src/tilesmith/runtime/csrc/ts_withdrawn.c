/* Plans whose kernels computed wrong numbers until a mend. */
#include "ts_plan.h"
#include "ts_withdrawn_table.h"

#include <stdlib.h>
#include <string.h>

/* The mends that a plan's kernels have: the number at the end of its provenance. */
static unsigned long mends_of(const char *provenance) {
  const char *at = strrchr(provenance, ' ');
  if (at == NULL || at - provenance < 6 || memcmp(at - 6, " mends", 6) != 0) return 0;
  const size_t digits = strspn(at + 1, "0123456789");
  return digits >= 1 && digits <= 9 && at[1 + digits] == 0 ? strtoul(at + 1, NULL, 10) : 0;
}

const char *ts_plan_withdrawn(const ts_plan *plan) {
  for (unsigned long i = mends_of(plan->provenance); i < sizeof mends / sizeof *mends; i++)
    if (strncmp(plan->solver, mends[i].solver, strlen(mends[i].solver)) == 0 &&
        strstr(plan->problem, mends[i].problem) != NULL && strstr(plan->config, mends[i].config) != NULL)
      return mends[i].wrong;
  return NULL;
}
