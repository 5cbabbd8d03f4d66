/* A plan bound for calling with the user's arguments. */
#ifndef BOUND_H
#define BOUND_H

#include "loaded.h"
#include "tensors.h"

#define MAX_INPUTS 8
#define TINY_BYTES 2048 /* below, a run takes less time than other threads' switching would */
#define NO_INPUT (-1)

typedef struct bound_plan {
  PyObject_HEAD loaded_plan *loaded;
  vectorcallfunc vectorcall;
  PyObject *refuse;  /* refuse(record, object, writable) raises what is wrong with an argument */
  PyObject *overlap; /* overlap(record, object, record, object) raises if two tensors share an element */
  tensor_spec inputs[MAX_INPUTS];
  tensor_spec result;
  int input_count;
  int slot_of[MAX_INPUTS]; /* of each input; NO_INPUT for the result's initial value */
  int filter;              /* the input that prepare packs, or NO_INPUT */
  int initial;             /* the input that the result begins as, or NO_INPUT */
  int in_place;            /* the input whose memory the result may have, or NO_INPUT */
  int tiny;
  PyObject *origin;       /* whatever its maker keeps here, to make it again; else NULL */
  PyObject *device_calls; /* of a CUDA plan: runtime.device_call.DeviceCalls, for what device.c leaves to it */
} bound_plan;

typedef struct prepared_plan {
  PyObject_HEAD bound_plan *bound;
  packed_filter *packed;
  vectorcallfunc vectorcall;
} prepared_plan;

/* 0, or -1 with ArgumentError set. `skip` is the input that a prepared plan has already, or NO_INPUT. */
int bound_check_count(bound_plan *self, Py_ssize_t got, int skip);

/* A call of a CUDA plan (device.c). `out` may be NULL. */
PyObject *device_call(bound_plan *self, packed_filter *packed, PyObject *const *arguments, Py_ssize_t count,
                      PyObject *out);

#endif
