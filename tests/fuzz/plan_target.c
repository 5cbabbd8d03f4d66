/* What is fuzzed: the decoder of plans, and the running of what it lets through.
 *
 * The input is a plan without its header: the right length and checksum are put before it, or mutations would never get
 * past them. It is also given as it is. A plan that is accepted, and small, runs with kernels that do nothing on memory
 * of exactly the sizes that it says, so that a memset beyond them is seen. */
#include "ts_plan.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1 << 20)
#define HEADER 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void idle(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  (void)p, (void)s, (void)scratch, (void)begin, (void)end;
}

static uint32_t crc32_of(const uint8_t *bytes, size_t size) {
  static uint32_t table[256];
  if (table[1] == 0)
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; bit++)
        crc = crc >> 1 ^ (UINT32_C(0xEDB88320) & (0U - (crc & 1)));
      table[i] = crc;
    }
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < size; i++)
    crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
  return ~crc;
}

static uint8_t *sealed(const uint8_t *body, size_t size) {
  uint8_t *plan = malloc(HEADER + size);
  if (plan == NULL) abort();
  const uint64_t length = HEADER + size;
  memcpy(plan, "TSPLAN\r\n", 8);
  memcpy(plan + 8, &(uint32_t){2}, 4);
  memcpy(plan + 16, &length, 8);
  if (size) memcpy(plan + HEADER, body, size);
  memcpy(plan + 12, &(uint32_t){crc32_of(plan + 16, size + 8)}, 4);
  return plan;
}

static void *memory(int64_t size, size_t alignment, int *fits) {
  if (size == 0 || size > MOST_BYTES) {
    *fits &= size == 0;
    return NULL;
  }
  void *found = NULL;
  if (posix_memalign(&found, alignment < sizeof(void *) ? sizeof(void *) : alignment, (size_t)size)) abort();
  return found;
}

static void run(ts_plan *plan) {
  const ts_plan_sizes sizes = ts_plan_get_sizes(plan);
  static unsigned turns;
  const unsigned most_threads = turns++ % 256 ? 1 : 2; /* to wake a second thread takes longer than all the rest */
  int fits = sizes.threads <= most_threads && sizes.slots <= 64;
  for (int part = 0; part < 2; part++) {
    const ts_step *steps = part ? plan->run : plan->prepare;
    for (uint32_t i = 0; i < (part ? sizes.run_steps : sizes.prepare_steps); i++)
      if (!steps[i].is_memset) {
        fits &= steps[i].items < 1000;
        if (ts_plan_bind_kernel(plan, steps[i].symbol, idle, NULL) != TS_OK) abort();
      }
  }
  void *slots[64] = {0}, *packed = NULL, *workspace = NULL;
  for (uint32_t i = 0; fits && i < sizes.slots; i++)
    slots[i] = memory(plan->slots[i].nbytes, 8, &fits);
  if (fits) packed = memory(sizes.packed_bytes, sizes.alignment, &fits);
  if (fits) workspace = memory(sizes.workspace_bytes, sizes.alignment, &fits);
  if (fits) {
    if (sizes.slots >= 2) ts_plan_prepare(plan, slots, packed, workspace);
    ts_plan_run(plan, slots, packed, workspace);
  }
  for (uint32_t i = 0; i < sizes.slots && i < 64; i++)
    free(slots[i]);
  free(packed);
  free(workspace);
}

static volatile size_t read_bytes;

static void open_plan(const uint8_t *bytes, size_t size) {
  ts_plan *plan = NULL;
  ts_error error = {{0}};
  if (ts_plan_open(bytes, size, &plan, &error) != TS_OK) {
    if (plan != NULL || *error.text == 0) abort(); /* a refusal says why */
    return;
  }
  const ts_plan_sizes sizes = ts_plan_get_sizes(plan);
  size_t seen = 0;
  for (uint32_t i = 0; i < sizes.slots; i++) {
    ts_slot slot;
    if (ts_plan_get_slot(plan, i, &slot) != TS_OK) abort();
    seen += strlen(slot.name) + strlen(slot.dtype);
    for (uint32_t axis = 0; axis < slot.axes; axis++)
      seen += (size_t)slot.shape[axis] + (size_t)slot.strides[axis];
  }
  for (uint32_t i = 0; i < sizes.artifacts; i++)
    seen += ts_plan_get_digest(plan, i)[31];
  read_bytes = seen; /* so that no read is left out */
  if (!sizes.is_cuda) run(plan);
  ts_plan_close(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  open_plan(data, size);
  uint8_t *plan = sealed(data, size);
  open_plan(plan, HEADER + size);
  free(plan);
  return 0;
}
