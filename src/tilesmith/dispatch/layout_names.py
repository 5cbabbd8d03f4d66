"""Chooses the layout names of a problem's tensors: the order of their axes in memory, whatever the strides of unit
axes.

The stride of an axis of size 1 changes no address, so several names fit a tensor with such axes: a dense tensor of
shape ``(8, 1, 28, 28)`` is both ``NCHW`` and ``NHWC``. The names of all tensors of a problem are chosen together:
channels-last if it fits all, else channels-first if it fits all, else the result's name if it fits, else the first that
fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.dispatch.arrays import ArrayLayout, contiguous, permuted
from tilesmith.problems.layouts import channels_last, default_layout, dense_strides, parse_layout
from tilesmith.problems.spellings import Axes, follows, own_order


@dataclass(frozen=True)
class NamedArray:
    """An array in a layout that a signature can name: with its axes in ``order`` (None: unchanged), or as a copy."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    layout: str
    order: tuple[int, ...] | None = None
    copy: bool = False

    def take(self, array: Any) -> Any:
        """``array`` with its axes in order."""
        if self.copy:
            array = contiguous(array)
        return array if self.order is None else permuted(array, self.order)


def place(tensors: Sequence[ArrayLayout], layouts: Sequence[str]) -> tuple[NamedArray, ...]:
    """The layout names of a problem's tensors, the result last; ``layouts`` are the given orders of their axes.

    A channels-last tensor whose axes are called ``NCHW`` becomes ``NHWC``. Strides that are no pitches (negative, zero,
    overlapping) cost a copy.
    """
    parsed = [parse_layout(text) for text in layouts]
    if any(
        len(described.shape) != layout.rank or layout.vector > 1
        for described, layout in zip(tensors, parsed, strict=True)
    ):
        # A vector's axis stays where it is; of wrong numbers of axes the signature says what is wrong.
        return tuple(_as_named(described, text) for described, text in zip(tensors, layouts, strict=True))
    axes = [_axes(described, text) for described, text in zip(tensors, layouts, strict=True)]
    copied = [described.odd or own_order(found) is None for described, found in zip(tensors, axes, strict=True)]
    dense = [
        ArrayLayout(described.shape, None, described.dtype) if copy else described
        for described, copy in zip(tensors, copied, strict=True)
    ]
    axes = [_axes(described, text) for described, text in zip(dense, layouts, strict=True)]
    standard = tuple(str(make(parsed[-1].spatial_dims)) for make in (channels_last, default_layout))
    common = next((name for name in standard if all(follows(each, name) for each in axes)), None)
    result = common or _first(axes[-1], standard)
    return tuple(
        _placed(each, text, common or _first(each, (result, *standard)), copy)
        for each, text, copy in zip(axes, layouts, copied, strict=True)
    )


def result_order(x: ArrayLayout, w: ArrayLayout, layouts: Sequence[str], *, tensors: bool) -> str:
    """The memory order of a convolution's result if the caller names none; ``layouts`` are those of x, w and y.

    PyTorch's rule, which also reads strides of unit axes: channels-last if PyTorch regards x or w as channels-last
    (``suggest_memory_format`` in its ``c10/core/MemoryFormat.h``; not with one spatial axis), else channels-first.
    Arrays that are no ``tensors`` of PyTorch, and a caller who named layouts of x or w, get the memory order of x in
    place of channels-first, unless channels-first fits.
    """
    parsed = [parse_layout(text) for text in layouts]
    dims = parsed[0].spatial_dims
    if max(layout.vector for layout in parsed) > 1 or x.odd or 0 in (*x.shape, *w.shape):
        return layouts[2]
    if any(len(described.shape) != dims + 2 for described in (x, w)):
        return layouts[2]
    default = str(default_layout(dims))
    unnamed = set(layouts) == {default}
    if dims > 1 and unnamed and any(_suggests_channels_last(each, default) for each in (x, w)):
        return str(channels_last(dims))
    if tensors and unnamed:
        return default
    axes = _axes(x, layouts[0])
    if own_order(axes) is None or follows(axes, layouts[0]):
        return layouts[2]
    return _first(axes, (str(channels_last(dims)), default))


def _suggests_channels_last(described: ArrayLayout, layout: str) -> bool:
    if described.steps is None:
        return False
    named = dict(zip(layout, zip(described.shape, described.steps, strict=True), strict=True))
    innermost = 0
    for axis in ("C", "W", "H", *("D" * ("D" in named)), "N"):
        size, step = named[axis]
        if step < innermost or (axis == "N" and innermost == named["C"][1]):
            return False
        innermost = step * size if size > 1 else step
    return named["C"][1] != 0


def _axes(described: ArrayLayout, layout: str) -> Axes:
    strides = described.strides or dense_strides(described.shape)
    return dict(zip(layout, zip(described.shape, strides, strict=True), strict=True))


def _first(axes: Axes, names: Sequence[str]) -> str:
    """The first of the names that fits, else the order in which the axes lie."""
    found = next((name for name in names if follows(axes, name)), None) or own_order(axes)
    assert found is not None
    return found


def _as_named(described: ArrayLayout, layout: str) -> NamedArray:
    parsed = parse_layout(layout)
    if described.strides is None or len(described.shape) != parsed.rank:
        return NamedArray(described.shape, None, layout, copy=described.odd)
    pitched = _pitches(described.shape, described.strides) and (parsed.vector == 1 or described.strides[-1] == 1)
    return NamedArray(described.shape, described.strides if pitched else None, layout, copy=not pitched)


def _placed(axes: Axes, layout: str, name: str, copy: bool) -> NamedArray:
    shape = tuple(axes[letter][0] for letter in name)
    strides = _with_unit_strides(shape, tuple(axes[letter][1] for letter in name))
    order = None if name == layout else tuple(layout.index(letter) for letter in name)
    return NamedArray(shape, None if strides == dense_strides(shape) else strides, name, order, copy)


def _with_unit_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Set the strides of unit axes to those of a dense tensor, so that equal memory has equal strides."""
    result = list(strides)
    inner = 1
    for axis in range(len(shape) - 1, -1, -1):
        if shape[axis] == 1:
            result[axis] = inner
        inner = max(inner, result[axis] * shape[axis])
    return tuple(result)


def _pitches(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    letters = "abcdefgh"[: len(shape)]
    return follows(dict(zip(letters, zip(shape, strides, strict=True), strict=True)), letters)
