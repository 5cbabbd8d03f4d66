#include "tensors.h"
#include "dlpack_exchange.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include <string.h>

static const struct {
  const char *name;
  const char *torch_name;
  int64_t nbytes;
  uint8_t dlpack_code;
} dtypes[] = {
    {"fp64", "float64", 8, DL_FLOAT},
    {"fp32", "float32", 4, DL_FLOAT},
    {"fp16", "float16", 2, DL_FLOAT},
    {"bf16", "bfloat16", 2, DL_BFLOAT},
    {"int8", "int8", 1, DL_INT},
    {"int32", "int32", 4, DL_INT},
    {"fp8e5m2", "float8_e5m2", 1, DL_FLOAT8_E5M2},
    {"fp8e4m3", "float8_e4m3fn", 1, DL_FLOAT8_E4M3FN},
};

/* Attribute names, interned once. */
static PyObject *name_new_empty_strided, *name_new_empty, *name_dtype, *name_data_ptr, *name_stride, *name_shape,
    *name_device, *name_type, *name_is_neg, *keywords_dtype;

static int import_numpy(void) {
  import_array1(-1);
  return 0;
}

int tensors_import(void) {
  if (name_dtype != NULL) return 0;
  if (import_numpy() < 0) return -1;
  name_new_empty_strided = PyUnicode_InternFromString("new_empty_strided");
  name_new_empty = PyUnicode_InternFromString("new_empty");
  name_data_ptr = PyUnicode_InternFromString("data_ptr");
  name_stride = PyUnicode_InternFromString("stride");
  name_shape = PyUnicode_InternFromString("shape");
  name_device = PyUnicode_InternFromString("device");
  name_type = PyUnicode_InternFromString("type");
  name_is_neg = PyUnicode_InternFromString("is_neg");
  keywords_dtype = Py_BuildValue("(s)", "dtype");
  name_dtype = PyUnicode_InternFromString("dtype");
  return PyErr_Occurred() ? -1 : 0;
}

