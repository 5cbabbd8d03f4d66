/* Running CUDA plans: kernels loaded once a device, tensor maps encoded once and re-pointed, everything on a stream. */
#include "ts_cuda.h"
#include "ts_plan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_ALIGNMENT 16
#define PORTABLE_CLUSTER 8
#define MAX_LAUNCH_MAPS (4096 / 128)

/* A tensor map as it was first encoded; `address` is where it points. */
typedef struct encoded_map {
  cu_tensor_map map;
  void *address;
  _Atomic int ready;
} encoded_map;

/* A plan's kernels on one device. */
typedef struct loaded_device {
  cu_function **functions; /* of each launch */
  encoded_map *maps;
} loaded_device;

typedef struct image {
  void *bytes;
} image;

typedef struct ts_cuda_plan {
  image *images; /* of each artifact; bytes NULL: not bound yet */
  loaded_device *_Atomic devices[TS_MAX_DEVICES];
} ts_cuda_plan;

/* Modules by content and device: plans that share an artifact share its module. Never unloaded, since graphs that
 * outlive a plan hold its kernels. */
typedef struct loaded_module {
  struct loaded_module *next;
  uint8_t digest[32];
  int device;
  cu_module *module;
} loaded_module;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static loaded_module *modules;

/* --- loading ------------------------------------------------------------------------------------------------------ */

static uint32_t count_launches(const ts_step *steps, uint32_t count, uint32_t artifact) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < count; i++)
    found += !steps[i].is_memset && steps[i].artifact == artifact;
  return found;
}

ts_status ts_cuda_bind_image(ts_plan *plan, uint32_t artifact, const void *bytes, size_t size, ts_error *error) {
  if (plan->cuda == NULL) {
    plan->cuda = calloc(1, sizeof *plan->cuda);
    if (plan->cuda != NULL) plan->cuda->images = calloc(plan->sizes.artifacts, sizeof *plan->cuda->images);
    if (plan->cuda == NULL || plan->cuda->images == NULL) return ts_fail(error, TS_NO_MEMORY, "no memory for a plan");
  }
  image *held = &plan->cuda->images[artifact];
  if (held->bytes != NULL) return ts_fail(error, TS_BAD_ARGUMENT, "artifact %u is bound already", artifact);
  char *copy = size < SIZE_MAX ? malloc(size + 1) : NULL;
  if (copy == NULL) return ts_fail(error, TS_NO_MEMORY, "no memory for an artifact of %zu bytes", size);
  memcpy(copy, bytes, size);
  copy[size] = 0; /* the driver reads PTX up to a NUL */
  held->bytes = copy;
  plan->unbound -= count_launches(plan->prepare, plan->sizes.prepare_steps, artifact) +
                   count_launches(plan->run, plan->sizes.run_steps, artifact);
  return TS_OK;
}

static void free_device(loaded_device *device) {
  if (device == NULL) return;
  free(device->functions);
  free(device->maps);
  free(device);
}

void ts_cuda_close(ts_plan *plan) {
  if (plan->cuda == NULL) return;
  for (int i = 0; i < TS_MAX_DEVICES; i++)
    free_device(atomic_load(&plan->cuda->devices[i]));
  for (uint32_t i = 0; plan->cuda->images != NULL && i < plan->sizes.artifacts; i++)
    free(plan->cuda->images[i].bytes);
  free(plan->cuda->images);
  free(plan->cuda);
}

static ts_status load_module(const ts_driver *driver, const ts_plan *plan, uint32_t artifact, int device,
                             cu_module **module, ts_error *error) {
  const uint8_t *digest = plan->digests + 32 * (size_t)artifact;
  for (loaded_module *at = modules; at != NULL; at = at->next)
    if (at->device == device && memcmp(at->digest, digest, 32) == 0) {
      *module = at->module;
      return TS_OK;
    }
  cu_result result = driver->module_load(module, plan->cuda->images[artifact].bytes);
  if (result != 0) {
    char what[128];
    snprintf(what, sizeof what, "load artifact %u of a plan for %.64s on device %d", artifact, plan->target, device);
    return ts_cuda_failed(driver, result, what, error);
  }
  loaded_module *entry = malloc(sizeof *entry);
  if (entry == NULL) return ts_fail(error, TS_NO_MEMORY, "no memory for a module");
  *entry = (loaded_module){modules, {0}, device, *module};
  memcpy(entry->digest, digest, 32);
  modules = entry;
  return TS_OK;
}

