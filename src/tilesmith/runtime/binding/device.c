/* Calls of CUDA plans on PyTorch tensors, as a table of C functions gives them; all others go to DeviceCalls in Python.
 */
#include "bound.h"
#include "dlpack_exchange.h"

/* Everything a call holds. */
typedef struct device_arguments {
  void *slots[MAX_INPUTS + 1];
  void *addresses[MAX_INPUTS];
  const dl_exchange *exchange;
  int device;
} device_arguments;

static int read_tensor(device_arguments *now, tensor_spec *spec, PyObject *object, void **address) {
  int device;
  if (!tensor_check_device(spec, object, now->exchange, address, &device)) return 0;
  if (now->device == -1) now->device = device;
  return device == now->device;
}

/* 1 if every argument is a tensor that can be read as it is. */
static int read_arguments(bound_plan *self, packed_filter *packed, PyObject *const *arguments, device_arguments *now) {
  const int skip = packed != NULL ? self->filter : NO_INPUT;
  for (int i = 0, k = 0; i < self->input_count; i++) {
    if (i == skip)
      now->addresses[i] = packed->address;
    else if (!read_tensor(now, &self->inputs[i], arguments[k++], &now->addresses[i]))
      return 0;
    now->slots[self->slot_of[i]] = now->addresses[i];
  }
  return 1;
}

static int overlaps(bound_plan *self, const device_arguments *now, const char *result) {
  for (int i = 0; i < self->input_count; i++) {
    const char *at = now->addresses[i];
    if (at < result + self->result.nbytes && result < at + self->inputs[i].nbytes) return 1;
  }
  return 0;
}

static int scratch(PyObject *like, int64_t nbytes, PyObject **owner, void **address) {
  *owner = NULL;
  *address = NULL;
  if (nbytes == 0) return 0;
  *owner = tensor_new_bytes(like, nbytes);
  if (*owner == NULL) return -1;
  PyObject *pointer = PyObject_CallMethod(*owner, "data_ptr", NULL);
  *address = pointer != NULL ? PyLong_AsVoidPtr(pointer) : NULL;
  Py_XDECREF(pointer);
  return *address == NULL ? -1 : 0;
}

static int run(bound_plan *self, packed_filter *packed, PyObject *like, device_arguments *now) {
  const ts_plan_sizes *sizes = &self->loaded->sizes;
  PyObject *workspace = NULL, *packing = NULL;
  void *work = NULL, *pack = packed != NULL ? packed->memory : NULL, *stream = NULL;
  int failed = scratch(like, sizes->workspace_bytes, &workspace, &work);
  if (!failed && packed == NULL) failed = scratch(like, sizes->packed_bytes, &packing, &pack);
  if (!failed && now->exchange->current_stream(DL_CUDA, now->device, &stream) != 0) {
    if (!PyErr_Occurred()) PyErr_SetString(launch_error, "the tensors' library names no current stream");
    failed = 1;
  }
  if (!failed) {
    ts_error error = {""};
    ts_status status = TS_OK;
    PyThreadState *thread = PyEval_SaveThread();
    if (packed == NULL)
      status = ts_plan_prepare_on(self->loaded->plan, now->device, stream, now->slots, pack, work, &error);
    if (status == TS_OK)
      status = ts_plan_run_on(self->loaded->plan, now->device, stream, now->slots, pack, work, &error);
    PyEval_RestoreThread(thread);
    failed = launch_failed(status, &error);
  }
  /* The allocator gives memory of this stream to what comes later on it, never to what runs now. */
  Py_XDECREF(workspace);
  Py_XDECREF(packing);
  return failed ? -1 : 0;
}

static PyObject *leave(bound_plan *self, packed_filter *packed, PyObject *const *arguments, Py_ssize_t count,
                       PyObject *out) {
  PyObject *tensors = PyTuple_New(count);
  for (Py_ssize_t i = 0; tensors != NULL && i < count; i++)
    PyTuple_SetItem(tensors, i, Py_NewRef(arguments[i]));
  if (tensors == NULL) return NULL;
  PyObject *filter = packed ? packed->filter : Py_None;
  PyObject *done = PyObject_CallMethod(self->device_calls, "run", "OOKKOO", packed ? (PyObject *)packed : Py_None,
                                       filter, (unsigned long long)(uintptr_t)(packed ? packed->address : NULL),
                                       (unsigned long long)(uintptr_t)(packed ? packed->memory : NULL), tensors,
                                       out ? out : Py_None);
  Py_DECREF(tensors);
  return done;
}

PyObject *device_call(bound_plan *self, packed_filter *packed, PyObject *const *arguments, Py_ssize_t count,
                      PyObject *out) {
  if (bound_check_count(self, count, packed != NULL ? self->filter : NO_INPUT) < 0) return NULL;
  device_arguments now = {{NULL}, {NULL}, NULL, -1};
  void *result;
  if (count == 0 || self->initial != NO_INPUT) return leave(self, packed, arguments, count, out);
  now.exchange = tensor_exchange(arguments[0]);
  if (now.exchange == NULL || now.exchange->current_stream == NULL) return leave(self, packed, arguments, count, out);
  if (!read_arguments(self, packed, arguments, &now)) return leave(self, packed, arguments, count, out);
  const int given = out != NULL;
  PyObject *made = given                            ? Py_NewRef(out)
                   : ts_cuda_is_current(now.device) ? tensor_new_on_device(&self->result, arguments[0])
                                                    : tensor_new(&self->result, arguments[0], KIND_DLPACK);
  if (made == NULL) return NULL;
  if (!read_tensor(&now, &self->result, made, &result) || (given && overlaps(self, &now, result))) {
    Py_DECREF(made);
    return leave(self, packed, arguments, count, out);
  }
  now.slots[self->loaded->sizes.slots - 1] = result;
  if (run(self, packed, arguments[0], &now) < 0) Py_CLEAR(made);
  return made;
}
