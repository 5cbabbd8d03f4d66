/* Binding kernels to a plan, and running its steps. */
#include "ts_image.h"
#include "ts_plan.h"
#include "ts_pool.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void ts_plan_close(ts_plan *plan) {
  if (plan == NULL) return;
  if (plan->family == TS_CUDA) ts_cuda_close(plan);
  for (uint32_t i = 0; plan->libraries != NULL && i < plan->sizes.artifacts; i++)
    if (plan->libraries[i] != NULL) ts_image_close(plan->libraries[i]);
  free(plan->arena);
  free(plan);
}

ts_plan_sizes ts_plan_get_sizes(const ts_plan *plan) {
  return plan->sizes;
}

ts_status ts_plan_set_threads(ts_plan *plan, uint32_t threads, ts_error *error) {
  if (plan == NULL || threads < 1 || threads > TS_MAX_THREADS || (plan->family == TS_CUDA && threads != 1))
    return ts_fail(error, TS_BAD_ARGUMENT, "threads %u is not from 1 to %d", threads,
                   plan != NULL && plan->family == TS_CUDA ? 1 : TS_MAX_THREADS);
  /* Nothing lies behind the threads' scratch but what the plan left free there. */
  const int64_t stride = plan->scratch_stride, before = plan->sizes.threads;
  if (stride > 0 && threads > before && (INT64_MAX - plan->sizes.workspace_bytes) / stride < threads - before)
    return ts_fail(error, TS_BAD_ARGUMENT, "%u threads need more than 2^63 bytes of scratch", threads);
  plan->sizes.workspace_bytes += (threads - before) * stride;
  plan->sizes.threads = threads;
  return TS_OK;
}

ts_status ts_plan_get_slot(const ts_plan *plan, uint32_t index, ts_slot *slot) {
  if (plan == NULL || slot == NULL || index >= plan->sizes.slots) return TS_BAD_ARGUMENT;
  *slot = plan->slots[index];
  return TS_OK;
}

const uint8_t *ts_plan_get_digest(const ts_plan *plan, uint32_t index) {
  return plan != NULL && index < plan->sizes.artifacts ? plan->digests + 32 * (size_t)index : NULL;
}

const char *ts_status_text(ts_status status) {
  switch (status) {
  case TS_OK:
    return "fine";
  case TS_BAD_PLAN:
    return "the plan is damaged or of another version";
  case TS_BAD_ARGUMENT:
    return "an argument is null, misaligned or unknown";
  case TS_NO_MEMORY:
    return "out of memory";
  case TS_NOT_LOADED:
    return "a kernel is not loaded";
  case TS_CUDA_ERROR:
    return "the CUDA driver is missing, or refused a call";
  case TS_BAD_PROBLEM:
    return "there is no such problem";
  case TS_BAD_PACKAGE:
    return "the package is damaged or of another version";
  case TS_NOT_FOUND:
    return "the package has no such entry";
  case TS_UNSUPPORTED:
    return "the library has no kernel for the problem on this machine";
  }
  return "unknown status";
}

static void bind_step(ts_plan *plan, ts_step *step, ts_kernel kernel) {
  if (step->kernel == NULL) plan->unbound--;
  step->kernel = kernel;
}

static ts_status bind_steps(ts_plan *plan, ts_step *steps, uint32_t count, uint32_t artifact, ts_error *error) {
  for (uint32_t i = 0; i < count; i++) {
    if (steps[i].is_memset || steps[i].artifact != artifact) continue;
    void *symbol = dlsym(plan->libraries[artifact], steps[i].symbol);
    if (symbol == NULL) return ts_fail(error, TS_NOT_LOADED, "artifact %u has no symbol %s", artifact, steps[i].symbol);
    ts_kernel kernel;
    memcpy(&kernel, &symbol, sizeof kernel); /* ISO C has no cast from data to function pointers */
    bind_step(plan, &steps[i], kernel);
  }
  return TS_OK;
}

static ts_status bind_cubin(ts_plan *plan, uint32_t artifact, const char *path, ts_error *error) {
  struct stat about;
  FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
  long size = -1;
  if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) rewind(file);
  char *image = size > 0 ? malloc((size_t)size) : NULL;
  ts_status status = TS_NOT_LOADED;
  if (image != NULL && fread(image, 1, (size_t)size, file) == (size_t)size)
    status = ts_plan_bind_image(plan, artifact, image, (size_t)size, error);
  else
    ts_fail(error, status, "artifact %u cannot be read: %s", artifact, path);
  if (file != NULL) fclose(file);
  free(image);
  return status;
}

