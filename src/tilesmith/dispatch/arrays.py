"""Reads shape, strides and dtype of a user's array, NumPy's or PyTorch's, without importing PyTorch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.errors import ArgumentError
from tilesmith.problems.layouts import dense_strides
from tilesmith.runtime.arguments import refuse_swapped
from tilesmith.runtime.torch_rules import refuse_own_operators

TORCH_NAMES = {
    "torch.float64": "fp64", "torch.float32": "fp32", "torch.float16": "fp16", "torch.bfloat16": "bf16",
    "torch.int8": "int8", "torch.int32": "int32", "torch.float8_e4m3fn": "fp8e4m3", "torch.float8_e5m2": "fp8e5m2",
}  # fmt: skip
_NUMPY_NAMES = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8", "int32": "int32",
    "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2",
}  # fmt: skip


@dataclass(frozen=True)
class ArrayLayout:
    """Memory layout of an array: ``strides`` are in elements; None if the array is dense in its own order of axes.

    ``odd`` is true if a stride is no whole number of elements: such an array must be copied. ``steps`` are the original
    strides, also those of axes of size 1. ``device`` is ``cpu`` or a CUDA device such as ``cuda:0``.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    odd: bool = False
    device: str = "cpu"
    steps: tuple[int, ...] | None = None


def is_torch(array: Any) -> bool:
    """Whether ``array`` is a PyTorch tensor (or quacks like one)."""
    return hasattr(array, "data_ptr") and hasattr(array, "stride") and hasattr(array, "device")


def describe(name: str, array: Any) -> ArrayLayout:
    """Shape, strides and dtype of ``array``; ``ArgumentError`` for what cannot be an argument.

    A tensor must be on the CPU or a CUDA device, and its gradient must not be recorded.
    """
    device = "cpu"
    if isinstance(array, np.ndarray):
        shape, dtype, item = array.shape, _NUMPY_NAMES.get(array.dtype.name), array.itemsize
        refuse_swapped(name, array)
        if dtype is None:
            known = ", ".join(_NUMPY_NAMES)
            raise ArgumentError(f"{name} has dtype {array.dtype}; known: {known}; type {name}.astype(np.float32)")
        steps = array.strides
        strides = tuple(step // item for step in steps) if all(step % item == 0 for step in steps) else None
        if strides is None:
            return ArrayLayout(shape, None, dtype, odd=True)
    elif is_torch(array):
        refuse_own_operators(name, array)
        device = str(array.device)
        if array.device.type not in ("cpu", "cuda"):
            raise ArgumentError(f"{name} is on device {device}; pass it on the CPU or a CUDA device")
        check_gradient(name, array)
        dtype = TORCH_NAMES.get(str(array.dtype))
        if dtype is None:
            typed = "dequantize()" if getattr(array, "is_quantized", False) else "to(torch.float32)"
            known = ", ".join(TORCH_NAMES)
            raise ArgumentError(f"{name} has dtype {array.dtype}; known: {known}; type {name}.{typed}")
        if getattr(array, "is_nested", False):
            raise ArgumentError(f"{name} is a nested tensor; only dense tensors are read")
        if str(array.layout) != "torch.strided":
            raise ArgumentError(
                f"{name} has layout {array.layout}; only dense tensors are read; type {name}.to_dense()"
            )
        shape, strides = tuple(array.shape), tuple(array.stride())
    else:
        raise ArgumentError(f"{name} is a {type(array).__name__}; pass a NumPy array or a PyTorch CPU tensor")
    dense = all(n == 1 or a == b for n, a, b in zip(shape, strides, dense_strides(shape), strict=True))
    return ArrayLayout(shape, None if dense else strides, dtype, device=device, steps=strides)


def check_gradient(name: str, tensor: Any) -> None:
    """Refuse a tensor whose gradient is being recorded: a result without one would be silently wrong."""
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise ArgumentError(
            f"{name} requires a gradient, which this call does not record; use torch.no_grad() or {name}.detach()"
        )


def permuted(array: Any, order: tuple[int, ...]) -> Any:
    """The same memory with its axes in ``order``."""
    return array.transpose(order) if isinstance(array, np.ndarray) else array.permute(order)


def contiguous(array: Any) -> Any:
    """``array``, or a dense copy of it."""
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()
