"""Tensor maps of operands and results: boxes of their axes, and pixels that the im2col mode walks."""

from __future__ import annotations

from tilesmith.plan.records import Im2col, TensorMap
from tilesmith.problems.dtypes import acc_dtype
from tilesmith.solvers.cuda.common.form import Mapped, Window


def box_map(operand: Mapped, dtype: str, box: tuple[int, ...], swizzle: int = 0) -> TensorMap:
    """Loads or stores ``box`` elements of each axis, swizzled by the box's contiguous bytes if not by ``swizzle``."""
    ones = (1,) * len(operand.dims)
    swizzle = swizzle or acc_dtype(dtype).nbytes * box[0]
    return TensorMap(operand.pointer, dtype, operand.dims, _bytes(operand, dtype), box, ones, swizzle)


def window_map(window: Window, dtype: str, channels: int, pixels: int) -> TensorMap:
    """Loads ``channels`` of ``pixels`` neighbouring base pixels, moved by the offset of a tap."""
    sizes = window.dims[1:-1]
    upper = tuple(
        corner + (base - 1) * step + 1 - size
        for corner, base, step, size in zip(window.corner, window.base, window.step, sizes, strict=True)
    )
    im2col = Im2col(window.corner, upper, channels, pixels)
    steps = (1, *window.step, 1)
    swizzle = channels * acc_dtype(dtype).nbytes
    return TensorMap(window.pointer, dtype, window.dims, _bytes(window, dtype), (), steps, swizzle, im2col)


def _bytes(operand: Mapped, dtype: str) -> tuple[int, ...]:
    return tuple(acc_dtype(dtype).nbytes * stride for stride in operand.strides)
