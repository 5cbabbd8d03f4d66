/* A plan bound for calling with the user's arguments: check, allocate the result, run. */
#include "bound.h"
#include "torch_rules.h"

#include <stddef.h>
#include <structmember.h>

PyTypeObject *packed_filter_type, *bound_type, *prepared_type;

/* --- arguments -----------------------------------------------------------------------------------------------------
 */

static void refuse(bound_plan *self, tensor_spec *spec, PyObject *object, int writable) {
  PyObject *done =
      PyObject_CallFunctionObjArgs(self->refuse, spec->record, object, writable ? Py_True : Py_False, NULL);
  if (done != NULL) PyErr_Format(argument_error, "%R cannot be read as %R", (PyObject *)Py_TYPE(object), spec->record);
  Py_XDECREF(done);
}

/* Two libraries among the arguments: runtime/arguments.py says which. */
static void refuse_mixed(tensor_spec *first, PyObject *one, tensor_spec *second, PyObject *other) {
  PyObject *words = PyImport_ImportModule("tilesmith.runtime.arguments");
  PyObject *done =
      words ? PyObject_CallMethod(words, "refuse_mixed", "OOOO", first->record, one, second->record, other) : NULL;
  if (done != NULL) PyErr_SetString(argument_error, "arguments are of two libraries; give one kind");
  Py_XDECREF(words);
  Py_XDECREF(done);
}

static int refuse_count(bound_plan *self, Py_ssize_t got, int skip) {
  PyObject *names = PyUnicode_FromString("");
  for (int i = 0; names != NULL && i < self->input_count; i++) {
    PyObject *name = i == skip ? NULL : PyObject_GetAttrString(self->inputs[i].record, "name");
    if (i == skip) continue;
    PyObject *longer =
        name ? PyUnicode_FromFormat("%U%s%S", names, PyUnicode_GetLength(names) ? ", " : "", name) : NULL;
    Py_XDECREF(name);
    replace_reference(&names, longer);
  }
  if (names != NULL)
    PyErr_Format(argument_error, "takes %d tensors (%U), got %zd", self->input_count - (skip != NO_INPUT), names, got);
  Py_XDECREF(names);
  return -1;
}

static int read_out(PyObject *const *arguments, Py_ssize_t count, PyObject *keywords, PyObject **out) {
  *out = NULL;
  for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_Size(keywords); i++) {
    PyObject *name = PyTuple_GetItem(keywords, i);
    if (PyUnicode_CompareWithASCIIString(name, "out") != 0) {
      PyErr_Format(argument_error, "keyword %R is unknown; the one that there is is out", name);
      return -1;
    }
    if (arguments[count + i] != Py_None) *out = arguments[count + i];
  }
  return 0;
}

static int check_overlap(bound_plan *self, tensor_spec *spec, PyObject *object, const char *at, PyObject *out,
                         const char *result) {
  if (at >= result + self->result.nbytes || result >= at + spec->nbytes) return 0;
  PyObject *done = PyObject_CallFunctionObjArgs(self->overlap, spec->record, object, self->result.record, out, NULL);
  Py_XDECREF(done);
  return done == NULL ? -1 : 0;
}

/* --- the call ------------------------------------------------------------------------------------------------------
 */

/* Pack the filter (unless `packed` says that it is) and run. */
static int launch(bound_plan *self, void *const *slots, packed_filter *packed) {
  loaded_plan *loaded = self->loaded;
  void *workspace, *memory = NULL;
  if (buffer_borrow(&loaded->workspaces, &workspace) < 0) return -1;
  if (packed == NULL && buffer_borrow(&loaded->packed, &memory) < 0) {
    buffer_return(&loaded->workspaces, workspace);
    return -1;
  }
  PyThreadState *thread = self->tiny ? NULL : PyEval_SaveThread();
  ts_status status = packed == NULL ? ts_plan_prepare(loaded->plan, slots, memory, workspace) : TS_OK;
  if (status == TS_OK) status = ts_plan_run(loaded->plan, slots, packed ? packed->memory : memory, workspace);
  if (thread != NULL) PyEval_RestoreThread(thread);
  buffer_return(&loaded->workspaces, workspace);
  buffer_return(&loaded->packed, memory);
  return launch_failed(status, NULL);
}

