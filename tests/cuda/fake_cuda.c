/* A stand-in for libcuda: two devices whose memory is the host's, kernels that a callback runs, and a log of all calls.
 *
 * It has the functions that Tilesmith calls, and refuses what the driver refuses: launches beyond a device's limits,
 * contexts that are not current, maps with addresses that are not aligned, loading or waiting while a stream records.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NOT_FOUND = 500,
  NOT_READY = 600,
  LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900
};
enum { DEVICES = 2, SHARED_BYTES = 232448, PLAIN_SHARED_BYTES = 49152 };

typedef struct context {
  int device;
  int retained;
} context;
typedef struct module {
  int device;
  char name[64];
} module;
typedef struct function {
  module *of;
  char name[256];
  int max_shared;
  int big_clusters;
  struct function *next;
} function;
typedef struct config {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct {
    int id, pad;
    union {
      char bytes[64];
      unsigned cluster[3];
      int flag;
    } value;
  } *attributes;
  unsigned count;
} config;
typedef int (*launcher)(const char *name, const unsigned *grid, const unsigned *block, unsigned shared,
                        void **parameters);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 20];
static size_t log_size;
static char failing[64];
static int failing_code, early;
static launcher run_kernel;
static int started, captures, compute_major = 9;
static context contexts[DEVICES] = {{0, 0}, {1, 0}};
static function *functions;
static _Thread_local context *stack[16];
static _Thread_local int depth;
static _Thread_local int capture_mode; /* 0 global, 2 relaxed */

static void note(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&lock);
  int size = vsnprintf(log_text + log_size, sizeof log_text - log_size, format, arguments);
  if (size > 0 && log_size + (size_t)size + 1 < sizeof log_text) {
    log_size += (size_t)size;
    log_text[log_size++] = '\n';
  }
  pthread_mutex_unlock(&lock);
  va_end(arguments);
}

static int fails(const char *name) {
  if (!started && strcmp(name, "cuInit") != 0) return NOT_INITIALIZED;
  if (strcmp(name, failing) != 0) return OK;
  failing[0] = 0;
  return failing_code;
}

#define BEGIN(name)         \
  do {                      \
    int code = fails(name); \
    if (code) return code;  \
  } while (0)
#define NEED_CONTEXT \
  if (depth == 0) return INVALID_CONTEXT
/* What waits, or allocates, is refused while a stream records (unless the thread has relaxed that). */
#define NOT_RECORDING \
  if (captures && capture_mode == 0) return CAPTURE_UNSUPPORTED

/* --- for tests ---------------------------------------------------------------------------------------------------- */

API size_t fake_take_log(char *into, size_t room) {
  pthread_mutex_lock(&lock);
  size_t size = log_size < room ? log_size : room;
  memcpy(into, log_text, size);
  log_size = 0;
  pthread_mutex_unlock(&lock);
  return size;
}
API void fake_fail_next(const char *name, int code) {
  snprintf(failing, sizeof failing, "%s", name);
  failing_code = code;
}
API void fake_set_launcher(launcher callback) {
  run_kernel = callback;
}
API void fake_set_early(int count) { /* so many queries find the device at their event already */
  early = count;
}
API void fake_set_major(int major) {
  compute_major = major;
}

/* --- start, devices, contexts ------------------------------------------------------------------------------------- */

