"""Convolutions whose every address is linear in three indices (row, column, reduction): matrix multiplications.

Without padding, element ``o*stride + r*dilation`` of the image is linear in the output position ``o`` and the tap
``r``. When the axes that play one part merge into a single axis in both tensors that hold them, the problem is a GEMM
as it lies in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.errors import ProblemError
from tilesmith.problems.dtypes import TF32
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.problems.limits import MAX_SIZE


@dataclass(frozen=True)
class Axis:
    """An axis that two tensors share: its size and its stride in each."""

    size: int
    first: int
    second: int


def merge_axes(axes: list[Axis]) -> list[Axis]:
    """The fewest axes, outermost first, that address the same elements of both tensors; unit axes vanish."""
    merged: list[Axis] = []
    for axis in sorted((a for a in axes if a.size > 1), key=lambda a: (-a.first, -a.second)):
        outer = merged[-1] if merged else None
        if outer and outer.first == axis.size * axis.first and outer.second == axis.size * axis.second:
            merged[-1] = Axis(outer.size * axis.size, axis.first, axis.second)
        else:
            merged.append(axis)
    return merged


_UNIT = Axis(1, 1, 1)


def _single(axes: list[Axis]) -> Axis | None:
    merged = merge_axes(axes)
    return None if len(merged) > 1 else (merged or [_UNIT])[0]


def conv_as_gemm(g: ConvGeometry) -> GemmSignature | None:
    """``g`` as a GEMM on the same tensors, or None.

    fwd: y[pixel, k] = x[pixel, taps c] @ w[k, taps c]^T. bwd: dx[pixel, taps c] = dy[pixel, k] @ w[k, taps c].
    wrw: dw[k, taps c] = dy[pixel, k]^T @ x[pixel, taps c].
    """
    if g.direction == "bgrad" or g.groups != 1 or g.is_padded or max(g.x.vector, g.w.vector, g.y.vector) > 1:
        return None
    if g.direction == "bwd" and (not _covers_once(g) or _counts_channels(g)):
        return None
    x, w, y = g.x.strides, g.w.strides, g.y.strides
    pixels = merge_axes(
        [Axis(g.n, x[0], y[0])]
        + [Axis(g.output[i], x[2 + i] * g.stride[i], y[2 + i]) for i in range(3)]
    )  # fmt: skip
    taps = _single([Axis(g.filter[i], x[2 + i] * g.dilation[i], w[2 + i]) for i in range(3)] + [Axis(g.c, x[1], w[1])])
    # Several axes of pixels can be a batch of GEMMs that share w, but a strided image makes those too small to pay.
    batched = len(pixels) == 2 and g.direction != "wrw" and max(g.stride) == 1
    if taps is None or (len(pixels) > 1 and not batched):
        return None
    batch = pixels[0] if batched else _UNIT
    pixel = pixels[-1] if pixels else _UNIT
    if g.direction == "fwd":
        a = _Matrix(g.x.dtype, pixel.size, taps.size, pixel.first, taps.first, batch.first)
        b = _Matrix(g.w.dtype, taps.size, g.k, taps.second, w[0], 0)
        c = _Matrix(g.y.dtype, pixel.size, g.k, pixel.second, y[1], batch.second)
    elif g.direction == "bwd":
        a = _Matrix(g.y.dtype, pixel.size, g.k, pixel.second, y[1], batch.second)
        b = _Matrix(g.w.dtype, g.k, taps.size, w[0], taps.second, 0)
        c = _Matrix(g.x.dtype, pixel.size, taps.size, pixel.first, taps.first, batch.first)
    else:
        a = _Matrix(g.y.dtype, g.k, pixel.size, y[1], pixel.second, 0)
        b = _Matrix(g.x.dtype, pixel.size, taps.size, pixel.first, taps.first, 0)
        c = _Matrix(g.w.dtype, g.k, taps.size, w[0], taps.second, 0)
    return _gemm(g, a, b, c, batch.size)


def _counts_channels(g: ConvGeometry) -> bool:
    """Whether the epilogue asks for a column's channel, where a column is a tap and a channel."""
    return max(g.filter) > 1 and (g.epilogue.bias or g.epilogue.scale == "channel")


def _covers_once(g: ConvGeometry) -> bool:
    """Whether every element of dx gets one product per channel: nothing to sum over taps, nothing left at zero."""
    return all(
        (f == 1 and size == out) or (d == 1 and ((out == 1 and f == size) or (s == f and size == out * f)))
        for f, size, out, s, d in zip(g.filter, g.input, g.output, g.stride, g.dilation, strict=True)
    )


@dataclass(frozen=True)
class _Matrix:
    """An operand as it is multiplied, with the strides of its rows, columns and batches."""

    dtype: str
    rows: int
    columns: int
    row: int
    column: int
    step: int

    def stored(self) -> tuple[bool, int] | None:
        """``(transposed, leading dimension)``, or None when neither axis is contiguous or rows overlap."""
        if self.column == 1 or self.columns == 1:
            lead = self.row if self.rows > 1 else self.columns
            return (False, lead) if lead >= self.columns else None
        if self.row == 1 or self.rows == 1:
            return (True, self.column) if self.column >= self.rows else None
        return None


def _gemm(g: ConvGeometry, a: _Matrix, b: _Matrix, c: _Matrix, batch: int) -> GemmSignature | None:
    in_a, in_b, in_c = a.stored(), b.stored(), c.stored()
    if in_a is None or in_b is None or in_c is None or in_c[0]:
        return None
    if max(a.rows, a.columns, b.columns) > MAX_SIZE:
        return None
    (trans_a, lda), (trans_b, ldb), (_, ldc) = in_a, in_b, in_c
    steps = (a.step, b.step, c.step) if batch > 1 else (None, None, None)
    try:
        return GemmSignature(
            m=a.rows, n=b.columns, k=a.columns, batch=batch, trans_a=trans_a, trans_b=trans_b,
            a_dtype=a.dtype, b_dtype=b.dtype, c_dtype=c.dtype, acc_dtype=TF32.name if g.tf32 else g.acc_dtype,
            lda=lda, ldb=ldb, ldc=ldc, stride_a=steps[0], stride_b=steps[1], stride_c=steps[2],
            epilogue=g.epilogue, deterministic=g.deterministic,
        )  # fmt: skip
    except ProblemError:
        return None  # batches that lie in each other in a way that one stride cannot say