static int read_sizes(PyObject *tuple, int64_t *sizes, int axes) {
  for (int i = 0; i < axes; i++) {
    sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (sizes[i] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

int spec_init(tensor_spec *spec, PyObject *entry) {
  PyObject *record, *dtype, *shape, *strides;
  const char *name;
  long long nbytes;
  if (!PyArg_ParseTuple(entry, "OsO!O!O!L|p", &record, &name, &PyArrayDescr_Type, &dtype, &PyTuple_Type, &shape,
                        &PyTuple_Type, &strides, &nbytes, &spec->exact))
    return -1;
  size_t i = 0;
  while (i < sizeof dtypes / sizeof *dtypes && strcmp(dtypes[i].name, name) != 0)
    i++;
  if (i == sizeof dtypes / sizeof *dtypes || PyTuple_Size(shape) > MAX_AXES ||
      PyTuple_Size(shape) != PyTuple_Size(strides)) {
    PyErr_Format(PyExc_ValueError, "%R is no tensor", record);
    return -1;
  }
  spec->axes = (int)PyTuple_Size(shape);
  if (read_sizes(shape, spec->sizes, spec->axes) < 0 || read_sizes(strides, spec->steps, spec->axes) < 0) return -1;
  spec->torch_name = dtypes[i].torch_name;
  spec->itemsize = dtypes[i].nbytes;
  spec->dlpack_code = dtypes[i].dlpack_code;
  spec->nbytes = nbytes;
  spec->dense = 1;
  int64_t inner = 1;
  for (int axis = spec->axes - 1; axis >= 0; axis--) {
    if (spec->sizes[axis] > 1 && spec->steps[axis] != inner) spec->dense = 0;
    inner *= spec->sizes[axis];
  }
  spec->record = Py_NewRef(record);
  spec->numpy_dtype = Py_NewRef(dtype);
  spec->shape = Py_NewRef(shape);
  spec->strides = Py_NewRef(strides);
  return 0;
}

void spec_clear(tensor_spec *spec) {
  Py_CLEAR(spec->record);
  Py_CLEAR(spec->numpy_dtype);
  Py_CLEAR(spec->torch_dtype);
  Py_CLEAR(spec->empty_arguments);
  Py_CLEAR(spec->shape);
  Py_CLEAR(spec->strides);
}

/* --- which kind ----------------------------------------------------------------------------------------------------
 */

#define KNOWN_TYPES 4

/* The last types that were not NumPy's. Types are kept alive, so that an address stands for one type. */
static struct known_type {
  PyTypeObject *type;
  const dl_exchange *exchange;
  tensor_kind kind;
  int has_neg;
} known_types[KNOWN_TYPES];
static unsigned next_known;

/* A subclass of PyTorch's tensors that computes its operators itself: what its memory holds, if it has any, is not for
 * others to read. */
static int has_own_operators(PyObject *type) {
  PyObject *torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
  PyObject *plain = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
  PyObject *common = plain ? PyObject_GetAttrString(plain, "__torch_dispatch__") : NULL;
  PyObject *own = common ? PyObject_GetAttrString(type, "__torch_dispatch__") : NULL;
  const int differs = own != NULL && own != common;
  PyErr_Clear();
  Py_XDECREF(plain);
  Py_XDECREF(common);
  Py_XDECREF(own);
  return differs;
}

static struct known_type *learn_type(PyTypeObject *type) {
  struct known_type known = {type, NULL, KIND_UNKNOWN, 0};
  PyObject *object = (PyObject *)type;
  if (PyObject_HasAttr(object, name_new_empty_strided) && PyObject_HasAttr(object, name_data_ptr) &&
      !has_own_operators(object)) {
    known.kind = KIND_TORCH;
    known.has_neg = PyObject_HasAttr(object, name_is_neg);
    PyObject *capsule = PyObject_GetAttrString(object, "__dlpack_c_exchange_api__");
    const dl_exchange *exchange = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    PyErr_Clear();
    Py_XDECREF(capsule); /* the table lives as long as the process */
    while (exchange != NULL && exchange->major != 1)
      exchange = exchange->previous;
    if (exchange != NULL && exchange->tensor_from_object != NULL) {
      known.exchange = exchange;
      known.kind = KIND_DLPACK;
    }
  }
  PyErr_Clear();
  struct known_type *place = &known_types[next_known++ % KNOWN_TYPES];
  PyTypeObject *before = place->type;
  Py_INCREF(type);
  *place = known;
  Py_XDECREF(before);
  return place;
}

static const struct known_type *type_of(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  for (unsigned i = 0; i < KNOWN_TYPES; i++)
    if (known_types[i].type == type) return &known_types[i];
  return learn_type(type);
}

tensor_kind tensor_kind_of(PyObject *object) {
  return PyArray_Check(object) ? KIND_NUMPY : type_of(object)->kind;
}

int tensor_is_array(PyObject *object) {
  return PyArray_CheckExact(object);
}

int tensor_is_torch(PyObject *object) {
  const tensor_kind kind = tensor_kind_of(object);
  return kind == KIND_DLPACK || kind == KIND_TORCH;
}

/* --- what it is ----------------------------------------------------------------------------------------------------
 */

/* A subclass that says which elements count: reading them all would be wrong. */
static int is_masked(PyObject *object) {
  return !PyArray_CheckExact(object) && PyObject_HasAttrString(object, "mask");
}

static int check_numpy(const tensor_spec *spec, PyObject *object, int writable, void **address) {
  if (is_masked(object)) return 0;
  PyArrayObject *array = (PyArrayObject *)object;
  PyArray_Descr *dtype = PyArray_DESCR(array), *wanted = (PyArray_Descr *)spec->numpy_dtype;
  if (dtype != wanted && !PyArray_EquivTypes(dtype, wanted)) return 0;
  if (PyArray_NDIM(array) != spec->axes || !PyArray_ISALIGNED(array)) return 0;
  if (writable && !PyArray_ISWRITEABLE(array)) return 0;
  const npy_intp *sizes = PyArray_DIMS(array), *strides = PyArray_STRIDES(array);
  for (int i = 0; i < spec->axes; i++)
    if (sizes[i] != spec->sizes[i] || ((sizes[i] > 1 || spec->exact) && strides[i] != spec->steps[i] * spec->itemsize))
      return 0;
  *address = PyArray_DATA(array);
  return *address != NULL;
}

static int check_dlpack(const tensor_spec *spec, PyObject *object, const dl_exchange *exchange, int device_type,
                        void **address, int *device) {
  dl_tensor tensor;
  if (exchange->tensor_from_object(object, &tensor) != 0) return 0;
  if (tensor.device.type != device_type || tensor.axes != spec->axes) return 0;
  *device = tensor.device.id;
  if (tensor.dtype.code != spec->dlpack_code || tensor.dtype.bits != 8 * spec->itemsize || tensor.dtype.lanes != 1)
    return 0;
  for (int i = 0; i < spec->axes; i++) {
    if (tensor.shape[i] != spec->sizes[i]) return 0;
    if (tensor.strides != NULL && (spec->sizes[i] > 1 || spec->exact) && tensor.strides[i] != spec->steps[i]) return 0;
  }
  if (tensor.strides == NULL && !spec->dense) return 0;
  if (tensor.data == NULL) return 0;
  *address = (char *)tensor.data + tensor.byte_offset;
  return (uintptr_t)*address % (uintptr_t)spec->itemsize == 0;
}

static PyObject *torch_dtype(tensor_spec *spec) {
  if (spec->torch_dtype == NULL) {
    PyObject *modules = PyImport_GetModuleDict(); /* whoever has a tensor has imported torch */
    PyObject *torch = PyDict_GetItemString(modules, "torch");
    if (torch == NULL) {
      PyErr_SetString(PyExc_RuntimeError, "the module torch of this tensor is not loaded");
      return NULL;
    }
    spec->torch_dtype = PyObject_GetAttrString(torch, spec->torch_name);
  }
  return spec->torch_dtype;
}

static int sizes_equal(PyObject *sequence, const tensor_spec *spec, const int64_t *wanted, int skip_unit) {
  if (sequence == NULL || !PyTuple_Check(sequence) || PyTuple_Size(sequence) != spec->axes) return 0;
  for (int i = 0; i < spec->axes; i++) {
    if (skip_unit && spec->sizes[i] == 1 && !spec->exact) continue;
    if (PyLong_AsLongLong(PyTuple_GetItem(sequence, i)) != wanted[i]) return 0;
  }
  return 1;
}

/* A PyTorch that has no exchange table yet: the same facts from its attributes. */
static int check_torch(tensor_spec *spec, PyObject *object, void **address) {
  PyObject *dtype = PyObject_GetAttr(object, name_dtype), *shape = NULL, *stride = NULL, *device = NULL;
  PyObject *type = NULL, *pointer = NULL;
  int same = 0;
  if (dtype == NULL || dtype != torch_dtype(spec)) goto done;
  device = PyObject_GetAttr(object, name_device);
  type = device ? PyObject_GetAttr(device, name_type) : NULL;
  if (type == NULL || !PyUnicode_Check(type) || PyUnicode_CompareWithASCIIString(type, "cpu") != 0) goto done;
  shape = PyObject_GetAttr(object, name_shape);
  if (!sizes_equal(shape, spec, spec->sizes, 0)) goto done;
  stride = call_method(object, name_stride);
  if (!sizes_equal(stride, spec, spec->steps, 1)) goto done;
  pointer = call_method(object, name_data_ptr);
  *address = pointer ? PyLong_AsVoidPtr(pointer) : NULL;
  same = *address != NULL && (uintptr_t)*address % (uintptr_t)spec->itemsize == 0;
done:
  Py_XDECREF(dtype);
  Py_XDECREF(shape);
  Py_XDECREF(stride);
  Py_XDECREF(device);
  Py_XDECREF(type);
  Py_XDECREF(pointer);
  return same;
}

/* The imaginary part of a conjugate is a view whose elements are to be negated by whoever reads them. */
static int is_negated(PyObject *object) {
  PyObject *negated = call_method(object, name_is_neg);
  int answer = negated != Py_False;
  Py_XDECREF(negated);
  return answer;
}

const struct dl_exchange *tensor_exchange(PyObject *object) {
  return PyArray_Check(object) ? NULL : type_of(object)->exchange;
}

int tensor_check_device(tensor_spec *spec, PyObject *object, const dl_exchange *exchange, void **address, int *device) {
  const struct known_type *type = type_of(object);
  int same = type->exchange == exchange && check_dlpack(spec, object, exchange, DL_CUDA, address, device);
  same = same && (uintptr_t)*address % 16 == 0 && !(type->has_neg && is_negated(object));
  if (!same) PyErr_Clear();
  return same;
}

PyObject *tensor_new_bytes(PyObject *like, int64_t nbytes) {
  static PyObject *uint8;
  if (uint8 == NULL) {
    PyObject *torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
    uint8 = torch ? PyObject_GetAttrString(torch, "uint8") : NULL;
    if (uint8 == NULL) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the module torch of this tensor is not loaded");
      return NULL;
    }
  }
  PyObject *size = PyLong_FromLongLong(nbytes);
  if (size == NULL) return NULL;
  PyObject *arguments[] = {like, size, uint8};
  PyObject *made =
      PyObject_VectorcallMethod(name_new_empty, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, keywords_dtype);
  Py_DECREF(size);
  return made;
}

int tensor_check(tensor_spec *spec, PyObject *object, int writable, void **address) {
  if (PyArray_Check(object)) return check_numpy(spec, object, writable, address);
  const struct known_type *type = type_of(object);
  int same = 0, device = 0;
  if (type->kind == KIND_DLPACK)
    same = check_dlpack(spec, object, type->exchange, DL_CPU, address, &device);
  else if (type->kind == KIND_TORCH)
    same = check_torch(spec, object, address);
  if (same && type->has_neg) same = !is_negated(object);
  if (!same) PyErr_Clear();
  return same;
}

/* --- results -------------------------------------------------------------------------------------------------------
 */

enum { LINE_BYTES = 64, PAGE_BYTES = 4096 };

/* NumPy aligns to 16 bytes, where every other wide store of a kernel straddles two cache lines (measured: 1.6x the time
 * of a depthwise convolution). A result of more than a page is worth a second object that moves it to a line's start.
 */
static PyObject *new_aligned_numpy(const tensor_spec *spec, npy_intp *sizes, npy_intp *strides) {
  npy_intp bytes = (npy_intp)spec->nbytes + LINE_BYTES;
  PyObject *memory = PyArray_SimpleNew(1, &bytes, NPY_UINT8);
  if (memory == NULL) return NULL;
  char *first = PyArray_DATA((PyArrayObject *)memory);
  first += -(uintptr_t)first % LINE_BYTES;
  PyObject *view = PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)Py_NewRef(spec->numpy_dtype), spec->axes, sizes,
                                        strides, first, NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED, NULL);
  if (view == NULL || PyArray_SetBaseObject((PyArrayObject *)view, memory) < 0) {
    if (view == NULL) Py_DECREF(memory);
    Py_XDECREF(view);
    return NULL;
  }
  return view;
}