API int cuInit(unsigned flags) {
  BEGIN("cuInit");
  started = 1;
  return flags ? INVALID_VALUE : OK;
}
API int cuDriverGetVersion(int *version) {
  const char *asked = getenv("FAKE_CUDA_VERSION");
  *version = asked ? atoi(asked) : 13000;
  return OK;
}
API int cuGetErrorName(int code, const char **text) {
  *text = code == OUT_OF_MEMORY         ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == INVALID_IMAGE       ? "CUDA_ERROR_INVALID_IMAGE"
          : code == NOT_FOUND           ? "CUDA_ERROR_NOT_FOUND"
          : code == LAUNCH_FAILED       ? "CUDA_ERROR_LAUNCH_FAILED"
          : code == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : code == INVALID_VALUE       ? "CUDA_ERROR_INVALID_VALUE"
                                        : NULL;
  return *text ? OK : INVALID_VALUE;
}
API int cuGetErrorString(int code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "out of memory" : code == NOT_FOUND ? "named symbol not found" : "refused";
  return OK;
}
API int cuDeviceGetCount(int *count) {
  BEGIN("cuDeviceGetCount");
  *count = DEVICES;
  return OK;
}
API int cuDeviceGet(int *device, int ordinal) {
  BEGIN("cuDeviceGet");
  if (ordinal < 0 || ordinal >= DEVICES) return INVALID_DEVICE;
  *device = ordinal;
  return OK;
}
static char device_name[64] = "NVIDIA H200";
API void fake_set_name(const char *name) {
  snprintf(device_name, sizeof device_name, "%s", name);
}
API int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "%s", device_name);
  return OK;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)1 << 34;
  return OK;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case 13: *value = 1500 * 1000; break;   // kHz
    case 16: *value = 132; break;           // SMs
    case 36: *value = 2000 * 1000; break;   // kHz of the memory
    case 37: *value = 4096; break;          // bits of its bus
    case 38: *value = 50 << 20; break;      // bytes of L2
    case 75: *value = compute_major; break;
    default: *value = 0;
  }
  return OK;
}
API int cuDevicePrimaryCtxRetain(context **made, int device) {
  BEGIN("cuDevicePrimaryCtxRetain");
  contexts[device].retained++;
  note("retain device=%d", device);
  *made = &contexts[device];
  return OK;
}
API int cuCtxGetCurrent(context **now) {
  *now = depth ? stack[depth - 1] : NULL;
  return OK;
}
API int cuCtxGetDevice(int *device) {
  NEED_CONTEXT;
  *device = stack[depth - 1]->device;
  return OK;
}
API int cuCtxPushCurrent_v2(context *now) {
  if (depth == 16) return INVALID_VALUE;
  stack[depth++] = now;
  return OK;
}
API int cuCtxPopCurrent_v2(context **now) {
  NEED_CONTEXT;
  *now = stack[--depth];
  return OK;
}
API int cuCtxSynchronize(void) {
  NEED_CONTEXT;
  NOT_RECORDING;
  note("synchronize");
  return OK;
}
API int cuThreadExchangeStreamCaptureMode(int *mode) {
  int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return OK;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

API int cuModuleLoadData(module **made, const void *image) {
  BEGIN("cuModuleLoadData");
  NEED_CONTEXT;
  NOT_RECORDING;
  const unsigned char *bytes = image;
  int is_elf = memcmp(bytes,
                      "\x7f"
                      "ELF",
                      4) == 0;
  if (is_elf ? bytes[18] != 190 : strstr(image, ".version") == NULL) return INVALID_IMAGE;
  *made = calloc(1, sizeof **made);
  (*made)->device = stack[depth - 1]->device;
  note("load device=%d", (*made)->device);
  return OK;
}
API int cuModuleGetFunction(function **found, module *of, const char *name) {
  BEGIN("cuModuleGetFunction");
  if (strstr(name, "missing") != NULL) return NOT_FOUND;
  pthread_mutex_lock(&lock);
  for (function *at = functions; at != NULL; at = at->next)
    if (at->of == of && strcmp(at->name, name) == 0) {
      pthread_mutex_unlock(&lock);
      *found = at;
      return OK;
    }
  function *made = calloc(1, sizeof *made);
  made->of = of;
  snprintf(made->name, sizeof made->name, "%s", name);
  made->max_shared = PLAIN_SHARED_BYTES;
  made->next = functions;
  functions = made;
  pthread_mutex_unlock(&lock);
  *found = made;
  return OK;
}
API int cuFuncGetAttribute(int *value, int attribute, function *of) {
  *value = attribute == 8 ? of->max_shared : 0;
  return OK;
}
API int cuFuncSetAttribute(function *of, int attribute, int value) {
  BEGIN("cuFuncSetAttribute");
  if (attribute == 8 && value > SHARED_BYTES) return INVALID_VALUE;
  if (attribute == 8) of->max_shared = value;
  if (attribute == 14) of->big_clusters = value;
  note("allow %s attribute=%d value=%d", of->name, attribute, value);
  return OK;
}
API int cuLaunchKernelEx(const config *how, function *what, void **parameters, void **extra) {
  BEGIN("cuLaunchKernelEx");
  NEED_CONTEXT;
  unsigned blocks = 1, early = 0, cluster[3] = {1, 1, 1};
  if (extra != NULL || what->of->device != stack[depth - 1]->device) return INVALID_CONTEXT;
  for (unsigned i = 0; i < how->count; i++)
    if (how->attributes[i].id == 4)
      memcpy(cluster, how->attributes[i].value.cluster, sizeof cluster);
    else if (how->attributes[i].id == 6)
      early = (unsigned)how->attributes[i].value.flag;
    else
      return INVALID_VALUE;
  for (int i = 0; i < 3; i++) {
    blocks *= cluster[i];
    if (how->grid[i] == 0 || how->block[i] == 0 || how->grid[i] % cluster[i]) return INVALID_VALUE;
  }
  if (how->block[0] * how->block[1] * how->block[2] > 1024 || blocks > (what->big_clusters ? 16u : 8u) ||
      (int)how->shared > what->max_shared)
    return INVALID_VALUE;
  note("launch %s grid=%u,%u,%u block=%u,%u,%u cluster=%u,%u,%u shared=%u early=%u stream=%llx device=%d", what->name,
       how->grid[0], how->grid[1], how->grid[2], how->block[0], how->block[1], how->block[2], cluster[0], cluster[1],
       cluster[2], how->shared, early, (unsigned long long)(uintptr_t)how->stream, what->of->device);
  return run_kernel != NULL ? run_kernel(what->name, how->grid, how->block, how->shared, parameters) : OK;
}

/* --- tensor maps: the address, a number, and what was encoded, for emulated_hopper.h -------------------------------
 */

struct map_fields {
  uint64_t address, magic, strides[4];
  int dims[5];
  short box[5], channels, pixels;
  signed char steps[5], lower[3], upper[3];
  unsigned char rank, swizzle, nbytes; /* of an element */
};
static int encoded(uint64_t *map, int dtype, void *address, struct map_fields of, unsigned rank, const uint64_t *dims,
                   const uint64_t *strides, const int *steps, int swizzle, const char *text) {
  if ((uintptr_t)map % 64 || (uintptr_t)address % 16) return INVALID_VALUE;
  of.address = (uint64_t)(uintptr_t)address, of.magic = 0x5453, of.rank = (unsigned char)rank;
  of.swizzle = (unsigned char)(swizzle ? 16 << swizzle : 0);
  of.nbytes = dtype == 0 ? 1 : dtype == 1 || dtype == 6 || dtype == 9 ? 2 : 4; /* bytes; 16-bit integers and floats */
  for (unsigned i = 0; i < rank; i++)
    of.dims[i] = (int)dims[i], of.steps[i] = (signed char)steps[i];
  for (unsigned i = 0; i + 1 < rank; i++)
    of.strides[i] = strides[i];
  memset(map, 0, 128);
  memcpy(map, &of, sizeof of);
  note("%s", text);
  return OK;
}
static void list64(char *into, const uint64_t *values, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    into += sprintf(into, "%s%llu", i ? "," : "", (unsigned long long)values[i]);
  *into = 0;
}
static void list32(char *into, const int *values, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    into += sprintf(into, "%s%d", i ? "," : "", values[i]);
  *into = 0;
}
API int cuTensorMapEncodeTiled(uint64_t *map, int dtype, unsigned rank, void *address, const uint64_t *dims,
                               const uint64_t *strides, const int *box, const int *steps, int interleave, int swizzle,
                               int promotion, int fill) {
  BEGIN("cuTensorMapEncodeTiled");
  char d[160], s[160], b[80], e[80], text[640];
  list64(d, dims, rank), list64(s, strides, rank - 1), list32(b, box, rank), list32(e, steps, rank);
  snprintf(text, sizeof text,
           "tiled dtype=%d rank=%u dims=%s strides=%s box=%s steps=%s interleave=%d swizzle=%d l2=%d fill=%d", dtype,
           rank, d, s, b, e, interleave, swizzle, promotion, fill);
  struct map_fields of = {0};
  for (unsigned i = 0; i < rank; i++)
    of.box[i] = (short)box[i];
  return encoded(map, dtype, address, of, rank, dims, strides, steps, swizzle, text);
}
API int cuTensorMapEncodeIm2col(uint64_t *map, int dtype, unsigned rank, void *address, const uint64_t *dims,
                                const uint64_t *strides, const int *lower, const int *upper, unsigned channels,
                                unsigned pixels, const int *steps, int interleave, int swizzle, int promotion,
                                int fill) {
  BEGIN("cuTensorMapEncodeIm2col");
  char d[160], s[160], l[80], u[80], e[80], text[800];
  list64(d, dims, rank), list64(s, strides, rank - 1), list32(l, lower, rank - 2), list32(u, upper, rank - 2);
  list32(e, steps, rank);
  snprintf(text, sizeof text,
           "im2col dtype=%d rank=%u dims=%s strides=%s lower=%s upper=%s channels=%u pixels=%u steps=%s "
           "interleave=%d swizzle=%d l2=%d fill=%d",
           dtype, rank, d, s, l, u, channels, pixels, e, interleave, swizzle, promotion, fill);
  struct map_fields of = {.channels = (short)channels, .pixels = (short)pixels};
  for (unsigned i = 0; i + 2 < rank; i++)
    of.lower[i] = (signed char)lower[i], of.upper[i] = (signed char)upper[i];
  return encoded(map, dtype, address, of, rank, dims, strides, steps, swizzle, text);
}
API int cuTensorMapReplaceAddress(uint64_t *map, void *address) {
  BEGIN("cuTensorMapReplaceAddress");
  if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || map[1] != 0x5453) return INVALID_VALUE;
  map[0] = (uint64_t)(uintptr_t)address;
  note("point map");
  return OK;
}