/* Without `bytes`, or where they cannot be loaded from memory, the file at `path` is. */
static ts_status bind_library(ts_plan *plan, uint32_t artifact, const void *bytes, size_t size, const char *path,
                              ts_error *error) {
  if (plan->libraries[artifact] != NULL)
    return ts_fail(error, TS_BAD_ARGUMENT, "artifact %u is bound already", artifact);
  void *library = bytes == NULL ? NULL : ts_image_open(plan->digests + 32 * (size_t)artifact, bytes, size);
  if (library == NULL) {
    struct stat about;
    if (path == NULL) return ts_fail(error, TS_NOT_LOADED, "artifact %u cannot be loaded from memory", artifact);
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) /* opening a FIFO would wait */
      return ts_fail(error, TS_NOT_LOADED, "artifact %u is no file: %s", artifact, path);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return ts_fail(error, TS_NOT_LOADED, "artifact %u cannot be opened: %s", artifact, dlerror());
  }
  plan->libraries[artifact] = library;
  ts_status status = bind_steps(plan, plan->prepare, plan->sizes.prepare_steps, artifact, error);
  return status != TS_OK ? status : bind_steps(plan, plan->run, plan->sizes.run_steps, artifact, error);
}

ts_status ts_plan_bind_bytes(ts_plan *plan, uint32_t artifact, const void *bytes, size_t size, const char *path,
                             ts_error *error) {
  if (plan == NULL || bytes == NULL || size == 0)
    return ts_fail(error, TS_BAD_ARGUMENT, "plan and bytes must be there");
  if (artifact >= plan->sizes.artifacts)
    return ts_fail(error, TS_BAD_ARGUMENT, "artifact %u of %u", artifact, plan->sizes.artifacts);
  if (plan->family == TS_CUDA) return ts_cuda_bind_image(plan, artifact, bytes, size, error);
  return bind_library(plan, artifact, bytes, size, path, error);
}

ts_status ts_plan_bind_image(ts_plan *plan, uint32_t artifact, const void *image, size_t size, ts_error *error) {
  return ts_plan_bind_bytes(plan, artifact, image, size, NULL, error);
}

ts_status ts_plan_bind_file(ts_plan *plan, uint32_t artifact, const char *path, ts_error *error) {
  if (plan == NULL || path == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "plan and path must not be NULL");
  if (artifact >= plan->sizes.artifacts)
    return ts_fail(error, TS_BAD_ARGUMENT, "artifact %u of %u", artifact, plan->sizes.artifacts);
  if (plan->family == TS_CUDA) return bind_cubin(plan, artifact, path, error);
  return bind_library(plan, artifact, NULL, 0, path, error);
}

ts_status ts_plan_bind_kernel(ts_plan *plan, const char *symbol, ts_kernel kernel, ts_error *error) {
  if (plan == NULL || symbol == NULL || kernel == NULL || plan->family != TS_CPU)
    return ts_fail(error, TS_BAD_ARGUMENT, "plan, symbol and kernel must not be NULL");
  int found = 0;
  for (int part = 0; part < 2; part++) {
    ts_step *steps = part ? plan->run : plan->prepare;
    uint32_t count = part ? plan->sizes.run_steps : plan->sizes.prepare_steps;
    for (uint32_t i = 0; i < count; i++)
      if (!steps[i].is_memset && strcmp(steps[i].symbol, symbol) == 0) {
        bind_step(plan, &steps[i], kernel);
        found = 1;
      }
  }
  return found ? TS_OK : ts_fail(error, TS_BAD_ARGUMENT, "no step of the plan launches %s", symbol);
}

static void *address(const ts_pointer *pointer, void *const *slots, char *packed, char *workspace) {
  char *base = pointer->space == TS_SPACE_SLOT     ? slots[pointer->index]
               : pointer->space == TS_SPACE_PACKED ? packed
                                                   : workspace;
  return base + pointer->offset;
}

