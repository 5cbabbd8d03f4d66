"""Reads the tensor that a DLPack capsule holds; the capsule keeps owning it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from tilesmith.errors import ArgumentError

DLPACK_CUDA = 2
_NAMES = {
    (2, 64): "float64", (2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16", (0, 8): "int8", (0, 32): "int32",
    (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2",
}  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("axes", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


@dataclass(frozen=True)
class CapsuleTensor:
    """``dtype`` is NumPy's name (``code/bits`` if it has none); ``strides`` count elements, None is dense."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


def read_capsule(capsule: Any) -> CapsuleTensor:
    """The tensor of a capsule that nobody has taken. Raises ``ArgumentError`` for one that is taken or too new."""
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    if api.PyCapsule_IsValid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    elif api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise ArgumentError(f"a DLPack tensor of version {versioned.major}.{versioned.minor} cannot be read")
        tensor = versioned.tensor
    else:
        raise ArgumentError("a DLPack capsule was taken already")
    axes = range(tensor.axes)
    shape = tuple(tensor.shape[i] for i in axes)
    strides = tuple(tensor.strides[i] for i in axes) if tensor.strides else None
    name = _NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return CapsuleTensor(
        (tensor.data or 0) + tensor.byte_offset, name or f"DLPack {tensor.code}/{tensor.bits}", shape, strides
    )
