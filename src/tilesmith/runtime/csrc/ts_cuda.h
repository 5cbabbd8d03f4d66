/* The part of the CUDA driver's API that the runtime calls, found by dlopen: no CUDA header is needed to build. */
#ifndef TS_CUDA_H
#define TS_CUDA_H

#include "tilesmith_runtime.h"

#define TS_MAX_DEVICES 64

typedef int cu_result; /* 0: CUDA_SUCCESS */
typedef struct cu_context cu_context;
typedef struct cu_module cu_module;
typedef struct cu_function cu_function;

typedef struct cu_tensor_map {
  _Alignas(64) uint64_t opaque[16];
} cu_tensor_map;

typedef struct cu_launch_attribute {
  int id;
  int pad;
  union {
    char bytes[64];
    unsigned cluster[3];
    int flag;
  } value;
} cu_launch_attribute;

typedef struct cu_launch_config {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void *stream;
  cu_launch_attribute *attributes;
  unsigned attribute_count;
} cu_launch_config;

enum { CU_ATTRIBUTE_CLUSTER_DIMENSION = 4, CU_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
enum { CU_FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, CU_FUNCTION_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };

/* The first version that captures a launch that may begin early; before, kernels begin when all ahead is done. */
enum { CU_VERSION_OF_EARLY_CAPTURE = 12030 };

typedef struct ts_driver {
  int version;
  cu_result (*init)(unsigned flags);
  cu_result (*driver_version)(int *version);
  cu_result (*error_name)(cu_result result, const char **text);
  cu_result (*error_string)(cu_result result, const char **text);
  cu_result (*device_count)(int *count);
  cu_result (*device_get)(int *device, int ordinal);
  cu_result (*device_name)(char *name, int room, int device);
  cu_result (*device_attribute)(int *value, int attribute, int device);
  cu_result (*primary_retain)(cu_context **context, int device);
  cu_result (*context_current)(cu_context **context);
  cu_result (*context_device)(int *device);
  cu_result (*context_push)(cu_context *context);
  cu_result (*context_pop)(cu_context **context);
  cu_result (*capture_mode)(int *mode);
  cu_result (*module_load)(cu_module **module, const void *image);
  cu_result (*module_function)(cu_function **function, cu_module *module, const char *name);
  cu_result (*function_get)(int *value, int attribute, cu_function *function);
  cu_result (*function_set)(cu_function *function, int attribute, int value);
  cu_result (*launch)(const cu_launch_config *config, cu_function *function, void **parameters, void **extra);
  cu_result (*memset8)(uintptr_t address, unsigned char value, size_t count, void *stream);
  /* Since CUDA 12; NULL in older drivers. */
  cu_result (*encode_tiled)(cu_tensor_map *map, int dtype, uint32_t rank, void *address, const uint64_t *dims,
                            const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                            int swizzle, int promotion, int fill);
  cu_result (*encode_im2col)(cu_tensor_map *map, int dtype, uint32_t rank, void *address, const uint64_t *dims,
                             const uint64_t *strides, const int *lower, const int *upper, uint32_t channels,
                             uint32_t pixels, const uint32_t *steps, int interleave, int swizzle, int promotion,
                             int fill);
  cu_result (*replace_address)(cu_tensor_map *map, void *address);
} ts_driver;

/* The driver, opened and initialised; NULL with the reason in `error`. */
const ts_driver *ts_cuda_driver(ts_error *error);

/* TS_CUDA_ERROR with what was tried and the driver's own words. */
ts_status ts_cuda_failed(const ts_driver *driver, cu_result result, const char *what, ts_error *error);

/* The primary context of `device`, retained once a process; `device` -1 becomes the calling thread's device. */
ts_status ts_cuda_context(const ts_driver *driver, int *device, cu_context **context, ts_error *error);

#endif
