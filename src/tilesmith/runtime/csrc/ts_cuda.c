/* Opening the CUDA driver, and the primary contexts. */
#include "ts_cuda.h"
#include "ts_plan.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static const struct {
  char name[34];
  uint8_t optional;
  uint16_t offset;
} symbols[] = {
    {"cuInit", 0, offsetof(ts_driver, init)},
    {"cuDriverGetVersion", 0, offsetof(ts_driver, driver_version)},
    {"cuGetErrorName", 0, offsetof(ts_driver, error_name)},
    {"cuGetErrorString", 0, offsetof(ts_driver, error_string)},
    {"cuDeviceGetCount", 0, offsetof(ts_driver, device_count)},
    {"cuDeviceGet", 0, offsetof(ts_driver, device_get)},
    {"cuDeviceGetName", 0, offsetof(ts_driver, device_name)},
    {"cuDeviceGetAttribute", 0, offsetof(ts_driver, device_attribute)},
    {"cuDevicePrimaryCtxRetain", 0, offsetof(ts_driver, primary_retain)},
    {"cuCtxGetCurrent", 0, offsetof(ts_driver, context_current)},
    {"cuCtxGetDevice", 0, offsetof(ts_driver, context_device)},
    {"cuCtxPushCurrent_v2", 0, offsetof(ts_driver, context_push)},
    {"cuCtxPopCurrent_v2", 0, offsetof(ts_driver, context_pop)},
    {"cuThreadExchangeStreamCaptureMode", 0, offsetof(ts_driver, capture_mode)},
    {"cuModuleLoadData", 0, offsetof(ts_driver, module_load)},
    {"cuModuleGetFunction", 0, offsetof(ts_driver, module_function)},
    {"cuFuncGetAttribute", 0, offsetof(ts_driver, function_get)},
    {"cuFuncSetAttribute", 0, offsetof(ts_driver, function_set)},
    {"cuLaunchKernelEx", 0, offsetof(ts_driver, launch)},
    {"cuMemsetD8Async", 0, offsetof(ts_driver, memset8)},
    {"cuTensorMapEncodeTiled", 1, offsetof(ts_driver, encode_tiled)},
    {"cuTensorMapEncodeIm2col", 1, offsetof(ts_driver, encode_im2col)},
    {"cuTensorMapReplaceAddress", 1, offsetof(ts_driver, replace_address)},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ts_driver driver;
static _Atomic int is_open;
static int init_result;
static cu_context *_Atomic primaries[TS_MAX_DEVICES];

static ts_status open_library(const char *path, ts_error *error) {
  const char *name = path != NULL && *path ? path : "libcuda.so.1";
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    return ts_fail(error, TS_CUDA_ERROR, "no CUDA driver: %s; install NVIDIA's driver, or run on a CPU", dlerror());
  ts_driver found;
  memset(&found, 0, sizeof found);
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *symbol = dlsym(library, symbols[i].name);
    if (symbol == NULL && !symbols[i].optional)
      return ts_fail(error, TS_CUDA_ERROR, "the CUDA driver %s is too old: it lacks %s (CUDA 11.8 has it)", name,
                     symbols[i].name);
    memcpy((char *)&found + symbols[i].offset, &symbol, sizeof symbol);
  }
  driver = found;
  init_result = driver.init(0);
  if (init_result == 0 && driver.driver_version(&driver.version) != 0) driver.version = 0;
  atomic_store(&is_open, 1);
  return TS_OK;
}

ts_status ts_cuda_open(const char *library, ts_error *error) {
  ts_status status = TS_OK;
  if (!atomic_load(&is_open)) {
    pthread_mutex_lock(&lock);
    if (!atomic_load(&is_open)) status = open_library(library, error);
    pthread_mutex_unlock(&lock);
  }
  if (status == TS_OK && init_result != 0) return ts_cuda_failed(&driver, init_result, "start the CUDA driver", error);
  return status;
}

const ts_driver *ts_cuda_driver(ts_error *error) {
  return ts_cuda_open(NULL, error) == TS_OK ? &driver : NULL;
}

ts_status ts_cuda_failed(const ts_driver *from, cu_result result, const char *what, ts_error *error) {
  const char *name = NULL, *text = NULL;
  from->error_name(result, &name);
  from->error_string(result, &text);
  return ts_fail(error, TS_CUDA_ERROR, "cannot %s: %s (%d), %s", what, name ? name : "CUDA error", result,
                 text ? text : "unknown to this driver");
}

static ts_status current_device(const ts_driver *from, int *device, ts_error *error) {
  cu_context *now = NULL;
  *device = 0;
  cu_result result = from->context_current(&now);
  if (result == 0 && now != NULL) result = from->context_device(device);
  return result == 0 ? TS_OK : ts_cuda_failed(from, result, "find the current device", error);
}

int ts_cuda_is_current(int device) {
  if (device < 0 || device >= TS_MAX_DEVICES || !atomic_load(&is_open)) return 0;
  cu_context *now = NULL, *primary = atomic_load_explicit(&primaries[device], memory_order_acquire);
  return primary != NULL && driver.context_current(&now) == 0 && now == primary;
}

ts_status ts_cuda_context(const ts_driver *from, int *device, cu_context **context, ts_error *error) {
  if (*device == -1) {
    ts_status status = current_device(from, device, error);
    if (status != TS_OK) return status;
  }
  if (*device < 0 || *device >= TS_MAX_DEVICES)
    return ts_fail(error, TS_BAD_ARGUMENT, "device %d is not from 0 to %d", *device, TS_MAX_DEVICES - 1);
  *context = atomic_load_explicit(&primaries[*device], memory_order_acquire);
  if (*context != NULL) return TS_OK;
  pthread_mutex_lock(&lock);
  int handle = 0;
  cu_result result = 0;
  if ((*context = atomic_load(&primaries[*device])) == NULL) {
    result = from->device_get(&handle, *device);
    if (result == 0) result = from->primary_retain(context, handle);
    if (result == 0) atomic_store_explicit(&primaries[*device], *context, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
  return result == 0 ? TS_OK : ts_cuda_failed(from, result, "use the device", error);
}