static PyObject *host_call(bound_plan *self, packed_filter *packed, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *out) {
  const int skip = packed != NULL ? self->filter : NO_INPUT;
  if (bound_check_count(self, count, skip) < 0) return NULL;
  void *slots[MAX_INPUTS + 1], *addresses[MAX_INPUTS], *result;
  PyObject *objects[MAX_INPUTS];
  tensor_kind kind = count ? tensor_kind_of(arguments[0]) : KIND_NUMPY;
  for (int i = 0, k = 0; i < self->input_count; i++) {
    tensor_spec *spec = &self->inputs[i];
    if (i == skip) {
      addresses[i] = packed->address;
      objects[i] = packed->filter;
    } else {
      objects[i] = arguments[k++];
      if (!tensor_check(spec, objects[i], 0, &addresses[i])) {
        refuse(self, spec, objects[i], 0);
        return NULL;
      }
      if (tensor_kind_of(objects[i]) != kind) {
        refuse_mixed(&self->inputs[skip == 0], objects[skip == 0], spec, objects[i]);
        return NULL;
      }
    }
    if (self->slot_of[i] != NO_INPUT) slots[self->slot_of[i]] = addresses[i];
  }
  const int given = out != NULL;
  if (given)
    Py_INCREF(out);
  else if ((out = tensor_new(&self->result, arguments[0], kind)) == NULL)
    return NULL;
  if (!tensor_check(&self->result, out, 1, &result)) {
    refuse(self, &self->result, out, 1);
    goto failed;
  }
  for (int i = 0; given && i < self->input_count; i++) {
    if ((i == self->initial || i == self->in_place) && addresses[i] == result) continue; /* updated in place */
    if (check_overlap(self, &self->inputs[i], objects[i], addresses[i], out, result) < 0) goto failed;
  }
  if (self->initial != NO_INPUT && addresses[self->initial] != result)
    tensor_copy(&self->result, result, addresses[self->initial]);
  slots[self->loaded->sizes.slots - 1] = result;
  if (launch(self, slots, packed) < 0) goto failed;
  return out;
failed:
  Py_DECREF(out);
  return NULL;
}

static PyObject *call(bound_plan *self, packed_filter *packed, PyObject *const *arguments, Py_ssize_t count,
                      PyObject *out) {
  const int written = out != NULL && tensor_is_torch(out);
  if (count && tensor_is_torch(arguments[0]) && torch_check_call(arguments, count) < 0) return NULL;
  if (written && torch_check_result(out) < 0) return NULL;
  PyObject *done = self->loaded->sizes.is_cuda ? device_call(self, packed, arguments, count, out)
                                               : host_call(self, packed, arguments, count, out);
  if (done != NULL && written && torch_note_written(out) < 0) Py_CLEAR(done);
  return done;
}

int bound_check_count(bound_plan *self, Py_ssize_t got, int skip) {
  return got == self->input_count - (skip != NO_INPUT) ? 0 : refuse_count(self, got, skip);
}

static PyObject *bound_call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *keywords) {
  PyObject *out;
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (read_out(arguments, count, keywords, &out) < 0) return NULL;
  return call((bound_plan *)self, NULL, arguments, count, out);
}

static PyObject *prepared_call(PyObject *object, PyObject *const *arguments, size_t flags, PyObject *keywords) {
  prepared_plan *self = (prepared_plan *)object;
  PyObject *out;
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (read_out(arguments, count, keywords, &out) < 0) return NULL;
  return call(self->bound, self->packed, arguments, count, out);
}

/* --- PackedFilter --------------------------------------------------------------------------------------------------
 */

