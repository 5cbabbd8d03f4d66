"""Tensors of any library on a CUDA device: their description, and memory and streams of their library.

PyTorch's and CuPy's tensors are made and copied by their own libraries, which are loaded already when such a tensor
comes. Everything else with ``__cuda_array_interface__`` or DLPack is read in place; results for it are ``DeviceArray``.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilesmith.errors import ArgumentError
from tilesmith.plan.records import Slot
from tilesmith.problems.dtypes import dtype
from tilesmith.runtime.device import DeviceArray, DeviceMemory, device, device_of
from tilesmith.runtime.torch_rules import is_tensor, refuse_own_operators

ALIGNMENT = 16
_LEGACY_STREAM = 1
DLPACK_CUDA = 2
_DLPACK_NAMES = {
    (2, 64): "float64", (2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16", (0, 8): "int8", (0, 32): "int32",
    (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2",
}  # fmt: skip


class Library(Protocol):
    """Makes tensors of one library. ``like`` is a tensor of that kind on the device."""

    name: str

    def stream(self, ordinal: int) -> int: ...

    def empty(self, slot: Slot, like: Any, ordinal: int) -> Any: ...

    def scratch(self, nbytes: int, like: Any, ordinal: int) -> tuple[Any, int]:
        """Memory of ``nbytes`` and its address."""
        ...

    def copy(self, to: Any, values: Any) -> None: ...

    def clone(self, tensor: Any) -> Any | None:
        """A copy of the tensor in new memory with the same strides; None if that is impossible."""
        ...


@dataclass(frozen=True)
class DeviceView:
    """A tensor as its library describes it; ``strides`` count elements, ``keep`` must outlive the call."""

    address: int
    ordinal: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    library: Library
    keep: Any
    writable: bool = True


class _Torch:
    name = "PyTorch"

    def stream(self, ordinal: int) -> int:
        return int(sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream)

    def empty(self, slot: Slot, like: Any, ordinal: int) -> Any:
        return like.new_empty_strided(slot.shape, slot.strides, dtype=_torch_dtype(slot.dtype))

    def scratch(self, nbytes: int, like: Any, ordinal: int) -> tuple[Any, int]:
        made = like.new_empty(nbytes, dtype=sys.modules["torch"].uint8)
        return made, made.data_ptr()

    def copy(self, to: Any, values: Any) -> None:
        with sys.modules["torch"].no_grad():  # no gradient is recorded, also for a c that requires one
            to.copy_(values)

    def clone(self, tensor: Any) -> Any | None:
        made = tensor.new_empty_strided(tuple(tensor.shape), tensor.stride())
        self.copy(made, tensor)
        return made


class _CuPy:
    name = "CuPy"

    def stream(self, ordinal: int) -> int:
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)

    def empty(self, slot: Slot, like: Any, ordinal: int) -> Any:
        cupy = sys.modules["cupy"]
        kind = dtype(slot.dtype).numpy()
        with cupy.cuda.Device(ordinal):
            memory = cupy.empty(slot.nbytes, dtype=np.uint8)
            steps = tuple(step * kind.itemsize for step in slot.strides)
            return cupy.ndarray(slot.shape, kind, memory.data, steps)

    def scratch(self, nbytes: int, like: Any, ordinal: int) -> tuple[Any, int]:
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(ordinal):
            made = cupy.empty(nbytes, dtype=np.uint8)
        return made, int(made.data.ptr)

    def copy(self, to: Any, values: Any) -> None:
        to[...] = values

    def clone(self, tensor: Any) -> Any | None:
        return tensor.copy(order="K")


class _Foreign:
    """Memory comes from the driver; work goes to the legacy default stream, as both protocols say."""

    name = "another library"

    def stream(self, ordinal: int) -> int:
        return _LEGACY_STREAM

    def empty(self, slot: Slot, like: Any, ordinal: int) -> Any:
        return DeviceArray(
            DeviceMemory(device(ordinal), slot.nbytes), slot.shape, slot.strides, dtype(slot.dtype).numpy()
        )

    def scratch(self, nbytes: int, like: Any, ordinal: int) -> tuple[Any, int]:
        made = DeviceMemory(device(ordinal), nbytes)
        return made, made.address

    def copy(self, to: Any, values: Any) -> None:
        raise ArgumentError(f"c of type {type(values).__name__} cannot be copied; pass it as out= too")

    def clone(self, tensor: Any) -> Any | None:
        return None


TORCH, CUPY, FOREIGN = _Torch(), _CuPy(), _Foreign()


def view_of(slot: Slot, given: Any) -> DeviceView:
    """The view of tensor ``given``; ``ArgumentError`` if a CUDA plan cannot take it. Messages name it by ``slot``."""
    kind = type(given)
    if hasattr(kind, "data_ptr") and hasattr(kind, "new_empty_strided"):
        return _torch_view(slot, given)
    if isinstance(given, np.ndarray):
        raise ArgumentError(f"{slot.name} must be on a CUDA device, got a NumPy array")
    if hasattr(given, "__cuda_array_interface__"):
        return _interface_view(slot, given)
    if hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__"):
        return _dlpack_view(slot, given)
    raise ArgumentError(
        f"{slot.name} must be a tensor on a CUDA device (PyTorch, CuPy, __cuda_array_interface__ or DLPack), "
        f"got {kind.__module__}.{kind.__qualname__}"
    )


def check_view(slot: Slot, view: DeviceView, writable: bool) -> None:
    """Raise ``ArgumentError`` with both what ``slot`` wants and what the tensor has."""
    name = slot.name
    wanted = dtype(slot.dtype).numpy()
    if view.dtype not in (str(wanted), wanted.str):
        raise ArgumentError(f"{name} must have dtype {wanted}, got {view.dtype}")
    if view.shape != slot.shape:
        raise ArgumentError(f"{name} must have shape {slot.shape}, got {view.shape}")
    if any(n > 1 and a != b for n, a, b in zip(view.shape, slot.strides, view.strides, strict=True)):
        raise ArgumentError(f"{name} must have strides {slot.strides} (in elements), got {view.strides}")
    if writable and not view.writable:
        raise ArgumentError(f"{name} is written, got a read-only array")
    if writable and view.address % ALIGNMENT:
        raise ArgumentError(
            f"{name} begins at {view.address:#x}; a result must begin at a multiple of {ALIGNMENT} bytes"
        )


def _torch_view(slot: Slot, given: Any) -> DeviceView:
    if is_tensor(given):
        refuse_own_operators(slot.name, given)
    place = given.device
    if place.type != "cuda":
        raise ArgumentError(f"{slot.name} must be on a CUDA device, got a tensor on device {place}")
    if str(given.layout) != "torch.strided":
        raise ArgumentError(f"{slot.name} must be a plain strided tensor, got layout {given.layout}")
    if given.is_neg():
        raise ArgumentError(f"{slot.name} is a lazily negated view; call resolve_neg() on it")
    return DeviceView(
        given.data_ptr(), place.index or 0, str(given.dtype).rpartition(".")[2], tuple(given.shape),
        tuple(given.stride()), TORCH, given,
    )  # fmt: skip


def _interface_view(slot: Slot, given: Any) -> DeviceView:
    facts = given.__cuda_array_interface__
    address, read_only = facts["data"]
    shape = tuple(int(n) for n in facts["shape"])
    kind = getattr(given, "dtype", None)
    name = str(kind) if isinstance(kind, np.dtype) else facts["typestr"]
    size = np.dtype(facts["typestr"]).itemsize
    steps = facts.get("strides")
    if steps is not None and any(step % size for step in steps):
        raise ArgumentError(f"{slot.name} has strides {tuple(steps)} bytes, no whole elements of {size}")
    strides = _dense(shape) if steps is None else tuple(step // size for step in steps)
    is_cupy = type(given).__module__.partition(".")[0] == "cupy" and "cupy" in sys.modules
    ordinal = int(given.device.id) if is_cupy else device_of(address) if address else 0
    library: Library = CUPY if is_cupy else FOREIGN
    return DeviceView(int(address), ordinal, name, shape, strides, library, given, not read_only)


def _dlpack_view(slot: Slot, given: Any) -> DeviceView:
    kind, ordinal = given.__dlpack_device__()
    if int(kind) != DLPACK_CUDA:
        raise ArgumentError(f"{slot.name} must be on a CUDA device, got DLPack device type {int(kind)}")
    capsule = given.__dlpack__(stream=_LEGACY_STREAM)
    tensor = read_capsule(capsule)
    strides = _dense(tensor.shape) if tensor.strides is None else tensor.strides
    return DeviceView(tensor.address, int(ordinal), tensor.dtype, tensor.shape, strides, FOREIGN, (given, capsule))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def _torch_dtype(name: str) -> Any:
    return getattr(sys.modules["torch"], str(dtype(name).numpy()))


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
    """The tensor of an unused capsule. Raises ``ArgumentError`` for a capsule that is used or too new."""
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
    name = _DLPACK_NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return CapsuleTensor(
        (tensor.data or 0) + tensor.byte_offset, name or f"DLPack {tensor.code}/{tensor.bits}", shape, strides
    )
