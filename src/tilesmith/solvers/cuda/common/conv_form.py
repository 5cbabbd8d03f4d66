"""Convolutions in the form of ``form``: the tensor map's im2col mode walks the pixels."""

from __future__ import annotations

import itertools
from functools import lru_cache
from math import prod

from tilesmith.plan.records import Pointer
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX, slot
from tilesmith.solvers.cuda.common.dense_conv import even_step
from tilesmith.solvers.cuda.common.form import (
    Mapped,
    Placed,
    Sm90Form,
    Taps,
    Tiled,
    Window,
    aligned,
    element_of,
    refuse_dtypes,
    result_slots,
    scale_slot,
    steps_along,
    stores_whole,
)
from tilesmith.solvers.solver import Rejected

MAX_LAYERS = 64
MAX_TAPS = 1024
# The im2col mode: signed corners and unsigned offsets of as many values, by the number of the map's axes.
_CORNERS = {4: 128, 5: 16}
_OFFSETS = {4: 256, 5: 32}
_MAX_STEP = 8


@lru_cache(maxsize=256)
def conv_form(g: ConvGeometry) -> Sm90Form | Rejected:
    """``g`` in the form, or why it has none."""
    refused = _refuse(g)
    if refused:
        return refused
    source, result = (g.y, g.x) if g.direction == "bwd" else (g.x, g.y)
    reduced, cols = (g.k, g.c) if g.direction == "bwd" else (g.c, g.k)
    built = _taps(g)
    if isinstance(built, Rejected):
        return built
    taps, corner, base, step = built
    spatial = spatial_axes(g)
    window = _window(0 if g.direction != "wrw" else 1, source, spatial, corner, base, step)
    weights = g.direction == "wrw"
    filter_ = _filter(g.w, 2 if weights else 1, weights and g.w.dtype not in HALVES)
    if isinstance(window, Rejected):
        return window
    if isinstance(filter_, Rejected):
        return filter_
    if g.n * prod(base[:spatial]) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    if g.direction == "wrw":
        return _weights(g, window, filter_, taps)
    bias, residual, out = result_slots(g.epilogue)
    placed, mapped = _placed(g, result, source.dtype, base, out)
    halo = g.direction == "bwd" and any(
        corner[i] < 0 or base[i] + max((o >> 8 * i & 255) for o in taps.offset) + corner[i] > source.shape[4 - i]
        for i in range(spatial)
    )
    return Sm90Form(
        kind="conv", dtype=element_of(source.dtype, g.tf32), out_dtype=result.dtype, rows=g.n * prod(base), cols=cols,
        layers=len(taps.first) - 1, reduced=reduced, a=window, b=filter_, a_columns=False,
        b_columns=g.direction == "bwd", placed=placed, mapped=mapped, out=out,
        bias=bias, residual=residual, taps=taps, channels=reduced, halo=halo, epilogue=g.epilogue,
        b_dtype=element_of(g.w.dtype, g.tf32), scale=scale_slot(g.epilogue),
    )  # fmt: skip


def _refuse(g: ConvGeometry) -> Rejected | None:
    if g.direction not in ("fwd", "bwd", "wrw"):
        return Rejected(reasons.DIRECTION, g.direction)
    operands = {"fwd": (g.x, g.w, g.y), "bwd": (g.y, g.w, g.x), "wrw": (g.x, g.y, g.w)}[g.direction]
    refused = refuse_dtypes(operands[0].dtype, operands[1].dtype, operands[2].dtype, g.acc_dtype, g.tf32)
    if refused:
        return refused
    if g.direction != "fwd" and dtype(operands[0].dtype).nbytes != 2:
        return Rejected(reasons.DIRECTION, f"{g.direction} of {operands[0].dtype}: k is not contiguous")
    if operands[2].dtype == "int32" and not g.epilogue.is_identity:
        return Rejected(reasons.EPILOGUE, "an epilogue of integers")
    if g.groups != 1:
        return Rejected(reasons.GROUPS, f"{g.groups} groups")
    if max(g.x.vector, g.w.vector, g.y.vector) > 1:
        return Rejected(reasons.LAYOUT, "vector layout")
    for view in operands:
        if not view.channels_last:
            return Rejected(reasons.LAYOUT, f"{view.name} is not channels-last")
    return None


