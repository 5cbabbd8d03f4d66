"""TVM's runtime through its C interface, in a process that has no TVM in Python.

Source: ``tvm/ffi/c_api.h`` and ``dlpack.h`` of apache-tvm-ffi 0.1.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_void_p,
)
from functools import lru_cache
from pathlib import Path

from tilesmith.compare.tvm.environment import libraries

CPU, CUDA = 1, 2  # DLDeviceType
_INT, _BOOL, _TENSOR, _TEXT = 1, 2, 7, 8  # TVMFFITypeIndex
_FLOAT = 2  # DLDataTypeCode


class Value(Structure):
    """``TVMFFIAny``."""

    _fields_ = (("type", c_int32), ("padding", c_uint32), ("value", c_int64))


class Tensor(Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", c_void_p), ("device_type", c_int32), ("device", c_int32), ("axes", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("offset", c_size_t),
    )  # fmt: skip


class _Bytes(Structure):
    """``TVMFFIByteArray``."""

    _fields_ = (("data", c_char_p), ("size", c_size_t))


def tensor(address: int, shape: Sequence[int], bits: int, device_type: int = CPU, ordinal: int = 0) -> Tensor:
    """A dense tensor of floating-point numbers in memory that the caller holds."""
    sizes = (c_int64 * len(shape))(*shape)
    steps = (c_int64 * len(shape))()
    step = 1
    for axis in reversed(range(len(shape))):
        steps[axis], step = step, step * shape[axis]
    return Tensor(address, device_type, ordinal, len(shape), _FLOAT, bits, 1, sizes, steps, 0)


def kernel(path: Path, threads: int, on_gpu: bool) -> Callable[[Sequence[Tensor]], Callable[[], None]]:
    """The kernel of an exported library: given tensors it makes the call on them, which raises ``RuntimeError``."""
    ffi = _runtime(threads, on_gpu)
    module = _call(ffi, _global(ffi, "ffi.ModuleLoadFromFile"), [_text(str(path))])
    wanted = [module, _text("main"), Value(_BOOL, 0, 1)]
    function = _call(ffi, _global(ffi, "ffi.ModuleGetFunction"), wanted)
    handle = c_void_p(function.value)

    def bind(tensors: Sequence[Tensor]) -> Callable[[], None]:
        given = (Value * len(tensors))(*(Value(_TENSOR, 0, ctypes.addressof(each)) for each in tensors))
        held, result, run, count = tuple(tensors), Value(), ffi.TVMFFIFunctionCall, c_int32(len(tensors))

        def call() -> None:
            if run(handle, given, count, byref(result)):
                raise RuntimeError(f"TVM's kernel fails on {len(held)} tensors")

        return call

    return bind


def set_stream(ordinal: int, stream: int, threads: int) -> None:
    """Let kernels queue their work on a stream."""
    _try(_runtime(threads, True).TVMFFIEnvSetStream(c_int32(CUDA), c_int32(ordinal), c_void_p(stream), None))


@lru_cache(maxsize=2)
def _runtime(threads: int, on_gpu: bool) -> ctypes.CDLL:
    if not on_gpu:
        os.environ["TVM_NUM_THREADS"] = str(threads)  # read once, when its pool of threads begins
    found = [ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in libraries()[: 3 if on_gpu else 2]]
    return found[0]


def _global(ffi: ctypes.CDLL, name: str) -> c_void_p:
    text, made = name.encode(), c_void_p()
    _try(ffi.TVMFFIFunctionGetGlobal(byref(_Bytes(text, len(text))), byref(made)))
    if not made.value:
        raise RuntimeError(f"TVM's runtime has no {name}")
    return made


def _call(ffi: ctypes.CDLL, function: c_void_p, values: Sequence[Value]) -> Value:
    made = Value()
    _try(ffi.TVMFFIFunctionCall(function, (Value * len(values))(*values), c_int32(len(values)), byref(made)))
    return made


def _text(value: str) -> Value:
    held = _held(value)
    return Value(_TEXT, 0, ctypes.cast(held, c_void_p).value or 0)


@lru_cache(maxsize=256)
def _held(value: str) -> c_char_p:
    """The bytes of a text, which stay where they are."""
    return c_char_p(value.encode())


def _try(status: int) -> None:
    if status:
        raise RuntimeError(f"TVM's runtime: status {status}")
