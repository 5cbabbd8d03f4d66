"""The axes that a copy from one layout to another walks."""

from __future__ import annotations

from itertools import pairwise
from math import lcm

from tilesmith.problems.geometry import TensorView

Axis = tuple[int, int, int]  # size, stride in the source, stride in the result (elements)


def common_axes(source: TensorView, result: TensorView) -> list[Axis]:
    """The axes of both views, those that lie alike on both sides merged, unit axes left out; the result's order."""
    width = lcm(source.vector, result.vector)
    axes = [
        (n, a, b)
        for i, (n, a, b) in enumerate(zip(source.shape, source.strides, result.strides, strict=True))
        if i != 1
    ]
    # Channels split at every vector width that either side knows.
    channels = source.shape[1]
    cuts = sorted({1, source.vector, result.vector, width, channels} if channels % width == 0 else {1, channels})
    if channels % width and width > 1:
        raise ValueError(f"{channels} channels do not divide by the vectors of {source} and {result}")
    for low, high in pairwise(cuts):
        axes.append((high // low, _channel_step(source, low), _channel_step(result, low)))
    axes = sorted((axis for axis in axes if axis[0] > 1), key=lambda axis: (-axis[2], -axis[1]))
    merged: list[Axis] = []
    for axis in axes:
        if merged and merged[-1][1] == axis[0] * axis[1] and merged[-1][2] == axis[0] * axis[2]:
            merged[-1] = (merged[-1][0] * axis[0], axis[1], axis[2])
        else:
            merged.append(axis)
    return merged


def _channel_step(view: TensorView, low: int) -> int:
    """Elements from channel ``c`` to ``c + low``, where ``low`` is 1 or a cut of the channel axis."""
    if view.vector == 1:
        return low * view.strides[1]
    return low if low < view.vector else low // view.vector * view.strides[1]
