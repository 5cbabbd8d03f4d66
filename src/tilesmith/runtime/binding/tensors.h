/* Arguments of a call: NumPy arrays and PyTorch tensors, checked against what a signature says. */
#ifndef TENSORS_H
#define TENSORS_H

#include "stable.h"
#include <stdint.h>

#define MAX_AXES 8

/* What one argument must be. Strides count elements; the strides of unit axes do not matter, unless `exact` says so. */
typedef struct tensor_spec {
  PyObject *record;          /* the Python Slot, for messages */
  PyObject *shape;           /* tuple */
  PyObject *strides;         /* tuple */
  PyObject *numpy_dtype;     /* numpy.dtype */
  PyObject *torch_dtype;     /* looked up when the first tensor comes, else NULL */
  PyObject *empty_arguments; /* (shape, strides, torch dtype), made with the first result on a device, else NULL */
  const char *torch_name;
  int64_t sizes[MAX_AXES];
  int64_t steps[MAX_AXES];
  int64_t itemsize;
  int64_t nbytes; /* from the first to the last element */
  int axes;
  int dense;
  int exact;
  uint8_t dlpack_code;
} tensor_spec;

typedef enum tensor_kind { KIND_UNKNOWN, KIND_NUMPY, KIND_DLPACK, KIND_TORCH } tensor_kind;

/* Imports NumPy's C functions; -1 with an exception set if there is none. */
int tensors_import(void);

/* From (record, dtype name, numpy.dtype, shape, strides, nbytes[, exact]); -1 with an exception set. */
int spec_init(tensor_spec *spec, PyObject *entry);
void spec_clear(tensor_spec *spec);

tensor_kind tensor_kind_of(PyObject *object);

/* Whether it is a NumPy array, and of no subclass. */
int tensor_is_array(PyObject *object);

/* Whether it is PyTorch's, or offers what PyTorch's tensors do. */
int tensor_is_torch(PyObject *object);

/* The exchange table of the type of `object`; NULL if it has none. */
const struct dl_exchange *tensor_exchange(PyObject *object);
/* As tensor_check, of a tensor of a type with this table: on a CUDA device, its address a multiple of 16. */
int tensor_check_device(tensor_spec *spec, PyObject *object, const struct dl_exchange *exchange, void **address,
                        int *device);
/* As tensor_new, of PyTorch tensors on the calling thread's CUDA device. */
PyObject *tensor_new_on_device(tensor_spec *spec, PyObject *like);
/* A new tensor of `nbytes` bytes on the device of `like`, a PyTorch tensor; NULL with an exception set. */
PyObject *tensor_new_bytes(PyObject *like, int64_t nbytes);

/* 1 and the address of the first element if `object` is what `spec` says, else 0. Never leaves an exception. */
int tensor_check(tensor_spec *spec, PyObject *object, int writable, void **address);

/* A new tensor of the kind of `like`, uninitialised; NULL with an exception set. */
PyObject *tensor_new(tensor_spec *spec, PyObject *like, tensor_kind kind);

/* Copy the elements (not the gaps between them) of one tensor of `spec` to another. */
void tensor_copy(const tensor_spec *spec, char *to, const char *from);

#endif
