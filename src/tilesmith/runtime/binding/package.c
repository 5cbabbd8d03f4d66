/* Kernel packages for Python: a file that is mapped, or an object with a buffer. */
#include "loaded.h"

#include "ts_ed25519.h"
#include "ts_lzma.h"
#include "ts_package.h"

#include <string.h>

static PyObject *package_error;

typedef struct package_object {
  PyObject_HEAD ts_package *package;
  Py_buffer bytes; /* of the object that holds the package; its `obj` is NULL for a file */
} package_object;

static int package_failed(ts_status status, const ts_error *error) {
  if (status == TS_OK) return 0;
  if (status == TS_NO_MEMORY) {
    PyErr_SetString(PyExc_MemoryError, error->text);
    return -1;
  }
  PyObject *kind = status == TS_BAD_ARGUMENT ? PyExc_IndexError : package_error;
  PyObject *message = PyUnicode_DecodeUTF8(error->text, (Py_ssize_t)strlen(error->text), "replace");
  if (message != NULL) PyErr_SetObject(kind, message);
  Py_XDECREF(message);
  return -1;
}

static PyObject *package_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)keywords;
  PyObject *source, *path = NULL;
  if (!PyArg_ParseTuple(arguments, "O", &source)) return NULL;
  package_object *self = (package_object *)PyType_GenericAlloc(type, 0);
  if (self == NULL) return NULL;
  ts_error error = {""};
  ts_status status;
  if (PyObject_CheckBuffer(source)) {
    if (PyObject_GetBuffer(source, &self->bytes, PyBUF_SIMPLE) < 0) goto failed;
    if (!self->bytes.readonly) {
      PyErr_SetString(PyExc_TypeError, "a package is a path, or bytes that cannot change");
      goto failed;
    }
    status = ts_package_open(self->bytes.buf, (size_t)self->bytes.len, &self->package, &error);
  } else {
    if (!PyUnicode_FSConverter(source, &path)) goto failed;
    PyThreadState *thread = PyEval_SaveThread();
    status = ts_package_open_file(PyBytes_AsString(path), &self->package, &error);
    PyEval_RestoreThread(thread);
    Py_DECREF(path);
  }
  if (package_failed(status, &error)) goto failed;
  return (PyObject *)self;
failed:
  Py_DECREF(self);
  return NULL;
}

static void package_dealloc(package_object *self) {
  PyTypeObject *type = Py_TYPE(self);
  ts_package_close(self->package);
  if (self->bytes.obj != NULL) PyBuffer_Release(&self->bytes);
  PyObject_Free(self);
  Py_DECREF(type);
}

static Py_ssize_t package_length(package_object *self) {
  return (Py_ssize_t)ts_package_get_facts(self->package)->entries;
}

static PyObject *package_facts(package_object *self, PyObject *unused) {
  (void)unused;
  const ts_package_facts *facts = ts_package_get_facts(self->package);
  return Py_BuildValue("ssssKKy#y#y#", facts->name, facts->target, facts->maker, facts->generator,
                       (unsigned long long)facts->counter, (unsigned long long)facts->date, facts->digest,
                       (Py_ssize_t)TS_PACKAGE_DIGEST, facts->public_key, (Py_ssize_t)32, facts->signature,
                       (Py_ssize_t)64);
}

/* 0, or -1 with IndexError set. */
static int read_index(package_object *self, PyObject *object, uint32_t *index) {
  const Py_ssize_t value = PyNumber_AsSsize_t(object, PyExc_IndexError);
  if (value == -1 && PyErr_Occurred()) return -1;
  if (value < 0 || value >= package_length(self)) {
    PyErr_Format(PyExc_IndexError, "package has no entry %zd: it has %zd", value, package_length(self));
    return -1;
  }
  *index = (uint32_t)value;
  return 0;
}

static PyObject *package_find(package_object *self, PyObject *const *arguments, Py_ssize_t count) {
  if (count < 2 || count > 3) {
    PyErr_Format(PyExc_TypeError, "find(kind, name, rank=0) takes 2 or 3 arguments, got %zd", count);
    return NULL;
  }
  Py_ssize_t length;
  const long kind = PyLong_AsLong(arguments[0]);
  const char *name = PyErr_Occurred() ? NULL : PyUnicode_AsUTF8AndSize(arguments[1], &length);
  const unsigned long rank = name != NULL && count == 3 ? PyLong_AsUnsignedLong(arguments[2]) : 0;
  if (PyErr_Occurred()) return NULL;
  if (kind < TS_ENTRY_PLAN || kind > TS_ENTRY_PERF || rank > UINT32_MAX) Py_RETURN_NONE;
  uint32_t index;
  ts_error error = {""};
  ts_status status =
      ts_package_find(self->package, (ts_entry_kind)kind, name, (size_t)length, (uint32_t)rank, &index, &error);
  if (status == TS_NOT_FOUND) Py_RETURN_NONE;
  if (package_failed(status, &error)) return NULL;
  return PyLong_FromUnsignedLong(index);
}

static PyObject *package_entry(package_object *self, PyObject *object) {
  uint32_t index;
  ts_entry e;
  ts_error error = {""};
  if (read_index(self, object, &index) < 0) return NULL;
  if (package_failed(ts_package_entry(self->package, index, &e, &error), &error)) return NULL;
  return Py_BuildValue("is#IIdiKKy#y#", (int)e.kind, e.name, (Py_ssize_t)e.name_bytes, e.rank, e.revision, e.time_us,
                       e.form, (unsigned long long)e.stored_bytes, (unsigned long long)e.size, e.digest,
                       (Py_ssize_t)TS_PACKAGE_DIGEST, e.stored_digest, (Py_ssize_t)TS_PACKAGE_DIGEST);
}