/* --- memory: the host's ------------------------------------------------------------------------------------------- */

API int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  BEGIN("cuMemAlloc_v2");
  NEED_CONTEXT;
  NOT_RECORDING;
  *address = (uint64_t)(uintptr_t)aligned_alloc(512, (bytes + 511) / 512 * 512);
  return *address ? OK : OUT_OF_MEMORY;
}
static size_t free_bytes;
API void fake_set_free(size_t bytes) { free_bytes = bytes; }
API int cuMemGetInfo_v2(size_t *free_now, size_t *total) {
  BEGIN("cuMemGetInfo_v2");
  NEED_CONTEXT;
  *free_now = free_bytes, *total = (size_t)80 << 30;
  return OK;
}
API int cuMemFree_v2(uint64_t address) {
  free((void *)(uintptr_t)address);
  return OK;
}
API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  NOT_RECORDING;
  memcpy((void *)(uintptr_t)to, from, bytes);
  return OK;
}
API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  NOT_RECORDING;
  memcpy(to, (void *)(uintptr_t)from, bytes);
  return OK;
}
API int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  NOT_RECORDING;
  memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
  return OK;
}
API int cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, void *stream) {
  BEGIN("cuMemsetD8Async");
  NEED_CONTEXT;
  memset((void *)(uintptr_t)at, value, bytes);
  note("memset value=%d bytes=%zu stream=%llx", value, bytes, (unsigned long long)(uintptr_t)stream);
  return OK;
}
API int cuPointerGetAttribute(int *value, int attribute, uint64_t address) {
  (void)address;
  *value = 0;
  return attribute == 9 ? OK : INVALID_VALUE;
}