/* Kernels that use much shared memory, or large clusters, must be allowed to. */
static cu_result allow(const ts_driver *driver, const ts_step *step, cu_function *function) {
  cu_result result = 0;
  if (step->shared_bytes > 0) {
    int now = 0;
    result = driver->function_get(&now, CU_FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
    if (result == 0 && now < step->shared_bytes)
      result = driver->function_set(function, CU_FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)step->shared_bytes);
  }
  if (result == 0 && step->cluster[0] * step->cluster[1] * step->cluster[2] > PORTABLE_CLUSTER)
    result = driver->function_set(function, CU_FUNCTION_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  return result;
}

static ts_status load_steps(const ts_driver *driver, const ts_plan *plan, const ts_step *steps, uint32_t count,
                            int device, loaded_device *into, ts_error *error) {
  for (uint32_t i = 0; i < count; i++) {
    const ts_step *step = &steps[i];
    if (step->is_memset) continue;
    if (step->map_count && driver->replace_address == NULL)
      return ts_fail(error, TS_CUDA_ERROR, "the CUDA driver is too old for tensor maps; CUDA 12.0 has them");
    cu_module *module = NULL;
    ts_status status = load_module(driver, plan, step->artifact, device, &module, error);
    if (status != TS_OK) return status;
    cu_function *function = NULL;
    cu_result result = driver->module_function(&function, module, step->symbol);
    if (result == 0) result = allow(driver, step, function);
    if (result != 0) {
      char what[320];
      snprintf(what, sizeof what, "load kernel %s with %lld bytes of shared memory", step->symbol,
               (long long)step->shared_bytes);
      return ts_cuda_failed(driver, result, what, error);
    }
    into->functions[step->kernel_index] = function;
  }
  return TS_OK;
}

/* The context of `device` is current. */
static ts_status load_device(const ts_driver *driver, const ts_plan *plan, int device, loaded_device **loaded,
                             ts_error *error) {
  pthread_mutex_lock(&lock);
  ts_status status = TS_OK;
  *loaded = atomic_load(&plan->cuda->devices[device]);
  if (*loaded == NULL) {
    loaded_device *made = calloc(1, sizeof *made);
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver->capture_mode(&mode); /* loading is no part of a graph that this thread captures */
    if (made != NULL) {
      made->functions = calloc(plan->launches + 1, sizeof *made->functions);
      size_t bytes = (plan->maps + 1) * sizeof *made->maps;
      made->maps = aligned_alloc(64, bytes);
      if (made->maps != NULL) memset(made->maps, 0, bytes);
    }
    if (made == NULL || made->functions == NULL || made->maps == NULL)
      status = ts_fail(error, TS_NO_MEMORY, "no memory for a plan's kernels");
    if (status == TS_OK)
      status = load_steps(driver, plan, plan->prepare, plan->sizes.prepare_steps, device, made, error);
    if (status == TS_OK) status = load_steps(driver, plan, plan->run, plan->sizes.run_steps, device, made, error);
    driver->capture_mode(&mode);
    if (status == TS_OK) {
      atomic_store_explicit(&plan->cuda->devices[device], made, memory_order_release);
      *loaded = made;
    } else
      free_device(made);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

/* --- tensor maps -------------------------------------------------------------------------------------------------- */

static cu_result encode(const ts_driver *driver, const ts_map *recipe, void *address, cu_tensor_map *map) {
  /* CUtensorMapDataType of fp64 fp32 fp16 bf16 fp8e4m3 fp8e5m2 int8 int32 tf32. */
  static const int dtypes[] = {8, 7, 6, 9, 0, 0, 0, 3, 11};
  uint64_t dims[TS_MAX_MAP_RANK], strides[TS_MAX_MAP_RANK];
  uint32_t box[TS_MAX_MAP_RANK], steps[TS_MAX_MAP_RANK];
  int lower[TS_MAX_MAP_RANK], upper[TS_MAX_MAP_RANK];
  for (uint32_t i = 0; i < recipe->rank; i++) {
    dims[i] = (uint64_t)recipe->dims[i];
    strides[i] = (uint64_t)recipe->strides[i];
    box[i] = (uint32_t)recipe->box[i];
    steps[i] = (uint32_t)recipe->steps[i];
    lower[i] = (int)recipe->lower[i];
    upper[i] = (int)recipe->upper[i];
  }
  const int swizzle = recipe->swizzle == 0 ? 0 : recipe->swizzle == 32 ? 1 : recipe->swizzle == 64 ? 2 : 3;
  const int promotion = recipe->promotion == 0 ? 0 : recipe->promotion == 64 ? 1 : recipe->promotion == 128 ? 2 : 3;
  if (recipe->is_im2col)
    return driver->encode_im2col(map, dtypes[recipe->dtype], recipe->rank, address, dims, strides + 1, lower, upper,
                                 (uint32_t)recipe->channels, (uint32_t)recipe->pixels, steps, 0, swizzle, promotion, 0);
  return driver->encode_tiled(map, dtypes[recipe->dtype], recipe->rank, address, dims, strides + 1, box, steps, 0,
                              swizzle, promotion, 0);
}

/* `map` points to `address`: a copy of the map that was encoded at the first call. */
static ts_status point_map(const ts_driver *driver, const ts_step *step, uint32_t index, encoded_map *held,
                           void *address, cu_tensor_map *map, ts_error *error) {
  cu_result result = 0;
  if (!atomic_load_explicit(&held->ready, memory_order_acquire)) {
    pthread_mutex_lock(&lock);
    if (!atomic_load(&held->ready) && (result = encode(driver, step->maps[index], address, &held->map)) == 0) {
      held->address = address;
      atomic_store_explicit(&held->ready, 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
  }
  if (result == 0) {
    *map = held->map;
    if (held->address != address) result = driver->replace_address(map, address);
  }
  if (result == 0) return TS_OK;
  char what[320];
  snprintf(what, sizeof what, "encode tensor map %u of kernel %s", index, step->symbol);
  return ts_cuda_failed(driver, result, what, error);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

typedef struct call {
  const ts_driver *driver;
  const loaded_device *device;
  void *stream;
  void *const *slots;
  char *packed;
  char *workspace;
} call;

static void *address_of(const call *now, const ts_pointer *pointer) {
  char *base = pointer->space == TS_SPACE_SLOT     ? now->slots[pointer->index]
               : pointer->space == TS_SPACE_PACKED ? now->packed
                                                   : now->workspace;
  return base + pointer->offset;
}

static ts_status launch(const call *now, const ts_step *step, ts_error *error) {
  void *parameters[TS_MAX_PARAMETERS];
  void *addresses[TS_MAX_PARAMETERS];
  cu_tensor_map maps[MAX_LAUNCH_MAPS];
  int64_t *scalars;
  memcpy(&scalars, &step->scalars, sizeof scalars); /* the driver's interface has no const */
  uint32_t pointer = 0, scalar = 0, map = 0;
  for (uint32_t i = 0; i < step->parameter_count; i++) {
    switch (step->kinds[i]) {
    case TS_PARAMETER_POINTER:
      addresses[pointer] = address_of(now, &step->pointers[pointer]);
      parameters[i] = &addresses[pointer++];
      break;
    case TS_PARAMETER_MAP: {
      ts_status status = point_map(now->driver, step, map, &now->device->maps[step->first_map + map],
                                   address_of(now, &step->maps[map]->pointer), &maps[map], error);
      if (status != TS_OK) return status;
      parameters[i] = &maps[map++];
      break;
    }
    default:
      parameters[i] = &scalars[scalar++];
    }
  }
  cu_launch_attribute attributes[2];
  cu_launch_config config = {{(unsigned)step->grid[0], (unsigned)step->grid[1], (unsigned)step->grid[2]},
                             {(unsigned)step->block[0], (unsigned)step->block[1], (unsigned)step->block[2]},
                             (unsigned)step->shared_bytes,
                             now->stream,
                             attributes,
                             0};
  if (step->cluster[0] * step->cluster[1] * step->cluster[2] > 1) {
    cu_launch_attribute *cluster = &attributes[config.attribute_count++];
    memset(cluster, 0, sizeof *cluster);
    cluster->id = CU_ATTRIBUTE_CLUSTER_DIMENSION;
    for (int i = 0; i < 3; i++)
      cluster->value.cluster[i] = (unsigned)step->cluster[i];
  }
  if (step->programmatic && now->driver->version >= CU_VERSION_OF_EARLY_CAPTURE) {
    cu_launch_attribute *early = &attributes[config.attribute_count++];
    memset(early, 0, sizeof *early);
    early->id = CU_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early->value.flag = 1;
  }
  cu_result result = now->driver->launch(&config, now->device->functions[step->kernel_index], parameters, NULL);
  if (result == 0) return TS_OK;
  char what[320];
  snprintf(what, sizeof what, "launch kernel %s", step->symbol);
  return ts_cuda_failed(now->driver, result, what, error);
}

static ts_status run_steps(const call *now, const ts_step *steps, uint32_t count, ts_error *error) {
  for (uint32_t i = 0; i < count; i++) {
    const ts_step *step = &steps[i];
    if (!step->is_memset) {
      if (step->grid[0] == 0 || step->grid[1] == 0 || step->grid[2] == 0) continue;
      ts_status status = launch(now, step, error);
      if (status != TS_OK) return status;
    } else if (step->nbytes) {
      cu_result result = now->driver->memset8((uintptr_t)address_of(now, &step->target), (unsigned char)step->value,
                                              (size_t)step->nbytes, now->stream);
      if (result != 0) return ts_cuda_failed(now->driver, result, "fill memory", error);
    }
  }
  return TS_OK;
}

static ts_status check_call(const ts_plan *plan, void *const *slots, const void *packed, const void *workspace,
                            int preparing, ts_error *error) {
  uintptr_t low = plan->sizes.alignment - 1;
  if (plan->unbound || plan->cuda == NULL) return ts_fail(error, TS_NOT_LOADED, "an artifact of the plan is not bound");
  if (plan->sizes.packed_bytes && (packed == NULL || ((uintptr_t)packed & low)))
    return ts_fail(error, TS_BAD_ARGUMENT, "the packed filter must be aligned to %u bytes", plan->sizes.alignment);
  if (plan->sizes.workspace_bytes && (workspace == NULL || ((uintptr_t)workspace & low)))
    return ts_fail(error, TS_BAD_ARGUMENT, "the workspace must be aligned to %u bytes", plan->sizes.alignment);
  for (uint32_t i = 0; i < plan->sizes.slots; i++) {
    if (preparing ? i != 1 : !plan->slot_used[i]) continue;
    if (slots[i] == NULL || (uintptr_t)slots[i] % SLOT_ALIGNMENT)
      return ts_fail(error, TS_BAD_ARGUMENT, "slot %s at address %p is not aligned to %d bytes", plan->slots[i].name,
                     slots[i], SLOT_ALIGNMENT);
  }
  return TS_OK;
}

/* Make the device's primary context current if it is not, run, and put things back. */
static ts_status run_part(const ts_plan *plan, int device, const ts_step *steps, uint32_t count, call *now,
                          ts_error *error) {
  cu_context *context, *current = NULL;
  const ts_driver *driver = now->driver = ts_cuda_driver(error);
  if (driver == NULL) return TS_CUDA_ERROR;
  ts_status status = ts_cuda_context(driver, &device, &context, error);
  if (status != TS_OK) return status;
  cu_result result = driver->context_current(&current);
  const int pushed = result == 0 && current != context;
  if (pushed) result = driver->context_push(context);
  if (result != 0) return ts_cuda_failed(driver, result, "switch to the device", error);
  loaded_device *loaded = atomic_load_explicit(&plan->cuda->devices[device], memory_order_acquire);
  if (loaded == NULL) status = load_device(driver, plan, device, &loaded, error);
  now->device = loaded;
  if (status == TS_OK) status = run_steps(now, steps, count, error);
  if (pushed) driver->context_pop(&current);
  return status;
}

ts_status ts_plan_load_on(const ts_plan *plan, int device, ts_error *error) {
  if (plan == NULL || plan->family != TS_CUDA) return ts_fail(error, TS_BAD_ARGUMENT, "the plan is not CUDA's");
  if (plan->unbound || plan->cuda == NULL) return ts_fail(error, TS_NOT_LOADED, "an artifact of the plan is not bound");
  call now = {NULL, NULL, NULL, NULL, NULL, NULL};
  return run_part(plan, device, NULL, 0, &now, error);
}

ts_status ts_plan_prepare_on(const ts_plan *plan, int device, void *stream, void *const *slots, void *packed,
                             void *workspace, ts_error *error) {
  if (plan == NULL || slots == NULL || plan->family != TS_CUDA)
    return ts_fail(error, TS_BAD_ARGUMENT, "plan and slots must be a CUDA plan's");
  if (plan->sizes.prepare_steps == 0) return TS_OK;
  ts_status status = check_call(plan, slots, packed, workspace, 1, error);
  call now = {NULL, NULL, stream, slots, packed, workspace};
  return status != TS_OK ? status : run_part(plan, device, plan->prepare, plan->sizes.prepare_steps, &now, error);
}

ts_status ts_plan_run_on(const ts_plan *plan, int device, void *stream, void *const *slots, const void *packed,
                         void *workspace, ts_error *error) {
  if (plan == NULL || slots == NULL || plan->family != TS_CUDA)
    return ts_fail(error, TS_BAD_ARGUMENT, "plan and slots must be a CUDA plan's");
  ts_status status = check_call(plan, slots, packed, workspace, 0, error);
  call now = {NULL, NULL, stream, slots, NULL, workspace};
  memcpy(&now.packed, &packed, sizeof now.packed); /* run only reads it, but one array holds both kinds of pointer */
  return status != TS_OK ? status : run_part(plan, device, plan->run, plan->sizes.run_steps, &now, error);
}
