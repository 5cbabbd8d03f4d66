/* What PyTorch asks of a call that is none of its operators. Messages: runtime/torch_rules.py. */
#ifndef TORCH_RULES_H
#define TORCH_RULES_H

#include "stable.h"

/* 0, or -1 with ArgumentError set if a trace, a dispatch mode or a transform watches this thread. */
int torch_check_call(PyObject *const *tensors, Py_ssize_t count);

/* Whether a trace, a mode, a transform or a tangent may watch this thread; whether PyTorch has settings that its own
 * operators obey: autocast, a profiler, deterministic algorithms. */
int torch_is_watched(void);
int torch_has_settings(void);

/* The same as functions of the module. */
PyObject *torch_watches(PyObject *module, PyObject *unused);
PyObject *torch_settings(PyObject *module, PyObject *unused);

/* 0, or -1 with ArgumentError set if `out` must not be written because a gradient is recorded for it. */
int torch_check_result(PyObject *out);

/* Count the version of `out` up, if it has one; -1 with an exception set if that fails. */
int torch_note_written(PyObject *out);

#endif
