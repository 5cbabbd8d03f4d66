"""The dense form of convolutions."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry, TensorView, Triple
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import MAX_INDEX, DenseForm, Lines, refuse_types, slot, widest
from tilesmith.solvers.solver import Rejected

MAX_TAPS = 2048


def dense_conv(g: ConvGeometry) -> DenseForm | Rejected:
    """``g`` in the form, or why it has none."""
    if g.direction not in ("fwd", "bwd", "wrw"):
        return Rejected(reasons.DIRECTION, g.direction)
    operands = {"fwd": (g.x, g.w, g.y), "bwd": (g.y, g.w, g.x), "wrw": (g.y, g.x, g.w)}[g.direction]
    refused = refuse_types(operands[0].dtype, operands[1].dtype, operands[2].dtype, g.acc_dtype)
    if refused:
        return refused
    if max(view.vector for view in operands) > 1:
        return Rejected(reasons.LAYOUT, "vector layout")
    for view in operands:
        if span_bytes(view.dtype, view.shape, view.strides) // dtype(view.dtype).nbytes > MAX_INDEX:
            return Rejected(reasons.SIZE)
    if prod(g.filter) > MAX_TAPS:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    return _weights(g) if g.direction == "wrw" else _pixels(g)


def _steps(view: TensorView) -> list[int]:
    """The steps of all axes but the channels that are ever taken."""
    sizes = (view.shape[0], *view.shape[2:])
    strides = (view.strides[0], *view.strides[2:])
    return [stride for size, stride in zip(sizes, strides, strict=True) if size > 1]


def _activations(index: int, view: TensorView, groups: int, by_k: bool, line: int) -> Lines:
    """A tensor of pixels whose channels are divided among groups."""
    n, c, d, h, w = (s if size > 1 else 0 for s, size in zip(view.strides, view.shape, strict=True))
    wide = view.shape[1] // groups
    group = wide * view.strides[1] if groups > 1 else 0
    vector = 1
    if view.strides[1] == 1 and wide > 1:
        vector = widest(16 // dtype(view.dtype).nbytes, [*_steps(view), group])
    return Lines(slot(index), by_k, vector, line, c, (n, d, h, w), group=group)


def _filter(index: int, g: ConvGeometry, vector_axis: int) -> Lines:
    """The filter; ``vector_axis`` is the axis (0: k, 1: c) along which loads or stores run."""
    sizes = (g.k // g.groups, g.c // g.groups, *g.filter)
    k, c, d, h, w = (s if size > 1 else 0 for s, size in zip(g.w.strides, sizes, strict=True))
    group = g.k // g.groups * g.w.strides[0] if g.groups > 1 else 0
    steps = [k, c, d, h, w]
    along = steps.pop(vector_axis)
    vector = widest(16 // dtype(g.w.dtype).nbytes, [*steps, group]) if along == 1 else 1
    reduced, kept = (k, c) if g.direction == "bwd" else (c, k)
    return Lines(slot(index), vector_axis == (0 if g.direction == "bwd" else 1), vector, kept, reduced,
                 tap=(d, h, w), group=group)  # fmt: skip


def _pixels(g: ConvGeometry) -> DenseForm:
    forward = g.direction == "fwd"
    source, result = (g.x, g.y) if forward else (g.y, g.x)
    channels, cols = (g.c, g.k) if forward else (g.k, g.c)
    channels, cols = channels // g.groups, cols // g.groups
    phases = (1, 1, 1) if forward else _triple(min(s, size) for s, size in zip(g.stride, g.input, strict=True))
    image = g.output if forward else g.input
    base = image if forward else _triple(-(-size // s) for s, size in zip(g.stride, image, strict=True))
    # Contiguous input channels: by k in fwd, by columns in bwd; another filter layout loads its own way.
    axis = 1
    if g.w.strides[1] != 1 and g.w.strides[0] == 1 and g.k // g.groups > 1:
        axis = 0
    out = _activations(2 + g.epilogue.bias + g.epilogue.residual, result, g.groups, False, 0)
    return DenseForm(
        kind=g.direction, dtype=source.dtype, b_dtype=g.w.dtype, out_dtype=result.dtype, rows=g.n * prod(base),
        cols=cols, groups=g.groups, channels=channels, a=_activations(0, source, g.groups, True, 0),
        b=_filter(1, g, axis), out=out, filter=g.filter, stride=g.stride, padding=g.padding, dilation=g.dilation,
        base=base, size=_triple(source.shape[2:]), out_size=image, phases=phases,
        bias=slot(2) if g.epilogue.bias else None, residual=slot(2 + g.epilogue.bias) if g.epilogue.residual else None,
        epilogue=g.epilogue,
    )  # fmt: skip


def _weights(g: ConvGeometry) -> DenseForm:
    a = _activations(0, g.y, g.groups, False, g.y.strides[1] if g.k // g.groups > 1 else 0)
    b = _activations(1, g.x, g.groups, False, 0)
    out = _filter(2, g, 1)
    step = even_step(g.y)
    if step is not None:
        a = Lines(a.pointer, False, a.vector, a.line, a.channel, (step, 0, 0, 0), group=a.group)
    return DenseForm(
        kind="wrw", dtype=g.y.dtype, b_dtype=g.x.dtype, out_dtype=g.w.dtype, rows=g.k // g.groups,
        cols=prod(g.filter) * (g.c // g.groups), groups=g.groups, channels=g.c // g.groups, a=a, b=b, out=out,
        filter=g.filter, stride=g.stride,
        padding=g.padding, dilation=g.dilation, base=g.output, size=g.input, out_size=g.output,
        pixels=g.n * prod(g.output), linear=step is not None,
    )  # fmt: skip


def even_step(view: TensorView) -> int | None:
    """The step from pixel to pixel when all pixels lie evenly."""
    step, count = None, 1
    sizes, strides = (view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:])
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size > 1:
            step = stride if step is None else step
            if stride != step * count:
                return None
            count *= size
    return step or 0


def _triple(values: Iterable[int]) -> Triple:
    a, b, c = values
    return (a, b, c)