/* One launch on the calling thread, its items in pieces of whole chunks, the last piece first. */
static void run_pieces(const ts_work *work, uint32_t pieces, int fill) {
  const int64_t chunks = work->items > 0 ? (work->items - 1) / work->chunk + 1 : 0;
  for (int64_t k = (int64_t)pieces - 1; k >= 0; k--) {
    const int64_t begin = chunks * k / pieces * work->chunk, end = chunks * (k + 1) / pieces * work->chunk;
    if (begin == end) continue;
    if (work->scratch != NULL) memset(work->scratch, fill, (size_t)work->scratch_stride);
    work->kernel(work->p, work->s, work->scratch, begin, end < work->items ? end : work->items);
  }
}

/* `pieces` 0: on the pool. */
static void run_steps(const ts_plan *plan, const ts_step *steps, uint32_t count, void *const *slots, char *packed,
                      char *workspace, uint32_t pieces, int fill) {
  void *p[TS_MAX_PARAMETERS];
  char *scratch = workspace == NULL ? NULL : workspace + plan->scratch_offset;
  ts_team team = {plan->sizes.threads, TS_TEAM_NOT_ASKED};
  for (uint32_t i = 0; i < count; i++) {
    const ts_step *step = &steps[i];
    if (step->is_memset) {
      if (step->nbytes) memset(address(&step->target, slots, packed, workspace), step->value, (size_t)step->nbytes);
      continue;
    }
    for (uint32_t k = 0; k < step->pointer_count; k++)
      p[k] = address(&step->pointers[k], slots, packed, workspace);
    const ts_work work = {step->kernel, p, step->scalars, scratch, plan->scratch_stride, step->items, step->chunk};
    if (pieces)
      run_pieces(&work, pieces, fill);
    else
      ts_team_run(&team, &work);
  }
  ts_team_leave(&team);
}

static ts_status check_memory(const ts_plan *plan, const void *packed, const void *workspace) {
  uintptr_t low = plan->sizes.alignment - 1;
  if (plan->unbound) return TS_NOT_LOADED;
  if (plan->sizes.packed_bytes && (packed == NULL || ((uintptr_t)packed & low))) return TS_BAD_ARGUMENT;
  if (plan->sizes.workspace_bytes && (workspace == NULL || ((uintptr_t)workspace & low))) return TS_BAD_ARGUMENT;
  return TS_OK;
}

static ts_status prepare(const ts_plan *plan, void *const *slots, void *packed, void *workspace, uint32_t pieces,
                         int fill) {
  if (plan == NULL || slots == NULL || plan->family != TS_CPU) return TS_BAD_ARGUMENT;
  if (plan->sizes.prepare_steps == 0) return TS_OK;
  ts_status status = check_memory(plan, packed, workspace);
  if (status == TS_OK && plan->sizes.slots > 1 && slots[1] == NULL) status = TS_BAD_ARGUMENT;
  if (status == TS_OK)
    run_steps(plan, plan->prepare, plan->sizes.prepare_steps, slots, packed, workspace, pieces, fill);
  return status;
}

static ts_status run(const ts_plan *plan, void *const *slots, const void *packed, void *workspace, uint32_t pieces,
                     int fill) {
  if (plan == NULL || slots == NULL || plan->family != TS_CPU) return TS_BAD_ARGUMENT;
  ts_status status = check_memory(plan, packed, workspace);
  for (uint32_t i = 0; status == TS_OK && i < plan->sizes.slots; i++)
    if (slots[i] == NULL && plan->slot_used[i]) status = TS_BAD_ARGUMENT;
  if (status == TS_OK) {
    char *readable;
    memcpy(&readable, &packed, sizeof readable); /* one array holds both kinds of pointer; run only reads it */
    run_steps(plan, plan->run, plan->sizes.run_steps, slots, readable, workspace, pieces, fill);
  }
  return status;
}

ts_status ts_plan_prepare(const ts_plan *plan, void *const *slots, void *packed, void *workspace) {
  return prepare(plan, slots, packed, workspace, 0, 0);
}

ts_status ts_plan_run(const ts_plan *plan, void *const *slots, const void *packed, void *workspace) {
  return run(plan, slots, packed, workspace, 0, 0);
}

ts_status ts_plan_run_in_pieces(const ts_plan *plan, ts_part part, void *const *slots, void *packed, void *workspace,
                                uint32_t pieces, int fill) {
  if (pieces == 0) return TS_BAD_ARGUMENT;
  if (part == TS_PREPARE) return prepare(plan, slots, packed, workspace, pieces, fill);
  return run(plan, slots, packed, workspace, pieces, fill);
}