static PyObject *new_numpy(const tensor_spec *spec) {
  npy_intp sizes[MAX_AXES], strides[MAX_AXES];
  for (int i = 0; i < spec->axes; i++) {
    sizes[i] = (npy_intp)spec->sizes[i];
    strides[i] = (npy_intp)(spec->steps[i] * spec->itemsize);
  }
  if (!spec->dense || spec->nbytes > PAGE_BYTES) return new_aligned_numpy(spec, sizes, strides);
  return PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)Py_NewRef(spec->numpy_dtype), spec->axes, sizes, NULL,
                              NULL, 0, NULL);
}

PyObject *tensor_new(tensor_spec *spec, PyObject *like, tensor_kind kind) {
  if (kind == KIND_NUMPY) return new_numpy(spec);
  PyObject *dtype = torch_dtype(spec);
  if (dtype == NULL) return NULL;
  PyObject *arguments[] = {like, spec->shape, spec->strides, dtype};
  return PyObject_VectorcallMethod(name_new_empty_strided, arguments, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                   keywords_dtype);
}

/* NOTE: PyTorch's own compiled code makes its tensors with _empty_strided_cuda; called from Python it took 2.1 us where
 * new_empty_strided took 3.8 (PyTorch 2.11, H200 machine). It is private, so it may be missing. */