static PyObject *read_bytes(package_object *self, PyObject *object, int stored) {
  uint32_t index;
  ts_entry entry;
  ts_error error = {""};
  if (read_index(self, object, &index) < 0) return NULL;
  if (package_failed(ts_package_entry(self->package, index, &entry, &error), &error)) return NULL;
  const size_t size = (size_t)(stored ? entry.stored_bytes : entry.size);
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
  if (bytes == NULL) return NULL;
  char *memory = PyBytes_AsString(bytes);
  PyThreadState *thread = PyEval_SaveThread();
  ts_status status = stored ? ts_package_read_stored(self->package, index, memory, size, &error)
                            : ts_package_read(self->package, index, memory, size, &error);
  PyEval_RestoreThread(thread);
  if (package_failed(status, &error)) Py_CLEAR(bytes);
  return bytes;
}

static PyObject *package_read(package_object *self, PyObject *index) {
  return read_bytes(self, index, 0);
}

static PyObject *package_read_stored(package_object *self, PyObject *index) {
  return read_bytes(self, index, 1);
}

static PyObject *package_check_signature(package_object *self, PyObject *unused) {
  (void)unused;
  ts_error error = {""};
  PyThreadState *thread = PyEval_SaveThread();
  ts_status status = ts_package_check_signature(self->package, NULL, &error);
  PyEval_RestoreThread(thread);
  if (status == TS_NOT_FOUND) Py_RETURN_FALSE;
  if (package_failed(status, &error)) return NULL;
  Py_RETURN_TRUE;
}

PyObject *is_public_key(PyObject *module, PyObject *key) {
  (void)module;
  if (!PyBytes_Check(key) || PyBytes_Size(key) != 32) Py_RETURN_FALSE;
  return PyBool_FromLong(ts_ed25519_is_key((const uint8_t *)PyBytes_AsString(key)));
}

PyObject *is_signature(PyObject *module, PyObject *arguments) {
  (void)module;
  const char *key, *signature, *message;
  Py_ssize_t key_bytes, signature_bytes, size;
  if (!PyArg_ParseTuple(arguments, "y#y#y#", &key, &key_bytes, &signature, &signature_bytes, &message, &size))
    return NULL;
  if (key_bytes != 32 || signature_bytes != 64) Py_RETURN_FALSE;
  return PyBool_FromLong(ts_ed25519_verify((const uint8_t *)key, (const uint8_t *)signature, message, (size_t)size));
}

PyObject *unlzma(PyObject *module, PyObject *arguments) {
  (void)module;
  const char *stored;
  Py_ssize_t stored_bytes, size;
  if (!PyArg_ParseTuple(arguments, "y#n", &stored, &stored_bytes, &size)) return NULL;
  PyObject *content = PyBytes_FromStringAndSize(NULL, size);
  if (content == NULL || ts_unlzma(stored, (size_t)stored_bytes, PyBytes_AsString(content), (size_t)size))
    return content;
  Py_DECREF(content);
  Py_RETURN_NONE;
}

static PyObject *package_verify(package_object *self, PyObject *unused) {
  (void)unused;
  ts_error error = {""};
  PyThreadState *thread = PyEval_SaveThread();
  ts_status status = ts_package_verify(self->package, &error);
  PyEval_RestoreThread(thread);
  if (package_failed(status, &error)) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef package_methods[] = {
    {"facts", (PyCFunction)package_facts, METH_NOARGS,
     "facts(): name, target, maker, generator, counter, date, digest, public key, signature."},
    {"find", (PyCFunction)(void (*)(void))package_find, METH_FASTCALL,
     "find(kind, name, rank=0): the index of an entry, or None."},
    {"entry", (PyCFunction)package_entry, METH_O,
     "entry(index): kind, name, rank, revision, time_us, form, stored bytes, size, digest, stored digest."},
    {"read", (PyCFunction)package_read, METH_O, "read(index): the content of an entry, compared with its digest."},
    {"read_stored", (PyCFunction)package_read_stored, METH_O,
     "read_stored(index): an entry as it lies in the file, compared with its digest."},
    {"check_signature", (PyCFunction)package_check_signature, METH_NOARGS,
     "check_signature(): whether it is signed; PackageError if its signature is wrong."},
    {"verify", (PyCFunction)package_verify, METH_NOARGS, "verify(): read every byte; PackageError names the damage."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot package_slots[] = {
    {Py_tp_doc, "Package(path or bytes): a kernel package, read where it lies."},
    {Py_tp_new, package_new},
    {Py_tp_dealloc, package_dealloc},
    {Py_tp_methods, package_methods},
    {Py_sq_length, package_length},
    {0, NULL},
};

static PyType_Spec package_spec = {"tilesmith.runtime._runtime.Package", sizeof(package_object), 0, Py_TPFLAGS_DEFAULT,
                                   package_slots};

int package_type_init(PyObject *module, PyObject *errors) {
  package_error = PyObject_GetAttrString(errors, "PackageError");
  PyObject *type = package_error == NULL ? NULL : PyType_FromSpec(&package_spec);
  return type == NULL ? -1 : PyModule_AddObjectRef(module, "Package", type);
}
