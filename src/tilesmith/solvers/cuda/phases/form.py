"""Convolutions whose results lie on a grid of positions, each with a phase for every residue modulo the stride.

Result ``o`` and input ``i`` meet in tap ``k`` where ``o + pad == stride * i + k``. With ``o + pad == stride * b + a``,
position ``b`` sees the inputs ``b - j`` in taps ``a + stride * j``: ``ceil(filter / stride)`` of them along an axis,
whatever the phase ``a``. Forward convolution of stride 1 is the same with a filter that is turned around.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.geometry import ConvGeometry, TensorView, Triple
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX, widest
from tilesmith.solvers.solver import Rejected, cached_property

MAX_TAPS = 1024
MAX_COLUMNS = 512  # of a row of phases: a block computes whole rows
MAX_ALONE = 128  # results of a pixel without a stride: more are a dense problem
_MAX_SPREAD = 4096  # taps of a position, and phases: more is no problem of this family
Steps = tuple[int, int, int, int]


@dataclass(frozen=True)
class PhasesForm:
    """``channels`` are summed, ``cols`` computed. Axes are (D, H, W), or (N, H, W) where there is no depth.

    ``first`` is the first position, ``base`` counts them; ``size`` is the input's, ``out_size`` the results'.
    ``source`` and ``result`` are the steps of (outer, *axes) in elements; ``outer`` images lie outside of the axes.
    ``weights`` are the filter's steps (channel, column, *taps). ``gap`` is the step between pixels of a row of results.
    """

    dtype: str
    out_dtype: str
    turned: bool  # forward: tap ``k`` is the filter's ``filter - 1 - k``
    channels: int
    cols: int
    filter: Triple
    stride: Triple
    pad: Triple
    size: Triple
    out_size: Triple
    outer: int
    source: Steps
    result: Steps
    weights: tuple[int, int, int, int, int]
    in_vector: int
    epilogue: Epilogue

    @cached_property
    def taps(self) -> Triple:
        """Taps that a position sees."""
        d, h, w = (-(-r // u) for r, u in zip(self.filter, self.stride, strict=True))
        return d, h, w

    @cached_property
    def first(self) -> Triple:
        d, h, w = (p // u for p, u in zip(self.pad, self.stride, strict=True))
        return d, h, w

    @cached_property
    def base(self) -> Triple:
        last = ((o - 1 + p) // u for o, p, u in zip(self.out_size, self.pad, self.stride, strict=True))
        d, h, w = (end - b + 1 for end, b in zip(last, self.first, strict=True))
        return d, h, w

    @cached_property
    def row_columns(self) -> int:
        """Columns of a row of phases: what a position has in one row of results."""
        return self.stride[2] * self.cols

    @cached_property
    def phase_rows(self) -> int:
        return self.stride[0] * self.stride[1]

    @cached_property
    def padded(self) -> int:
        """Channels in whole pieces of 16 bytes."""
        return -(-self.channels // 8) * 8

    @cached_property
    def dense_rows(self) -> bool:
        """No gaps lie between the pixels of a row of results."""
        return self.result[3] == self.cols

    @cached_property
    def result_bytes(self) -> int:
        return self.outer * prod(self.out_size) * self.cols * dtype(self.out_dtype).nbytes

    @cached_property
    def moved_bytes(self) -> int:
        """Bytes that must come from memory or go there."""
        inputs, results = self.outer * prod(self.size) * self.channels * 2, self.result_bytes
        return inputs + results * (1 + self.epilogue.residual) + self.cols * self.channels * prod(self.filter) * 2

    def out_vector(self, columns: int) -> int:
        """Results that can be stored at once, where a tile's rows of results have a multiple of ``columns``."""
        sizes = (self.outer, *self.out_size[:2])
        steps = [step for step, size in zip(self.result[:3], sizes, strict=True) if size > 1]
        if self.dense_rows:
            begin = (self.first[2] * self.stride[2] - self.pad[2]) * self.cols
            steps += [columns, begin, self.out_size[2] * self.cols]
        else:
            steps += [self.result[3], self.cols]
        return widest(16 // dtype(self.out_dtype).nbytes, steps)


@lru_cache(maxsize=256)
def phases_form(g: ConvGeometry) -> PhasesForm | Rejected:
    """``g`` in the form, or why it has none."""
    if g.direction not in ("fwd", "bwd"):
        return Rejected(reasons.DIRECTION, g.direction)
    forward = g.direction == "fwd"
    source, result = (g.x, g.y) if forward else (g.y, g.x)
    refused = _refuse(g, source, result)
    if refused:
        return refused
    if forward:
        d, h, w = (r - 1 - p for r, p in zip(g.filter, g.padding, strict=True))
    else:
        d, h, w = g.padding
    k, c, *taps = (step if size > 1 else 0 for step, size in zip(g.w.strides, g.w.shape, strict=True))
    channels, cols = (g.c, g.k) if forward else (g.k, g.c)
    flat = (g.filter[0], g.stride[0], g.padding[0], g.input[0], g.output[0]) == (1, 1, 0, 1, 1)
    size, out_size = _axes(source, flat), _axes(result, flat)
    form = PhasesForm(
        dtype=source.dtype, out_dtype=result.dtype, turned=forward, channels=channels, cols=cols, filter=g.filter,
        stride=(1, 1, 1) if forward else g.stride, pad=(d, h, w), size=size, out_size=out_size,
        outer=1 if flat else g.n, source=_steps(source, flat), result=_steps(result, flat),
        weights=(c, k, *taps) if forward else (k, c, *taps),  # type: ignore[arg-type]
        in_vector=_in_vector(source), epilogue=g.epilogue,
    )  # fmt: skip
    if max(form.stride) == 1 and cols > MAX_ALONE:
        return Rejected(reasons.CHANNELS, f"{cols} results of a pixel, and no stride")
    if form.row_columns > MAX_COLUMNS:
        return Rejected(reasons.CHANNELS, f"{form.row_columns} columns in a row of phases")
    if max(prod(form.taps) * form.cols, prod(form.stride)) > _MAX_SPREAD:
        return Rejected(reasons.FILTER, f"filter {g.filter}, stride {g.stride}")
    return form


def _refuse(g: ConvGeometry, source: TensorView, result: TensorView) -> Rejected | None:
    if source.dtype != g.w.dtype or source.dtype not in HALVES:
        return Rejected(reasons.DTYPE, f"{source.dtype} x {g.w.dtype}")
    if result.dtype not in (source.dtype, "fp32") or g.acc_dtype != "fp32":
        return Rejected(reasons.DTYPE, f"{result.dtype}, accumulated in {g.acc_dtype}")
    if g.groups != 1:
        return Rejected(reasons.GROUPS, f"{g.groups} groups")
    # A filter of one tap has no dilation.
    if any(d > 1 and r > 1 for d, r in zip(g.dilation, g.filter, strict=True)):
        return Rejected(reasons.DILATION, f"dilation {g.dilation}")
    if g.direction == "fwd" and max(g.stride) > 1:
        return Rejected(reasons.STRIDE, f"stride {g.stride} of forward")
    if max(g.x.vector, g.w.vector, g.y.vector) > 1 or not (g.x.channels_last and g.y.channels_last):
        return Rejected(reasons.LAYOUT, "channels are not contiguous")
    for view in (g.x, g.w, g.y):
        if span_bytes(view.dtype, view.shape, view.strides) // dtype(view.dtype).nbytes > MAX_INDEX:
            return Rejected(reasons.SIZE)
    if prod(g.filter) > MAX_TAPS:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    if max(*g.filter, *g.stride) == 1:
        return Rejected(reasons.FILTER, "one tap and no stride: a matrix product")
    return None


def _axes(view: TensorView, flat: bool) -> Triple:
    n, _, d, h, w = view.shape
    return (n if flat else d), h, w


def _steps(view: TensorView, flat: bool) -> Steps:
    n, _, d, h, w = view.strides
    return (0, n, h, w) if flat else (n, d, h, w)


def _in_vector(view: TensorView) -> int:
    """Channels that can move at once: an asynchronous copy has at least 4 bytes."""
    sizes, steps = (view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:])
    return widest(8, [step for size, step in zip(sizes, steps, strict=True) if size > 1])
