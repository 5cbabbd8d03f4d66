/* The extension module: plans loaded from bytes, with buffers for their calls. */
#include "kept.h"
#include "loaded.h"
#include "torch_rules.h"
#include "ts_pool.h"

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
  PyObject *artifacts;
  if (!PyArg_ParseTuple(arguments, "y*O!", &bytes, &PyTuple_Type, &artifacts)) return NULL;
  loaded_plan *self = (loaded_plan *)PyType_GenericAlloc(type, 0);
  ts_error error = {""};
  if (self == NULL) goto failed;
  if (launch_failed(ts_plan_open(bytes.buf, (size_t)bytes.len, &self->plan, &error), &error)) goto failed;
  self->sizes = ts_plan_get_sizes(self->plan);
  self->workspaces.nbytes = (size_t)self->sizes.workspace_bytes;
  self->packed.nbytes = (size_t)self->sizes.packed_bytes;
  for (Py_ssize_t i = 0; i < PyTuple_Size(artifacts); i++) {
    Py_buffer image;
    PyObject *path;
    if (!PyArg_ParseTuple(PyTuple_GetItem(artifacts, i), "y*O&", &image, PyUnicode_FSConverter, &path)) goto failed;
    ts_status status =
        ts_plan_bind_bytes(self->plan, (uint32_t)i, image.buf, (size_t)image.len, PyBytes_AsString(path), &error);
    Py_DECREF(path);
    PyBuffer_Release(&image);
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
  PyObject_Free(self);
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

/* The addresses, one a slot: to be freed by PyMem_Free. A plan that no signature describes may have any number. */
static void **read_slots(loaded_plan *self, PyObject *addresses) {
  if (PyTuple_Size(addresses) != (Py_ssize_t)self->sizes.slots) {
    PyErr_Format(PyExc_ValueError, "the plan has %u slots", self->sizes.slots);
    return NULL;
  }
  void **slots = PyMem_Calloc(self->sizes.slots + 1, sizeof *slots);
  if (slots == NULL) return (void **)PyErr_NoMemory();
  for (uint32_t i = 0; i < self->sizes.slots; i++) {
    slots[i] = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
    if (PyErr_Occurred()) {
      PyMem_Free(slots);
      return NULL;
    }
  }
  return slots;
}

/* prepare_on(device, stream, filter, packed, workspace), run_on(device, stream, slots, packed, workspace): addresses.
 */
static PyObject *loaded_on(loaded_plan *self, PyObject *arguments, int preparing) {
  int device;
  unsigned long long stream, packed, workspace;
  PyObject *addresses;
  if (!PyArg_ParseTuple(arguments, "iKO!KK", &device, &stream, &PyTuple_Type, &addresses, &packed, &workspace))
    return NULL;
  void **slots = read_slots(self, addresses);
  if (slots == NULL) return NULL;
  ts_error error = {""};
  ts_status status;
  PyThreadState *thread = PyEval_SaveThread();
  void *pack = (void *)(uintptr_t)packed, *work = (void *)(uintptr_t)workspace, *queue = (void *)(uintptr_t)stream;
  if (preparing)
    status = ts_plan_prepare_on(self->plan, device, queue, slots, pack, work, &error);
  else
    status = ts_plan_run_on(self->plan, device, queue, slots, pack, work, &error);
  PyEval_RestoreThread(thread);
  PyMem_Free(slots);
  if (launch_failed(status, &error)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *loaded_prepare_on(loaded_plan *self, PyObject *arguments) {
  return loaded_on(self, arguments, 1);
}

static PyObject *loaded_run_on(loaded_plan *self, PyObject *arguments) {
  return loaded_on(self, arguments, 0);
}

static PyObject *loaded_load_on(loaded_plan *self, PyObject *device) {
  ts_error error = {""};
  int ordinal = (int)PyLong_AsLong(device);
  if (PyErr_Occurred()) return NULL;
  PyThreadState *thread = PyEval_SaveThread();
  ts_status status = ts_plan_load_on(self->plan, ordinal, &error);
  PyEval_RestoreThread(thread);
  if (launch_failed(status, &error)) return NULL;
  Py_RETURN_NONE;
}

/* run_at(preparing, slots, packed, workspace, pieces, fill): a CPU plan's part on addresses, for checks; `pieces` 0 is
 * the pool. */
static PyObject *loaded_run_at(loaded_plan *self, PyObject *arguments) {
  int preparing, fill;
  unsigned int pieces;
  unsigned long long packed, workspace;
  PyObject *addresses;
  if (!PyArg_ParseTuple(arguments, "pO!KKIi", &preparing, &PyTuple_Type, &addresses, &packed, &workspace, &pieces,
                        &fill))
    return NULL;
  void **slots = read_slots(self, addresses);
  if (slots == NULL) return NULL;
  ts_status status;
  PyThreadState *thread = PyEval_SaveThread();
  void *pack = (void *)(uintptr_t)packed, *work = (void *)(uintptr_t)workspace;
  if (pieces)
    status = ts_plan_run_in_pieces(self->plan, preparing ? TS_PREPARE : TS_RUN, slots, pack, work, pieces, fill);
  else if (preparing)
    status = ts_plan_prepare(self->plan, slots, pack, work);
  else
    status = ts_plan_run(self->plan, slots, pack, work);
  PyEval_RestoreThread(thread);
  PyMem_Free(slots);
  if (launch_failed(status, NULL)) return NULL;
  Py_RETURN_NONE;
}

/* pack_of(filter, its address, owner, address): the packed filter in device memory that `owner` keeps alive. */
static PyObject *loaded_pack_of(loaded_plan *self, PyObject *arguments) {
  PyObject *filter, *owner;
  unsigned long long filter_address, address;
  if (!PyArg_ParseTuple(arguments, "OKOK", &filter, &filter_address, &owner, &address)) return NULL;
  packed_filter *packed = (packed_filter *)PyType_GenericAlloc(packed_filter_type, 0);
  if (packed == NULL) return NULL;
  packed->loaded = (loaded_plan *)Py_NewRef(self);
  packed->filter = Py_NewRef(filter);
  packed->owner = Py_NewRef(owner);
  packed->address = (void *)(uintptr_t)filter_address;
  packed->memory = (void *)(uintptr_t)address;
  return (PyObject *)packed;
}

static PyMethodDef loaded_methods[] = {
    {"prepare_on", (PyCFunction)loaded_prepare_on, METH_VARARGS,
     "prepare_on(device, stream, slots, packed, workspace): run a CUDA plan's prepare part; all are addresses."},
    {"run_on", (PyCFunction)loaded_run_on, METH_VARARGS,
     "run_on(device, stream, slots, packed, workspace): run a CUDA plan; all are addresses."},
    {"run_at", (PyCFunction)loaded_run_at, METH_VARARGS,
     "run_at(preparing, slots, packed, workspace, pieces, fill): run a part of a CPU plan; all are addresses. On the\n"
     "pool, or with pieces > 0 on the calling thread alone, in that many pieces, the last first."},
    {"load_on", (PyCFunction)loaded_load_on, METH_O, "load_on(device): load a CUDA plan's kernels now."},
    {"pack_of", (PyCFunction)loaded_pack_of, METH_VARARGS, NULL},
    {"poison", (PyCFunction)loaded_poison, METH_NOARGS, "Fill every idle buffer with bytes that are NaNs."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loaded_slots[] = {
    {Py_tp_doc,
     "LoadedPlan(bytes, artifacts): a serialised plan with its artifacts in its order, each (checked bytes, path)."},
    {Py_tp_new, loaded_new},
    {Py_tp_dealloc, loaded_dealloc},
    {Py_tp_methods, loaded_methods},
    {0, NULL},
};

static PyType_Spec loaded_spec = {"tilesmith.runtime._runtime.LoadedPlan", sizeof(loaded_plan), 0, Py_TPFLAGS_DEFAULT,
                                  loaded_slots};

/* --- the module ----------------------------------------------------------------------------------------------------
 */

static PyObject *module_cuda_open(PyObject *module, PyObject *name) {
  (void)module;
  ts_error error = {""};
  const char *library = name == Py_None ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
  if (PyErr_Occurred() || launch_failed(ts_cuda_open(library, &error), &error)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *lend_threads(PyObject *module, PyObject *address) {
  (void)module;
  void *crew = PyLong_AsVoidPtr(address);
  if (crew == NULL && PyErr_Occurred()) return NULL;
  ts_pool_lend((ts_crew)(uintptr_t)crew);
  Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"lend_threads", lend_threads, METH_O,
     "lend_threads(address of GOMP_parallel, or 0): whose threads launches use from now on; 0: threads of their own."},
    {"watch_faults", watch_faults, METH_O,
     "watch_faults(buffer of 8 bytes): the address of an access that ends the process goes there."},
    {"torch_watches", torch_watches, METH_NOARGS,
     "Whether a trace, a mode, a transform or a tangent of PyTorch may watch this thread."},
    {"torch_settings", torch_settings, METH_NOARGS,
     "Whether autocast, a profiler or deterministic algorithms of PyTorch are switched on."},
    {"run_kept", (PyCFunction)(void (*)(void))run_kept, METH_FASTCALL,
     "run_kept(types, by_filter, with_gradients, is_recording, options, x, w[, b]): what a kept call returns, or a "
     "kind."},
    {"is_public_key", is_public_key, METH_O, "is_public_key(bytes): whether they are a public key of ed25519."},
    {"unlzma", unlzma, METH_VARARGS,
     "unlzma(stored, size): the `size` bytes that a package stores as LZMA; None for bytes that are no such stream."},
    {"is_signature", is_signature, METH_VARARGS,
     "is_signature(key, signature, message): whether ed25519 says so; all are bytes."},
    {"cuda_open", module_cuda_open, METH_O, "cuda_open(library or None): open the CUDA driver; LaunchError without."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_runtime", "Launching plans from Python.", -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__runtime(void) {
  PyObject *module = PyModule_Create(&definition);
  PyObject *errors = PyImport_ImportModule("tilesmith.errors");
  if (module == NULL || errors == NULL) goto failed;
  argument_error = PyObject_GetAttrString(errors, "ArgumentError");
  launch_error = PyObject_GetAttrString(errors, "LaunchError");
  loaded_plan_type = (PyTypeObject *)PyType_FromSpec(&loaded_spec);
  if (argument_error == NULL || launch_error == NULL || loaded_plan_type == NULL) goto failed;
  if (PyModule_AddObjectRef(module, "LoadedPlan", (PyObject *)loaded_plan_type) < 0) goto failed;
  if (bound_types_init(module) < 0 || package_type_init(module, errors) < 0) goto failed;
  Py_DECREF(errors);
  return module;
failed:
  Py_XDECREF(errors);
  Py_XDECREF(module);
  return NULL;
}
