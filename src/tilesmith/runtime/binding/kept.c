#include "kept.h"
#include "loaded.h"
#include "tensors.h"
#include "torch_rules.h"

enum { PLAIN, RECORDED, OTHER }; /* kinds of calls: kept.h */
enum { PLAIN_TYPES, BY_FILTER, WITH_GRADIENTS, IS_RECORDING, OPTIONS, TENSORS };

static PyObject *name_requires_grad, *name_dim;

static int ready(void) {
  if (name_dim == NULL) {
    if (tensors_import() < 0) return -1;
    name_requires_grad = PyUnicode_InternFromString("requires_grad");
    name_dim = PyUnicode_InternFromString("dim");
  }
  return name_requires_grad != NULL && name_dim != NULL ? 0 : -1;
}

/* What kind of a call it is, or -1. */
static int kind_of(PyObject *const *given, PyObject *const *tensors, Py_ssize_t count) {
  if (tensor_is_array(tensors[1])) return PLAIN;
  const int plain = PySet_Contains(given[PLAIN_TYPES], (PyObject *)Py_TYPE(tensors[0]));
  if (plain < 0) return -1;
  if (!plain || torch_has_settings()) return OTHER;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *requires_grad = PyObject_GetAttr(tensors[i], name_requires_grad);
    Py_XDECREF(requires_grad); /* True and False live on */
    if (requires_grad == NULL) return -1;
    if (requires_grad != Py_True) continue;
    PyObject *records = PyObject_CallNoArgs(given[IS_RECORDING]);
    Py_XDECREF(records);
    return records == NULL ? -1 : records == Py_True ? RECORDED : PLAIN;
  }
  return PLAIN;
}

/* The call that is kept for tensors with as many axes as x has: borrowed, NULL for none, or if an exception is set. */
static PyObject *recorded_call(PyObject *kept, PyObject *x) {
  if (!PyTuple_Check(kept) || PyTuple_Size(kept) != 2) {
    PyErr_SetString(PyExc_TypeError, "with_gradients holds pairs of a number of axes and a function");
    return NULL;
  }
  PyObject *axes = call_method(x, name_dim);
  const int same = axes == NULL ? -1 : PyObject_RichCompareBool(axes, PyTuple_GetItem(kept, 0), Py_EQ);
  Py_XDECREF(axes);
  return same == 1 && !torch_is_watched() ? PyTuple_GetItem(kept, 1) : NULL;
}

/* NOTE: what the tables hold may be replaced by the call itself, so it is kept alive meanwhile. */
static PyObject *run(PyObject *function, PyObject *const *tensors, Py_ssize_t count) {
  Py_INCREF(function);
  PyObject *result = PyObject_Vectorcall(function, tensors, (size_t)count, NULL);
  Py_DECREF(function);
  return result;
}

PyObject *run_kept(PyObject *module, PyObject *const *given, Py_ssize_t count) {
  (void)module;
  if (count < TENSORS + 2 || count > TENSORS + 3 || !PyDict_Check(given[BY_FILTER]) ||
      !PyDict_Check(given[WITH_GRADIENTS])) {
    PyErr_SetString(PyExc_TypeError, "run_kept takes types, two tables, a question, options, and two or three tensors");
    return NULL;
  }
  PyObject *const *tensors = given + TENSORS;
  count -= TENSORS;
  const int kind = ready() < 0 ? -1 : kind_of(given, tensors, count);
  if (kind < 0) return NULL;
  if (kind == OTHER) return PyLong_FromLong(OTHER);
  PyObject *number = PyLong_FromVoidPtr(tensors[1]); /* what id() says */
  PyObject *key = number ? PyTuple_Pack(3, number, count == 2 ? Py_True : Py_False, given[OPTIONS]) : NULL;
  Py_XDECREF(number);
  if (key == NULL) return NULL;
  PyObject *table = given[kind == PLAIN ? BY_FILTER : WITH_GRADIENTS], *result = NULL;
  PyObject *kept = PyDict_GetItemWithError(table, key);
  if (kept != NULL && kept != Py_None && kind == RECORDED) kept = recorded_call(kept, tensors[0]);
  if (kept != NULL && kept != Py_None) {
    result = run(kept, tensors, count);
    /* The filter meets several problems. */
    if (result == NULL && kind == PLAIN && PyErr_ExceptionMatches(argument_error)) {
      PyErr_Clear();
      if (PyDict_SetItem(table, key, Py_None) == 0) result = PyLong_FromLong(PLAIN);
    }
  } else if (!PyErr_Occurred()) {
    result = PyLong_FromLong(kind);
  }
  Py_DECREF(key);
  return result;
}
