/* Python's headers. Wheels are built with Py_LIMITED_API, so that one file serves CPython 3.11 and all later ones. */
#ifndef STABLE_H
#define STABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* NOTE: vector calls joined the stable ABI with 3.12. CPython 3.11 exports the same functions with the same meaning
 * (PEP 590), but its headers hide them here. */
#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030c0000
typedef PyObject *(*vectorcallfunc)(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *keywords);
PyAPI_FUNC(PyObject *) PyVectorcall_Call(PyObject *callable, PyObject *tuple, PyObject *keywords);
PyAPI_FUNC(PyObject *)
    PyObject_Vectorcall(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *keywords);
PyAPI_FUNC(PyObject *)
    PyObject_VectorcallMethod(PyObject *name, PyObject *const *arguments, size_t flags, PyObject *keywords);
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
#define PyVectorcall_NARGS(flags) ((Py_ssize_t)((flags) & ~PY_VECTORCALL_ARGUMENTS_OFFSET))
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#endif

/* With Py_LIMITED_API Python's functions take PyObject pointers alone, without it those of any object. */
#ifdef Py_LIMITED_API
#undef Py_TYPE
#undef Py_IS_TYPE
#undef Py_INCREF
#undef Py_DECREF
#undef Py_XDECREF
#undef Py_NewRef
#undef Py_XNewRef
#define Py_TYPE(object) Py_TYPE((PyObject *)(object))
#define Py_IS_TYPE(object, type) Py_IS_TYPE((PyObject *)(object), type)
#define Py_INCREF(object) Py_INCREF((PyObject *)(object))
#define Py_DECREF(object) Py_DECREF((PyObject *)(object))
#define Py_XDECREF(object) Py_XDECREF((PyObject *)(object))
#define Py_NewRef(object) Py_NewRef((PyObject *)(object))
#define Py_XNewRef(object) Py_XNewRef((PyObject *)(object))
#endif

/* `*place = value`, which drops the reference that was there. */
static inline void replace_reference(PyObject **place, PyObject *value) {
  PyObject *before = *place;
  *place = value;
  Py_XDECREF(before);
}

static inline PyObject *call_method(PyObject *self, PyObject *name) {
  return PyObject_VectorcallMethod(name, &self, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

#endif
