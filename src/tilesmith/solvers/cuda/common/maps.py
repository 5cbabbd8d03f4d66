"""Tensor maps of 16-bit operands: boxes of their axes, and pixels that the im2col mode walks."""

from __future__ import annotations

from tilesmith.plan.records import Im2col, TensorMap
from tilesmith.solvers.cuda.common.form import Mapped, Window


def box_map(operand: Mapped, dtype: str, box: tuple[int, ...], swizzle: int = 0) -> TensorMap:
    """Loads or stores ``box`` elements of each axis, swizzled by the box's contiguous bytes if not by ``swizzle``."""
    ones = (1,) * len(operand.dims)
    return TensorMap(operand.pointer, dtype, operand.dims, _bytes(operand), box, ones, swizzle or 2 * box[0])


def window_map(window: Window, dtype: str, channels: int, pixels: int) -> TensorMap:
    """Loads ``channels`` of ``pixels`` neighbouring base pixels, moved by the offset of a tap."""
    sizes = window.dims[1:-1]
    upper = tuple(
        corner + (base - 1) * step + 1 - size
        for corner, base, step, size in zip(window.corner, window.base, window.step, sizes, strict=True)
    )
    im2col = Im2col(window.corner, upper, channels, pixels)
    steps = (1, *window.step, 1)
    return TensorMap(window.pointer, dtype, window.dims, _bytes(window), (), steps, channels * 2, im2col)


def _bytes(operand: Mapped) -> tuple[int, ...]:
    return tuple(2 * stride for stride in operand.strides)