static PyObject *find_empty_strided(void) {
  static const char *const names[] = {"_C", "_dynamo", "guards", "_empty_strided_cuda"};
  PyObject *at = Py_XNewRef(PyDict_GetItemString(PyImport_GetModuleDict(), "torch"));
  for (size_t i = 0; at != NULL && i < sizeof names / sizeof *names; i++)
    replace_reference(&at, PyObject_GetAttrString(at, names[i]));
  PyErr_Clear();
  return at != NULL ? at : Py_NewRef(Py_None);
}

PyObject *tensor_new_on_device(tensor_spec *spec, PyObject *like) {
  static PyObject *empty_strided;
  if (empty_strided == NULL) empty_strided = find_empty_strided();
  if (empty_strided == Py_None) return tensor_new(spec, like, KIND_DLPACK);
  if (spec->empty_arguments == NULL) {
    PyObject *dtype = torch_dtype(spec);
    if (dtype != NULL) spec->empty_arguments = PyTuple_Pack(3, spec->shape, spec->strides, dtype);
    if (spec->empty_arguments == NULL) return NULL;
  }
  PyObject *made = PyObject_CallObject(empty_strided, spec->empty_arguments);
  if (made != NULL) return made;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) empty_strided = Py_NewRef(Py_None); /* it takes something else now */
  PyErr_Clear();
  return tensor_new(spec, like, KIND_DLPACK);
}

static void copy_axis(const tensor_spec *spec, int axis, char *to, const char *from) {
  int64_t inner = 1; /* elements of the axes from here on, if they lie side by side */
  for (int i = spec->axes - 1; i >= axis && inner; i--)
    inner = spec->sizes[i] == 1 || spec->steps[i] == inner ? inner * spec->sizes[i] : 0;
  if (inner) {
    memcpy(to, from, (size_t)(inner * spec->itemsize));
    return;
  }
  int64_t step = spec->steps[axis] * spec->itemsize;
  for (int64_t i = 0; i < spec->sizes[axis]; i++)
    copy_axis(spec, axis + 1, to + i * step, from + i * step);
}

void tensor_copy(const tensor_spec *spec, char *to, const char *from) {
  copy_axis(spec, 0, to, from);
}