static void packed_dealloc(packed_filter *self) {
  PyTypeObject *type = Py_TYPE(self);
  if (self->loaded != NULL && self->owner == NULL) buffer_return(&self->loaded->packed, self->memory);
  Py_XDECREF(self->owner);
  Py_XDECREF(self->filter);
  Py_XDECREF(self->loaded);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyMemberDef packed_members[] = {
    {"filter", T_OBJECT_EX, offsetof(packed_filter, filter), READONLY, "The filter itself."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot packed_slots[] = {
    {Py_tp_doc, "A filter as prepare has packed it."},
    {Py_tp_dealloc, packed_dealloc},
    {Py_tp_members, packed_members},
    {0, NULL},
};

static PyType_Spec packed_spec = {"tilesmith.runtime._runtime.PackedFilter", sizeof(packed_filter), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, packed_slots};

/* Pack `filter` into `packed`. */
static int pack_into(bound_plan *self, packed_filter *packed, PyObject *filter) {
  tensor_spec *spec = &self->inputs[self->filter];
  void *slots[MAX_INPUTS + 1] = {NULL}, *workspace, *address;
  if (!tensor_check(spec, filter, 0, &address)) {
    refuse(self, spec, filter, 0);
    return -1;
  }
  if (buffer_borrow(&self->loaded->workspaces, &workspace) < 0) return -1;
  slots[self->slot_of[self->filter]] = address;
  PyThreadState *thread = PyEval_SaveThread();
  ts_status status = ts_plan_prepare(self->loaded->plan, slots, packed->memory, workspace);
  PyEval_RestoreThread(thread);
  buffer_return(&self->loaded->workspaces, workspace);
  packed->address = address;
  replace_reference(&packed->filter, Py_NewRef(filter));
  return launch_failed(status, NULL);
}

static PyObject *bound_pack(bound_plan *self, PyObject *const *arguments, Py_ssize_t count) {
  if (self->filter == NO_INPUT) {
    PyErr_SetString(argument_error, "this problem has no filter to prepare");
    return NULL;
  }
  if (count < 1 || count > 2) {
    PyErr_Format(argument_error, "pack takes the filter and, at most, where to pack it; got %zd arguments", count);
    return NULL;
  }
  if (tensor_is_torch(arguments[0]) && torch_check_call(arguments, 1) < 0) return NULL;
  if (self->loaded->sizes.is_cuda)
    return PyObject_CallMethod(self->device_calls, "pack", "OO", arguments[0], count == 2 ? arguments[1] : Py_None);
  if (count == 2 && arguments[1] != Py_None) {
    packed_filter *again = (packed_filter *)arguments[1];
    if (!Py_IS_TYPE(arguments[1], packed_filter_type) || again->loaded != self->loaded) {
      PyErr_SetString(argument_error, "the second argument is no filter that this plan has packed");
      return NULL;
    }
    return pack_into(self, again, arguments[0]) < 0 ? NULL : Py_NewRef(again);
  }
  packed_filter *packed = (packed_filter *)PyType_GenericAlloc(packed_filter_type, 0);
  if (packed == NULL) return NULL;
  packed->loaded = (loaded_plan *)Py_NewRef(self->loaded);
  if (buffer_borrow(&self->loaded->packed, &packed->memory) < 0 || pack_into(self, packed, arguments[0]) < 0) {
    Py_DECREF(packed);
    return NULL;
  }
  return (PyObject *)packed;
}

static PyObject *bound_prepare(bound_plan *self, PyObject *const *arguments, Py_ssize_t count) {
  if (count != 1) {
    PyErr_Format(argument_error, "prepare takes the filter alone, got %zd arguments", count);
    return NULL;
  }
  PyObject *packed = bound_pack(self, arguments, 1);
  if (packed == NULL) return NULL;
  prepared_plan *prepared = (prepared_plan *)PyType_GenericAlloc(prepared_type, 0);
  if (prepared == NULL) {
    Py_DECREF(packed);
    return NULL;
  }
  prepared->bound = (bound_plan *)Py_NewRef(self);
  prepared->packed = (packed_filter *)packed;
  prepared->vectorcall = prepared_call;
  return (PyObject *)prepared;
}

/* run(inputs, out, packed or None): for callers that have a sequence. The filter is among `inputs` all the same. */
static PyObject *bound_run(bound_plan *self, PyObject *arguments) {
  PyObject *inputs, *out, *packed = Py_None, *others[MAX_INPUTS];
  if (!PyArg_ParseTuple(arguments, "O!O|O", &PyTuple_Type, &inputs, &out, &packed)) return NULL;
  Py_ssize_t count = PyTuple_Size(inputs), kept = 0;
  const int skip = packed == Py_None ? NO_INPUT : self->filter;
  if (packed != Py_None && (!Py_IS_TYPE(packed, packed_filter_type) ||
                            ((packed_filter *)packed)->loaded != self->loaded || self->filter == NO_INPUT)) {
    PyErr_SetString(argument_error, "packed is no filter that this plan has packed");
    return NULL;
  }
  if (count != self->input_count) {
    refuse_count(self, count, NO_INPUT);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < count; i++)
    if (i != skip) others[kept++] = PyTuple_GetItem(inputs, i);
  return call(self, packed == Py_None ? NULL : (packed_filter *)packed, others, kept, out == Py_None ? NULL : out);
}

/* Whether the elements of both lie alike from their first one on. */
static int same_places(const tensor_spec *one, const tensor_spec *other) {
  if (one->axes != other->axes || one->itemsize != other->itemsize) return 0;
  for (int i = 0; i < one->axes; i++) {
    if (one->sizes[i] != other->sizes[i]) return 0;
    if (one->sizes[i] > 1 && one->steps[i] != other->steps[i]) return 0;
  }
  return 1;
}

/* --- Bound ---------------------------------------------------------------------------------------------------------
 */

static PyObject *bound_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)keywords;
  PyObject *loaded, *inputs, *slot_of, *result, *refuse_function, *overlap_function, *device_calls = NULL;
  int filter, initial;
  if (tensors_import() < 0) return NULL;
  if (!PyArg_ParseTuple(arguments, "O!O!O!OiiOO|O", loaded_plan_type, &loaded, &PyTuple_Type, &inputs, &PyTuple_Type,
                        &slot_of, &result, &filter, &initial, &refuse_function, &overlap_function, &device_calls))
    return NULL;
  const Py_ssize_t count = PyTuple_Size(inputs);
  const int slots = (int)((loaded_plan *)loaded)->sizes.slots;
  uint32_t filled = 0;
  if (count < 1 || count > MAX_INPUTS || slots > MAX_INPUTS + 1 || PyTuple_Size(slot_of) != count || filter >= count ||
      initial >= count) {
    PyErr_SetString(PyExc_ValueError, "inputs, slot_of, filter and initial do not fit together");
    return NULL;
  }
  bound_plan *self = (bound_plan *)PyType_GenericAlloc(type, 0);
  if (self == NULL) return NULL;
  self->loaded = (loaded_plan *)Py_NewRef(loaded);
  self->refuse = Py_NewRef(refuse_function);
  self->overlap = Py_NewRef(overlap_function);
  self->device_calls = Py_NewRef(device_calls ? device_calls : Py_None);
  self->filter = filter;
  self->initial = initial;
  self->in_place = NO_INPUT;
  self->input_count = (int)count;
  self->vectorcall = bound_call;
  int64_t bytes = self->loaded->sizes.workspace_bytes + self->loaded->sizes.packed_bytes;
  for (int i = 0; i <= count; i++) {
    tensor_spec *spec = i < count ? &self->inputs[i] : &self->result;
    if (spec_init(spec, i < count ? PyTuple_GetItem(inputs, i) : result) < 0) goto failed;
    long slot = i < count ? PyLong_AsLong(PyTuple_GetItem(slot_of, i)) : slots - 1;
    if (slot == -1 && PyErr_Occurred()) goto failed;
    bytes += spec->nbytes;
    if (i < count) self->slot_of[i] = (int)slot;
    if (i == initial && slot == NO_INPUT) continue;
    /* The runtime reads a slot's bytes as the plan says, so no argument may be smaller. */
    ts_slot facts;
    if (slot < 0 || slot >= slots || ts_plan_get_slot(self->loaded->plan, (uint32_t)slot, &facts) != TS_OK ||
        facts.nbytes != spec->nbytes || (filled & 1U << slot)) {
      PyErr_Format(PyExc_ValueError, "argument %d does not fit slot %ld of the plan", i, slot);
      goto failed;
    }
    filled |= 1U << slot;
    if (facts.in_place) self->in_place = i;
  }
  /* Of the residual each element must lie where the result's does, and no c may be copied there. */
  if (self->in_place != NO_INPUT && (initial != NO_INPUT || !same_places(&self->inputs[self->in_place], &self->result)))
    self->in_place = NO_INPUT;
  if (filled != (1U << slots) - 1) {
    PyErr_SetString(PyExc_ValueError, "a slot of the plan has no argument");
    goto failed;
  }
  self->tiny = bytes - self->loaded->sizes.workspace_bytes <= TINY_BYTES;
  return (PyObject *)self;
failed:
  Py_DECREF(self);
  return NULL;
}

static void bound_dealloc(bound_plan *self) {
  PyTypeObject *type = Py_TYPE(self);
  for (int i = 0; i < MAX_INPUTS; i++)
    spec_clear(&self->inputs[i]);
  spec_clear(&self->result);
  Py_XDECREF(self->loaded);
  Py_XDECREF(self->refuse);
  Py_XDECREF(self->overlap);
  Py_XDECREF(self->device_calls);
  Py_XDECREF(self->origin);
  PyObject_Free(self);
  Py_DECREF(type);
}

static void prepared_dealloc(prepared_plan *self) {
  PyTypeObject *type = Py_TYPE(self);
  Py_XDECREF(self->bound);
  Py_XDECREF(self->packed);
  PyObject_Free(self);
  Py_DECREF(type);
}

/* For callers that have asked themselves whether anything watches. */
static PyObject *bound_unwatched(bound_plan *self, PyObject *const *arguments, Py_ssize_t count) {
  return self->loaded->sizes.is_cuda ? device_call(self, NULL, arguments, count, NULL)
                                     : host_call(self, NULL, arguments, count, NULL);
}

static PyMethodDef bound_methods[] = {
    {"unwatched", (PyCFunction)(void (*)(void))bound_unwatched, METH_FASTCALL,
     "unwatched(*tensors): as a call, where the caller knows that no trace, mode or transform watches the thread."},
    {"prepare", (PyCFunction)(void (*)(void))bound_prepare, METH_FASTCALL,
     "prepare(filter): a callable that takes the remaining tensors; the filter is packed now, and must not change."},
    {"pack", (PyCFunction)(void (*)(void))bound_pack, METH_FASTCALL,
     "pack(filter, packed=None): the packed filter for run; written into `packed` when one is given."},
    {"run", (PyCFunction)bound_run, METH_VARARGS, "run(inputs, out, packed=None): as a call, with a tuple of tensors."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef bound_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(bound_plan, vectorcall), READONLY, NULL},
    {"origin", T_OBJECT, offsetof(bound_plan, origin), 0, "What its maker keeps here to make it again, or None."},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef prepared_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(prepared_plan, vectorcall), READONLY, NULL},
    {"bound", T_OBJECT_EX, offsetof(prepared_plan, bound), READONLY, "What this is a prepared form of."},
    {"packed", T_OBJECT_EX, offsetof(prepared_plan, packed), READONLY, "The packed filter."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *bound_in_place(bound_plan *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(self->in_place != NO_INPUT);
}

static PyObject *prepared_in_place(prepared_plan *self, void *unused) {
  return bound_in_place(self->bound, unused);
}

#define IN_PLACE "Whether `out` may be the residual itself."
static PyGetSetDef bound_values[] = {{"in_place", (getter)bound_in_place, NULL, IN_PLACE, NULL}, {0}};
static PyGetSetDef prepared_values[] = {{"in_place", (getter)prepared_in_place, NULL, IN_PLACE, NULL}, {0}};

static PyType_Slot bound_slots[] = {
    {Py_tp_doc, "Bound(loaded, inputs, slot_of, result, filter, initial, refuse, overlap): a plan as a function of "
                "tensors. Made by Executable.bind."},
    {Py_tp_new, bound_new},
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, bound_methods},
    {Py_tp_members, bound_members},
    {Py_tp_getset, bound_values},
    {0, NULL},
};

static PyType_Slot prepared_slots[] = {
    {Py_tp_doc, "A bound plan whose filter is packed: a function of the remaining tensors."},
    {Py_tp_dealloc, prepared_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, prepared_members},
    {Py_tp_getset, prepared_values},
    {0, NULL},
};

static PyType_Spec bound_spec = {"tilesmith.runtime._runtime.Bound", sizeof(bound_plan), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, bound_slots};
static PyType_Spec prepared_spec = {"tilesmith.runtime._runtime.Prepared", sizeof(prepared_plan), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                    prepared_slots};

int bound_types_init(PyObject *module) {
  packed_filter_type = (PyTypeObject *)PyType_FromSpec(&packed_spec);
  bound_type = (PyTypeObject *)PyType_FromSpec(&bound_spec);
  prepared_type = (PyTypeObject *)PyType_FromSpec(&prepared_spec);
  if (packed_filter_type == NULL || bound_type == NULL || prepared_type == NULL) return -1;
  if (PyModule_AddObjectRef(module, "PackedFilter", (PyObject *)packed_filter_type) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Prepared", (PyObject *)prepared_type) < 0) return -1;
  return PyModule_AddObjectRef(module, "Bound", (PyObject *)bound_type);
}
