"""Shapes, strides and dtypes of results, for tensors with or without values and for symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilesmith.dispatch.arrays import ArrayLayout
from tilesmith.dispatch.layout_names import result_order
from tilesmith.problems.layouts import default_layout, dense_strides, parse_layout

Sizes = tuple[int, ...]


def conv_shape(
    x: torch.Tensor, w: torch.Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Sizes:  # fmt: skip
    """The shape of a convolution's result; ``RuntimeError`` where no convolution has these sizes."""
    dims = x.dim() - 2
    require(dims in (1, 2, 3) and w.dim() == x.dim(), lambda: f"x has {x.dim()} axes, w has {w.dim()}")
    channels = w.shape[0] if transposed else w.shape[1] * groups
    require(x.shape[1] == channels, lambda: f"x has {x.shape[1]} channels, the filter takes {channels}")
    sizes, pads = [], padding_sides(padding, dims)
    for axis in range(dims):
        step, apart = (each[axis if len(each) > 1 else 0] for each in (stride, dilation))
        pad = sum(pads[axis])
        size, reach = x.shape[2 + axis], apart * (w.shape[2 + axis] - 1) + 1
        if transposed:
            more = output_padding[axis if len(output_padding) > 1 else 0]
            sizes.append((size - 1) * step - pad + reach + more)
        else:
            sizes.append((size + pad - reach) // step + 1)
    filters = w.shape[1] * groups if transposed else w.shape[0]
    return (x.shape[0], filters, *sizes)


def padding_sides(padding: Sequence[int], dims: int) -> tuple[tuple[int, int], ...]:
    """``(low, high)`` for each axis, of an operator's list: one element, one for each axis, or two for each axis."""
    if len(padding) == 2 * dims:
        return tuple(zip(padding[::2], padding[1::2], strict=True))
    require(
        len(padding) in (1, dims), lambda: f"padding {list(padding)} has {len(padding)} elements, not {_many(dims)}"
    )
    return tuple((each, each) for each in (padding if len(padding) == dims else tuple(padding) * dims))


def padding_of(padding: Sequence[int], dims: int) -> Any:
    """An operator's list as a signature takes it: one integer, one for each axis, or ``(low, high)`` for each axis."""
    return padding_sides(padding, dims) if len(padding) == 2 * dims else axes(padding)


def axes(values: Sequence[int]) -> Any:
    """One integer for all axes, or one for each."""
    return values[0] if len(values) == 1 else tuple(values)


def _many(dims: int) -> str:
    return " or ".join(map(str, sorted({1, dims, 2 * dims})))


def conv_strides(x: torch.Tensor, w: torch.Tensor, shape: Sizes) -> Sizes:
    """Strides of a result of ``shape`` that lies as ``tilesmith.conv`` lays the result of ``x`` and ``w``."""
    return _strides(x, w, shape, True)


def _strides(x: torch.Tensor, w: torch.Tensor, shape: Sizes, tensors: bool) -> Sizes:
    default = str(default_layout(x.dim() - 2))
    order = result_order(_layout_of(x), _layout_of(w), [default] * 3, tensors=tensors)
    dense = dense_strides(parse_layout(order).layout_shape(shape))
    return tuple(dense[order.index(axis)] for axis in default)


def strides_like(tensor: torch.Tensor) -> Sizes:
    """Strides of a dense tensor of the same shape, with its axes in the same order."""
    return _strides(tensor, tensor, tuple(tensor.shape), False)


def require(holds: Any, failure: Callable[[], str]) -> None:
    """Raise ``RuntimeError`` unless ``holds``, which may be a fact of symbolic sizes: then it is assumed.

    NOTE: ``torch._check`` imports sympy, a third of a second of the first call of a process.
    """
    if holds is not True:
        torch._check(holds, failure)  # type: ignore[no-untyped-call]


def result_dtype(operand: torch.Tensor) -> torch.dtype:
    return torch.int32 if operand.dtype == torch.int8 else operand.dtype


def _layout_of(tensor: torch.Tensor) -> ArrayLayout:
    """As ``describe`` reads it, without turning symbolic sizes into numbers; the dtype plays no part."""
    strides = tuple(tensor.stride())
    return ArrayLayout(tuple(tensor.shape), strides, "", steps=strides)