def spatial_axes(g: ConvGeometry) -> int:
    """Axes of an image: 3 where the depth takes part."""
    return 3 if max(g.input[0], g.filter[0], g.output[0]) > 1 or g.padding[0] > 0 else 2


def _taps(g: ConvGeometry) -> tuple[Taps, tuple[int, ...], tuple[int, ...], tuple[int, ...]] | Rejected:
    """Taps by layer, and per axis (W, H, D) the window's corner, base pixels and step."""
    axes = [_axis(g, 2 - i) for i in range(3)]
    corner = tuple(min((at for phase in axis for at, _ in phase), default=0) for axis in axes)
    first, offset, index = [0], [], []
    if prod(len(axis) for axis in axes) > MAX_LAYERS:
        return Rejected(reasons.STRIDE, f"stride {g.stride}")
    rank = spatial_axes(g) + 2
    for d, h, w in itertools.product(*reversed(axes)):
        for (zd, t), (zh, r), (zw, s) in itertools.product(d, h, w):
            away = (zw - corner[0], zh - corner[1], zd - corner[2])
            if max(away) >= _OFFSETS[rank]:
                return Rejected(reasons.DILATION, f"filter {g.filter}, dilation {g.dilation}")
            offset.append(away[0] | away[1] << 8 | away[2] << 16)
            index.append((t * g.filter[1] + r) * g.filter[2] + s)
        first.append(len(offset))
    if len(offset) > MAX_TAPS:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    if g.direction == "bwd":
        base = tuple(-(-g.input[2 - i] // g.stride[2 - i]) for i in range(3))
        step = (1, 1, 1)
    else:
        base = (g.output[2], g.output[1], g.output[0])
        # A single pixel has no step.
        step = tuple(1 if base[i] == 1 else g.stride[2 - i] for i in range(3))  # type: ignore[assignment]
    return Taps(tuple(first), tuple(offset), tuple(index)), corner, base, step


def _axis(g: ConvGeometry, i: int) -> list[list[tuple[int, int]]]:
    """Taps (position, index in the filter) of each phase of an axis."""
    s, p, d, f = g.stride[i], g.padding[i], g.dilation[i], g.filter[i]
    if g.direction != "bwd":
        return [[(r * d - p, r) for r in range(f)]]
    return [
        sorted(((phase + p - r * d) // s, r) for r in range(f) if (phase + p - r * d) % s == 0) for phase in range(s)
    ]


def pixel_axes(pointer: Pointer, view: TensorView, spatial: int) -> Mapped:
    """A tensor of pixels by (C, W, H, [D,] N); ``spatial`` is 2 or 3."""
    n, c, *sizes = view.shape
    dims = (c, *reversed(sizes[3 - spatial :]), n)
    strides = (*reversed(view.strides[5 - spatial :]), view.strides[0])
    return Mapped(pointer, dims, steps_along(dims[1:], strides, dtype(view.dtype).nbytes))


def even_pixels(view: TensorView) -> bool:
    """Whether a tensor map can walk the pixels."""
    nbytes, sizes = dtype(view.dtype).nbytes, (view.shape[0], *view.shape[2:])
    return aligned(*steps_along(sizes, (view.strides[0], *view.strides[2:]), nbytes), nbytes=nbytes)


def _window(
    index: int, view: TensorView, spatial: int, corner: tuple[int, ...], base: tuple[int, ...], step: tuple[int, ...]
) -> Window | Rejected:
    if not even_pixels(view):
        return Rejected(reasons.LAYOUT, f"pixels of {view.name} are no multiples of 16 bytes")
    axes = pixel_axes(slot(index), view, spatial)
    window = Window(axes.pointer, axes.dims, axes.strides, corner[:spatial], base[:spatial], step[:spatial])
    for i, (lower, upper) in enumerate(window.corners):
        if not _within(lower, upper, len(axes.dims)):
            return Rejected(reasons.FILTER, f"the window's corners {lower} and {upper}")
        if step[i] > _MAX_STEP:
            return Rejected(reasons.STRIDE, f"stride {step[i]}")
    return window


def window_reaches(window: Window, taps: Taps, axes: int) -> bool:
    """Whether a map of so many axes can have the window's corners and the offsets of the taps."""
    offsets = all(offset >> 8 * i & 255 < _OFFSETS[axes] for offset in taps.offset for i in range(3))
    return offsets and all(_within(lower, upper, axes) for lower, upper in window.corners)


def _within(lower: int, upper: int, axes: int) -> bool:
    limit = _CORNERS[axes]
    return -limit <= lower < limit and -limit <= upper < limit


def _filter(w: TensorView, index: int, result: bool) -> Tiled | Rejected:
    """The filter as (channels, taps, rows); a ``result`` need not be aligned."""
    k, c, t, r, s = w.shape
    tap, merged = None, 1
    for size, stride in zip((s, r, t), reversed(w.strides[2:]), strict=True):
        if size > 1:
            tap = stride if tap is None else tap
            if stride != tap * merged:
                return Rejected(reasons.LAYOUT, "the filter's taps do not lie evenly")
            merged *= size
    nbytes = dtype(w.dtype).nbytes
    row, tap_step = steps_along((k, t * r * s), (w.strides[0], tap or 16 // nbytes), nbytes)
    if not result and not aligned(row, tap_step, nbytes=nbytes):
        return Rejected(reasons.LAYOUT, "rows of the filter are no multiples of 16 bytes")
    return Tiled(slot(index), (c, t * r * s, k), (tap_step, row), across=2)


def _linear(view: TensorView) -> int | None:
    """The step from pixel to pixel when all pixels lie evenly."""
    step = even_step(view)
    return step if step is None else step or view.shape[1]


def _placed(
    g: ConvGeometry, view: TensorView, source: str, base: tuple[int, ...], out: Pointer
) -> tuple[Placed, Tiled | None]:
    """Where the results lie, and how a tensor map stores them; ``source`` is the operands' type."""
    step = _linear(view)
    n, _, d, h, w = view.strides
    if g.direction == "bwd" and max(g.stride) > 1:
        step = None
    if step is None:
        sizes, phases = view.shape[:1:-1], (g.stride[::-1] if g.direction == "bwd" else (1, 1, 1))
        return Placed(pixels=(n, d, h, w), sizes=sizes, phases=phases), None
    rows = view.shape[0] * prod(view.shape[2:])
    nbytes, mapped = dtype(view.dtype).nbytes, None
    (row,) = steps_along((rows,), (step,), nbytes)
    stored = view.dtype in HALVES or dtype(source).nbytes != 2
    if stored and aligned(row, nbytes=nbytes) and stores_whole(view.shape[1], view.owns_gaps, nbytes):
        mapped = Tiled(out, (view.shape[1], rows, 1), (row, 16 // nbytes))
    return Placed(0, step, 1), mapped


def _weights(g: ConvGeometry, window: Window, filter_: Tiled, taps: Taps) -> Sm90Form | Rejected:
    step = _linear(g.y)
    pixels = g.n * prod(g.output)
    if step is None:
        return Rejected(reasons.LAYOUT, "pixels of y do not lie evenly")
    (step,) = steps_along((pixels,), (step,))
    if not aligned(step):
        return Rejected(reasons.LAYOUT, "pixels of y are no multiples of 16 bytes")
    dy = Tiled(slot(0), (g.k, pixels, 1), (step, 8))
    count = len(taps.offset)
    stores = g.w.dtype in HALVES and stores_whole(g.c, g.w.owns_gaps)
    return Sm90Form(
        kind="wrw", dtype=g.x.dtype, out_dtype=g.w.dtype, rows=g.k, cols=count * (-(-g.c // 64)) * 64, layers=1,
        reduced=pixels, a=dy, b=window, a_columns=True, b_columns=True,
        placed=Placed(0, g.w.strides[0] if g.k > 1 else count * g.c, 1, filter_.strides[0]),
        mapped=filter_ if stores else None, out=filter_.pointer, taps=taps, channels=g.c,
    )  # fmt: skip
