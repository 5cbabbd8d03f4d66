/* A plan with its kernels, and memory for its calls. */
#ifndef LOADED_H
#define LOADED_H

#include "stable.h"

#include "tilesmith_runtime.h"

#define IDLE_BUFFERS 8

/* Buffers of one size that no call uses; the GIL guards them. */
typedef struct buffer_list {
  size_t nbytes;
  int count;
  void *idle[IDLE_BUFFERS];
} buffer_list;

typedef struct loaded_plan {
  PyObject_HEAD ts_plan *plan;
  ts_plan_sizes sizes;
  buffer_list workspaces;
  buffer_list packed;
} loaded_plan;

/* A packed filter. `filter` stays alive: the run part may read the filter itself too. */
typedef struct packed_filter {
  PyObject_HEAD loaded_plan *loaded;
  PyObject *filter;
  void *address;
  void *memory;
  PyObject *owner; /* of `memory`, when it is a device's; else NULL */
} packed_filter;

extern PyTypeObject *loaded_plan_type, *packed_filter_type, *bound_type, *prepared_type;
extern PyObject *argument_error, *launch_error;

/* 0, or -1 with MemoryError set. A list of size 0 lends NULL. */
int buffer_borrow(buffer_list *list, void **memory);
void buffer_return(buffer_list *list, void *memory);
void buffer_drop(buffer_list *list);

/* -1 with LaunchError set if `status` is not TS_OK. */
int launch_failed(ts_status status, const ts_error *error);

/* watch_faults(8 bytes): the address of an access that ends the process goes there. */
PyObject *watch_faults(PyObject *module, PyObject *buffer);

int bound_types_init(PyObject *module);
/* is_public_key(bytes): whether they are a public key of ed25519. */
PyObject *is_public_key(PyObject *module, PyObject *key);
/* is_signature(key, signature, message): whether ed25519 says so. */
PyObject *is_signature(PyObject *module, PyObject *arguments);
/* unlzma(stored, size): the `size` bytes that a package stores as LZMA; None for bytes that are no such stream. */
PyObject *unlzma(PyObject *module, PyObject *arguments);

int package_type_init(PyObject *module, PyObject *errors);

#endif
