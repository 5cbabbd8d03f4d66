/* DLPack's C exchange table (dlpack.h 1.2 and later, `__dlpack_c_exchange_api__`): the part that is used here. */
#ifndef DLPACK_EXCHANGE_H
#define DLPACK_EXCHANGE_H

#include <stdint.h>

typedef struct dl_tensor {
  void *data;
  struct {
    int32_t type; /* DL_CPU, DL_CUDA */
    int32_t id;
  } device;
  int32_t axes;
  struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: dense */
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_exchange {
  uint32_t major;
  uint32_t minor;
  struct dl_exchange *previous;
  void *allocate;
  void *managed_from_object;
  void *object_from_managed;
  int (*tensor_from_object)(void *object, dl_tensor *tensor); /* may be NULL */
  int (*current_stream)(int32_t device_type, int32_t device, void **stream);
} dl_exchange;

enum { DL_CPU = 1, DL_CUDA = 2 };
enum { DL_INT = 0, DL_FLOAT = 2, DL_BFLOAT = 4, DL_FLOAT8_E4M3FN = 10, DL_FLOAT8_E5M2 = 12 };

#endif
