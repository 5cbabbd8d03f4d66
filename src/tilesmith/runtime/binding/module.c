/* The extension module: plans loaded from bytes, with buffers for their calls. */
#include "loaded.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define POISON 0xFF /* in every floating-point format all ones are a NaN */

PyTypeObject *loaded_plan_type;
PyObject *argument_error, *launch_error;

/* --- memory --------------------------------------------------------------------------------------------------------
 */

static void *allocate(size_t nbytes) {
  size_t alignment = nbytes >= HUGE_PAGE ? HUGE_PAGE : 4096;
  void *memory = NULL;
  if (posix_memalign(&memory, alignment, nbytes) != 0) return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (nbytes >= HUGE_PAGE)
    madvise(memory, nbytes, MADV_HUGEPAGE); /* packed filters are read once a call, from end to end */
#endif
  return memory;
}

int buffer_borrow(buffer_list *list, void **memory) {
  *memory = NULL;
  if (list->nbytes == 0) return 0;
  *memory = list->count ? list->idle[--list->count] : allocate(list->nbytes);
  if (*memory != NULL) return 0;
  PyErr_Format(PyExc_MemoryError, "no memory for a workspace of %zu bytes", list->nbytes);
  return -1;
}

void buffer_return(buffer_list *list, void *memory) {
  if (memory == NULL) return;
  if (list->count < IDLE_BUFFERS)
    list->idle[list->count++] = memory;
  else
    free(memory);
}

void buffer_drop(buffer_list *list) {
  while (list->count)
    free(list->idle[--list->count]);
}

int launch_failed(ts_status status, const ts_error *error) {
  if (status == TS_OK) return 0;
  const char *text = error != NULL && error->text[0] ? error->text : ts_status_text(status);
  PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  if (message != NULL) PyErr_SetObject(launch_error, message);
  Py_XDECREF(message);
  return -1;
}

/* --- LoadedPlan ----------------------------------------------------------------------------------------------------
 */

static PyObject *loaded_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)keywords;
  Py_buffer bytes;
  PyObject *paths;
  if (!PyArg_ParseTuple(arguments, "y*O!", &bytes, &PyTuple_Type, &paths)) return NULL;
  loaded_plan *self = (loaded_plan *)type->tp_alloc(type, 0);
  ts_error error = {""};
  if (self == NULL) goto failed;
  if (launch_failed(ts_plan_open(bytes.buf, (size_t)bytes.len, &self->plan, &error), &error)) goto failed;
  self->sizes = ts_plan_get_sizes(self->plan);
  self->workspaces.nbytes = (size_t)self->sizes.workspace_bytes;
  self->packed.nbytes = (size_t)self->sizes.packed_bytes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(paths); i++) {
    PyObject *path;
    if (!PyUnicode_FSConverter(PyTuple_GET_ITEM(paths, i), &path)) goto failed;
    ts_status status = ts_plan_bind_file(self->plan, (uint32_t)i, PyBytes_AS_STRING(path), &error);
    Py_DECREF(path);
    if (launch_failed(status, &error)) goto failed;
  }
  PyBuffer_Release(&bytes);
  return (PyObject *)self;
failed:
  PyBuffer_Release(&bytes);
  Py_XDECREF(self);
  return NULL;
}

static void loaded_dealloc(loaded_plan *self) {
  PyTypeObject *type = Py_TYPE(self);
  buffer_drop(&self->workspaces);
  buffer_drop(&self->packed);
  ts_plan_close(self->plan);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *loaded_poison(loaded_plan *self, PyObject *unused) {
  (void)unused;
  buffer_list *lists[] = {&self->workspaces, &self->packed};
  for (int i = 0; i < 2; i++) {
    void *memory;
    if (buffer_borrow(lists[i], &memory) < 0) return NULL; /* at least one is there for the next call */
    buffer_return(lists[i], memory);
    for (int k = 0; k < lists[i]->count; k++)
      memset(lists[i]->idle[k], POISON, lists[i]->nbytes);
  }
  Py_RETURN_NONE;
}

static PyMethodDef loaded_methods[] = {
    {"poison", (PyCFunction)loaded_poison, METH_NOARGS, "Fill every idle buffer with bytes that are NaNs."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loaded_slots[] = {
    {Py_tp_doc, "LoadedPlan(bytes, paths): a serialised plan with its artifacts, in the plan's order."},
    {Py_tp_new, loaded_new},
    {Py_tp_dealloc, loaded_dealloc},
    {Py_tp_methods, loaded_methods},
    {0, NULL},
};

static PyType_Spec loaded_spec = {"tilesmith.runtime._runtime.LoadedPlan", sizeof(loaded_plan), 0, Py_TPFLAGS_DEFAULT,
                                  loaded_slots};

/* --- the module ----------------------------------------------------------------------------------------------------
 */

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_runtime", "Launching plans from Python.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__runtime(void) {
  PyObject *module = PyModule_Create(&definition);
  PyObject *errors = PyImport_ImportModule("tilesmith.errors");
  if (module == NULL || errors == NULL) goto failed;
  argument_error = PyObject_GetAttrString(errors, "ArgumentError");
  launch_error = PyObject_GetAttrString(errors, "LaunchError");
  loaded_plan_type = (PyTypeObject *)PyType_FromSpec(&loaded_spec);
  if (argument_error == NULL || launch_error == NULL || loaded_plan_type == NULL) goto failed;
  if (PyModule_AddObjectRef(module, "LoadedPlan", (PyObject *)loaded_plan_type) < 0) goto failed;
  if (bound_types_init(module) < 0) goto failed;
  Py_DECREF(errors);
  return module;
failed:
  Py_XDECREF(errors);
  Py_XDECREF(module);
  return NULL;
}
