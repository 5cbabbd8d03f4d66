/* Calls that this process has met before: a look-up by the filter, then a launch. */
#ifndef KEPT_H
#define KEPT_H

#include "stable.h"

/* A function of the module: plain types, the tables by_filter and with_gradients (dispatch/kept_calls.py), PyTorch's
 * is_grad_enabled, the options, and x, w and, if there is one, b. The result of the call that is kept; where none is,
 * or it takes other tensors, the kind of the call: 0 is a launch, 1 one whose gradients are recorded, 2 any other call.
 * Raises what the call raises. */
PyObject *run_kept(PyObject *module, PyObject *const *given, Py_ssize_t count);

#endif