/* --- streams, graphs, events: everything is done at once ---------------------------------------------------------- */

static uintptr_t handles = 0x1000;
API int cuStreamCreate(void **stream, unsigned flags) {
  (void)flags;
  *stream = (void *)(handles += 16);
  return OK;
}
API int cuStreamDestroy_v2(void *stream) {
  (void)stream;
  return OK;
}
API int cuStreamSynchronize(void *stream) {
  NOT_RECORDING;
  note("wait stream=%llx", (unsigned long long)(uintptr_t)stream);
  return OK;
}
API int cuStreamBeginCapture_v2(void *stream, int mode) {
  (void)mode;
  captures++;
  note("record stream=%llx", (unsigned long long)(uintptr_t)stream);
  return OK;
}
API int cuStreamEndCapture(void *stream, void **graph) {
  (void)stream;
  captures--;
  *graph = (void *)(handles += 16);
  note("recorded");
  return OK;
}
API int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
  (void)graph;
  (void)flags;
  *made = (void *)(handles += 16);
  return OK;
}
API int cuGraphLaunch(void *graph, void *stream) {
  (void)graph;
  note("replay stream=%llx", (unsigned long long)(uintptr_t)stream);
  return OK;
}
API int cuGraphDestroy(void *graph) {
  (void)graph;
  return OK;
}
API int cuGraphExecDestroy(void *graph) {
  (void)graph;
  return OK;
}
API int cuEventCreate(void **event, unsigned flags) {
  (void)flags;
  *event = (void *)(handles += 16);
  return OK;
}
API int cuEventDestroy_v2(void *event) {
  (void)event;
  return OK;
}
API int cuEventRecord(void *event, void *stream) {
  (void)event;
  (void)stream;
  return OK;
}
API int cuEventSynchronize(void *event) {
  (void)event;
  NOT_RECORDING;
  return OK;
}
API int cuEventQuery(void *event) {
  (void)event;
  BEGIN("cuEventQuery");
  return early > 0 && early-- ? OK : NOT_READY;
}
API int cuEventElapsedTime(float *ms, void *from, void *to) {
  (void)from;
  (void)to;
  *ms = 0.25f;
  return OK;
}
