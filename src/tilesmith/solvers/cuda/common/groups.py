"""Grouped convolutions as layers of the sm_90a kernels: the problem of one group, tensors with an axis of groups."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.conv_form import conv_form, window_reaches
from tilesmith.solvers.cuda.common.form import Mapped, Sm90Form, Tiled, Window, aligned
from tilesmith.solvers.solver import Rejected


def one_group(g: ConvGeometry) -> ConvGeometry:
    """The first group of ``g`` as a problem of its own; the channels of the others are gaps between its pixels."""
    if g.groups == 1:
        return g
    c, k = g.c // g.groups, g.k // g.groups
    x, y, w = _first(g.x, c), _first(g.y, k), replace(g.w, shape=(k, *g.w.shape[1:]), owns_gaps=False)
    return replace(g, groups=1, c=c, k=k, x=x, y=y, w=w)


def _first(view: TensorView, channels: int) -> TensorView:
    return replace(view, shape=(view.shape[0], channels, *view.shape[2:]), owns_gaps=False)


def refuse_groups(g: ConvGeometry) -> Rejected | None:
    """Why tensor maps cannot walk the groups of ``g``, or None: each begins at a multiple of 16 bytes."""
    c, k = g.c // g.groups, g.k // g.groups
    if g.groups > 1 and dtype(g.x.dtype).nbytes != 2:
        return Rejected(reasons.GROUPS, f"groups of {g.x.dtype}: only fp16 and bf16 have groups as layers")
    if g.groups > 1 and not aligned(c, k):
        return Rejected(reasons.GROUPS, f"groups of {c} and {k} channels, no multiples of 8")
    return None


def with_groups(operand: Mapped, groups: int) -> Mapped:
    """``operand``, the channels of one group, with the groups as its second axis; as it is if there is one group.

    What lies beyond a group's channels is then outside of the tensor: read as zeros, and not stored. A map has at
    most five axes: where all are taken, the first one holds the channels of all groups.
    """
    if groups == 1:
        return operand
    channels, *rest = operand.dims
    if len(operand.dims) == 5:
        return Mapped(operand.pointer, (channels * groups, *rest), operand.strides)
    return Mapped(operand.pointer, (channels, groups, *rest), (channels, *operand.strides))


@lru_cache(maxsize=256)
def grouped_form(g: ConvGeometry) -> Sm90Form | Rejected:
    """``g`` in the form of ``conv_form`` with groups as layers, or why it has none.

    Operands and results are those of all groups, of which a layer's begin ``channels``, ``cols`` or ``rows`` apart.
    """
    if g.groups == 1:
        return conv_form(g)
    refused = refuse_groups(g)
    if refused:
        return refused
    form = conv_form(one_group(g))
    if isinstance(form, Rejected):
        return form
    if form.kind == "conv" and form.channels % 16:
        form = _apart(form, g)
        if isinstance(form, Rejected):
            return form
    rows = form.rows if form.kind == "wrw" else form.cols  # of dw, or channels of the result
    mapped = form.mapped
    if form.kind == "conv":
        a = form.a if form.apart else _all(form.a, 0, g.groups)
        b = form.b if form.b_group else _all(form.b, 2, g.groups)
        if mapped is not None:
            mapped = replace(mapped, dims=(*mapped.dims[:2], g.groups), strides=(mapped.strides[0], rows))
        placed = replace(form.placed, group=rows)
    else:
        a, b = _all(form.a, 0, g.groups), _all(form.b, 0, g.groups)
        if mapped is not None:  # a store has 16 rows, which must not reach into the next group
            mapped = replace(mapped, dims=(*mapped.dims[:2], rows * g.groups)) if rows % 16 == 0 else None
        placed = replace(form.placed, group=rows * form.placed.row)
    return replace(form, layers=form.layers * g.groups, groups=g.groups, a=a, b=b, mapped=mapped, placed=placed)


def _apart(form: Sm90Form, g: ConvGeometry) -> Sm90Form | Rejected:
    """``form`` of one group of ``g`` with the groups on an axis of their own, behind the images.

    A step along channels reaches beyond those of a group then, and reads zeros. The im2col mode knows five axes, of
    which images take that of the depth. Rows of a contiguous B are those of a group, too: its last axis goes over taps,
    and from group to group over as many steps as lie between.
    """
    assert isinstance(form.a, Window)
    assert isinstance(form.b, Tiled)
    reason = f"groups of {form.channels} channels, no multiples of 16"
    if len(form.a.dims) != 4:
        return Rejected(reasons.GROUPS, f"{reason}, in three dimensions")
    a, b, placed, b_group = form.a, form.b, form.placed, 0
    if not window_reaches(a, form.taps, 5):
        return Rejected(reasons.FILTER, f"{reason}, under filter {g.filter}, dilation {g.dilation}")
    images = a.dims[3]
    window = Window(
        a.pointer, (*a.dims, g.groups), (*a.strides, form.channels), (*a.corner, 0), (*a.base, images), (*a.step, 1)
    )
    if form.b_columns:
        (cols, taps, channels), (tap, row) = b.dims, b.strides
        if channels * row % tap:
            return Rejected(reasons.LAYOUT, f"{reason}, and rows of the filter have gaps")
        b_group = channels * row // tap
        b = Tiled(b.pointer, (cols, channels, (g.groups - 1) * b_group + taps), (row, tap), across=1)
    if placed.pixels is not None:
        n, _, h, w = placed.pixels
        placed = replace(placed, pixels=(0, n, h, w), sizes=(*placed.sizes[:2], images))
    return replace(form, a=window, b=b, b_group=b_group, apart=True, placed=placed)


def _all(operand: Tiled | Window, axis: int, groups: int) -> Tiled | Window:
    """``operand`` of one group with the channels of all on ``axis``."""
    dims = tuple(size * groups if i == axis else size for i, size in enumerate(operand.dims))
    return replace(operand, dims=dims)
