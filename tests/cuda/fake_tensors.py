"""Tensors "on a device" for the stand-in, whose device memory is the host's: one class for each way in."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.layouts import dense_strides

CODES = {
    "float64": (2, 64),
    "float32": (2, 32),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "int8": (0, 8),
    "int32": (0, 32),
}


class Memory:
    """An array in memory of its own, ``skew`` bytes after a multiple of 256."""

    def __init__(self, array, strides=None, skew=0):
        self.dtype = array.dtype
        self.shape = array.shape
        self.strides = tuple(strides or dense_strides(array.shape))
        span = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1
        raw = np.zeros(span * array.itemsize + 512, np.uint8)
        start = -raw.ctypes.data % 256 + skew
        self.raw = raw
        self.array = np.ndarray(
            array.shape, array.dtype, raw.data, start, tuple(s * array.itemsize for s in self.strides)
        )  # fmt: skip
        self.array[...] = array
        self.address = raw.ctypes.data + start


class Interface(Memory):
    """``__cuda_array_interface__`` alone, as Numba has it."""

    @property
    def __cuda_array_interface__(self):
        steps = tuple(s * self.dtype.itemsize for s in self.strides)
        dense = self.strides == tuple(dense_strides(self.shape))
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False),
                "strides": None if dense else steps}  # fmt: skip


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("axes", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


class Exporter(Memory):
    """DLPack alone, as JAX has it."""

    device_type, ordinal = 2, 0

    def __dlpack_device__(self):
        return (self.device_type, self.ordinal)

    def __dlpack__(self, *, stream=None):
        self.asked = stream
        axes = len(self.shape)
        kind = ctypes.c_int64 * axes
        self.sizes, self.steps = kind(*self.shape), kind(*self.strides)
        code, bits = CODES[self.dtype.name]
        self.tensor = DLTensor(
            self.address - 16, self.device_type, self.ordinal, axes, code, bits, 1, self.sizes, self.steps, 16,
            None, None,
        )  # fmt: skip
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


# --- PyTorch's way: a table of C functions on the type ----------------------------------------------------------------

_FROM_OBJECT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
_STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
streams = {0: 0x5000, 1: 0x5100}  # the current stream of each device


@_FROM_OBJECT
def _from_object(tensor, into):
    tensor.describe(into.contents)
    return 0


@_STREAM
def _current_stream(kind, ordinal, into):
    into[0] = streams[ordinal]
    return 0


class _Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("managed_from_object", ctypes.c_void_p),
        ("object_from_managed", ctypes.c_void_p), ("tensor_from_object", _FROM_OBJECT), ("current_stream", _STREAM),
    )  # fmt: skip


_table = _Table(1, 3, None, None, None, None, _from_object, _current_stream)


def _capsule():
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(_table), b"dlpack_exchange_api", None)


class _Place:
    type = "cuda"

    def __init__(self, index):
        self.index = index

    def __str__(self):
        return f"cuda:{self.index}"


class Tensor(Memory):
    """What PyTorch's CUDA tensors look like from outside."""

    __dlpack_c_exchange_api__ = _capsule()
    layout = "torch.strided"
    requires_grad = False
    made: list = []  # noqa: RUF012  # (what, bytes) of every allocation

    def __init__(self, array, strides=None, skew=0, index=0):
        super().__init__(array, strides, skew)
        self.device = _Place(index)
        self.negated = False
        kind = ctypes.c_int64 * len(self.shape)
        self.sizes, self.steps = kind(*self.shape), kind(*self.strides)

    def describe(self, into):
        code, bits = CODES[self.dtype.name]
        into.data, into.device_type, into.device_id = self.address, 2, self.device.index
        into.axes, into.code, into.bits, into.lanes = len(self.shape), code, bits, 1
        into.shape, into.strides, into.byte_offset = self.sizes, self.steps, 0

    def stride(self):
        return self.strides

    def data_ptr(self):
        return self.address

    def is_neg(self):
        return self.negated

    def new_empty_strided(self, shape, strides, dtype=None):
        return empty(shape, strides, dtype or self.dtype, self.device.index, "new_empty_strided")

    def new_empty(self, nbytes, dtype=None):
        return empty((nbytes,), (1,), dtype, self.device.index, "new_empty")

    def copy_(self, other):
        self.array[...] = other.array


def empty(shape, strides, kind, index=0, what="_empty_strided_cuda"):
    """A tensor full of the byte 0xFF (``kind`` is one of torch's dtypes, or NumPy's)."""
    name = str(kind).rpartition(".")[2]
    element = np.dtype(np.uint8) if name == "uint8" else dtype(name).numpy()
    Tensor.made.append((what, index))
    made = Tensor(np.zeros(shape, element), strides, index=index)
    made.raw[:] = 0xFF
    return made


def install():
    """The private allocator of PyTorch, which its build without CUDA cannot run."""
    import torch

    torch._C._dynamo.guards._empty_strided_cuda = lambda *facts: empty(*facts)
    return sys.modules["torch"]
