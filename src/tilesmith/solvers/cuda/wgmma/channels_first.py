"""1x1 convolutions whose images lie channel by channel (NCHW), as products of each image where it lies.

Forward and backward data multiply the filter by an image's channels x pixels, backward weights sum over the pixels of
each image. Nothing is copied; a bias has an element for each row.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.features import EPILOGUE, SCALED, USUAL
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.problems.linear import Axis, merge_axes
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX, slot
from tilesmith.solvers.cuda.common.form import (
    Placed,
    Sm90Form,
    Tiled,
    aligned,
    refuse_dtypes,
    result_slots,
    scale_slot,
    steps_along,
    stores_whole,
)
from tilesmith.solvers.cuda.wgmma.solver import WgmmaSolver
from tilesmith.solvers.solver import Geometry, Rejected


class ChannelsFirstSolver(WgmmaSolver):
    """Filters of one pixel, stride 1, no padding; images of whole 16 bytes a channel, whose pixels are contiguous."""

    name = "wgmma_channels_first"
    revision = 1
    features = USUAL | EPILOGUE | SCALED | {"fwd", "bwd", "wrw", "depth"}

    def form(self, problem: Geometry) -> Sm90Form | Rejected:
        assert isinstance(problem, ConvGeometry)
        return channels_first_form(problem)


@lru_cache(maxsize=256)
def channels_first_form(g: ConvGeometry) -> Sm90Form | Rejected:
    """``g`` as products of each image, or why it is none."""
    if g.direction not in ("fwd", "bwd", "wrw"):
        return Rejected(reasons.DIRECTION, g.direction)
    source, other, result = {"fwd": (g.x, g.w, g.y), "bwd": (g.y, g.w, g.x), "wrw": (g.x, g.y, g.w)}[g.direction]
    if source.dtype not in HALVES:
        return Rejected(reasons.DTYPE, source.dtype)
    refused = refuse_dtypes(source.dtype, other.dtype, result.dtype, g.acc_dtype, g.tf32)
    if refused:
        return refused
    if max(g.filter) > 1:
        return Rejected(reasons.FILTER, "more than one pixel")
    if max(g.n * prod(g.output), g.c, g.k) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    for view in (g.x, g.y):
        if not _has_planes(view):
            return Rejected(reasons.LAYOUT, f"pixels of {view.name} are not contiguous")
    return _weights(g) if g.direction == "wrw" else _image(g, source, result)


def _image(g: ConvGeometry, source: TensorView, result: TensorView) -> Sm90Form | Rejected:
    """The result's channels x pixels of each image; the filter is k x c."""
    forward, pixels = g.direction == "fwd", prod(g.output)
    image, filter_ = _planes(source, 0), _filter(g.w)
    if image is None or filter_ is None:
        return _uneven(source if image is None else g.w)
    bias, residual, out = result_slots(g.epilogue)
    layer, row = result.strides[0] if g.n > 1 else 0, result.strides[1] if result.shape[1] > 1 else pixels
    nbytes, mapped = dtype(result.dtype).nbytes, None
    row_step, layer_step = steps_along((result.shape[1], g.n), (row, layer), nbytes)
    if result.dtype in HALVES and aligned(row_step, layer_step, nbytes=nbytes) and stores_whole(pixels, nbytes=nbytes):
        mapped = Tiled(out, (pixels, result.shape[1], g.n), (row_step, layer_step))
    return Sm90Form(
        kind="gemm", dtype=source.dtype, out_dtype=result.dtype, rows=result.shape[1], cols=pixels, layers=g.n,
        reduced=source.shape[1], a=filter_, b=image, a_columns=not forward, b_columns=True,
        placed=Placed(layer, row, 1), mapped=mapped, out=out, bias=bias, residual=residual, bias_of_rows=True,
        epilogue=g.epilogue, scale=scale_slot(g.epilogue),
    )  # fmt: skip


def _weights(g: ConvGeometry) -> Sm90Form | Rejected:
    """The filter's k x c: a sum over the pixels of all images, which are contiguous in both operands."""
    pixels = prod(g.output)
    dy, x = _planes(g.y, 0), _planes(g.x, 1)
    if dy is None or x is None:
        return _uneven(g.y if dy is None else g.x)
    out, mapped, row = slot(2), None, g.w.strides[0] if g.k > 1 else g.c
    (row_step,) = steps_along((g.k,), (row,), dtype(g.w.dtype).nbytes)
    if not g.w.channels_last:
        return Rejected(reasons.LAYOUT, "channels of w are not contiguous")
    if g.w.dtype in HALVES and aligned(row_step) and stores_whole(g.c, g.w.owns_gaps):
        mapped = Tiled(out, (g.c, g.k, 1), (row_step, 8))
    return Sm90Form(
        kind="gemm", dtype=g.x.dtype, out_dtype=g.w.dtype, rows=g.k, cols=g.c, layers=1, reduced=g.n * pixels,
        images=g.n, a=dy, b=x, a_columns=False, b_columns=False, placed=Placed(0, row, 1), mapped=mapped, out=out,
    )  # fmt: skip


def _has_planes(view: TensorView) -> bool:
    """Whether the pixels of a channel are contiguous."""
    merged = merge_axes([Axis(size, step, step) for size, step in zip(view.shape[2:], view.strides[2:], strict=True)])
    return view.vector == 1 and len(merged) <= 1 and all(axis.first == 1 for axis in merged)


def _planes(view: TensorView, index: int) -> Tiled | None:
    """Pixels x channels x images, if each channel is whole pieces of 16 bytes from the next one."""
    steps = steps_along((view.shape[1], view.shape[0]), (view.strides[1], view.strides[0]))
    dims = (prod(view.shape[2:]), view.shape[1], view.shape[0])
    return Tiled(slot(index), dims, steps) if aligned(*steps) else None


def _filter(w: TensorView) -> Tiled | None:
    """Channels x rows of the filter, if each row is whole pieces of 16 bytes from the next one."""
    (row,) = steps_along((w.shape[0],), (w.strides[0],))
    whole = w.channels_last and aligned(row)
    return Tiled(slot(1), (w.shape[1], w.shape[0], 1), (row, 8)) if whole else None


def _uneven(view: TensorView) -> Rejected:
    return Rejected(reasons.LAYOUT, f"rows of {view.name} are no multiples of 16 bytes")
