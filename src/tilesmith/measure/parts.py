"""Splits a large problem into parts that fit caches and memory: images of a convolution, matrices or rows of a GEMM.

The oracle of a whole problem needs many times the memory of its tensors; that of a part is freed before the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.oracle import Oracle, oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import SCALE_BLOCKS
from tilesmith.problems.layouts import parse_layout

Array = NDArray[Any]

# Elements of a part's tensors, unless one image has more. NOTE: a float64 copy of 2^21 elements is the largest that
# malloc reuses; larger ones are mapped anew and zeroed by the system at every use, which costs as much as the sums.
ELEMENTS = 1 << 21


@dataclass(frozen=True)
class Part:
    """A smaller problem with its arguments (views), and where its result lies in that of the whole.

    ``result`` indexes the whole result in its layout; ``origin`` is the first element's place in the logical axes.
    """

    signature: ConvSignature | GemmSignature
    arguments: tuple[Array, ...]
    result: tuple[Any, ...]
    origin: tuple[int, ...]


def parts(
    signature: ConvSignature | GemmSignature, arguments: Sequence[Array], elements: int = ELEMENTS
) -> Iterator[Part]:
    """Parts whose results together are the result; a gradient of weights or bias, a sum over all images, has one."""
    if isinstance(signature, GemmSignature):
        yield from _gemm_parts(signature, arguments, elements)
    elif signature.mode in ("fwd", "bwd"):
        yield from _images(signature, arguments, elements)
    else:
        yield Part(signature, tuple(arguments), (), ())


def truth_of(part: Part, elements: int = ELEMENTS) -> Oracle:
    """The oracle of a part; a sum over images is taken a few images at a time."""
    signature = part.signature
    if isinstance(signature, GemmSignature) or signature.mode in ("fwd", "bwd"):
        return oracle(signature, part.arguments)
    total: Oracle | None = None
    for images in _images(signature, part.arguments, elements):
        some = oracle(images.signature, images.arguments)
        with np.errstate(all="ignore"):
            total = some if total is None else _added(total, some)
    assert total is not None
    length = signature.geometry.reduction_length
    return replace(total, addends=np.abs(total.value), length=length)


def _added(a: Oracle, b: Oracle) -> Oracle:
    return Oracle(a.value + b.value, np.hypot(a.norm, b.norm), a.addends, a.length)


def one_part(signature: ConvSignature | GemmSignature, arguments: Sequence[Array], at: int) -> Part:
    """The problem of one image, or of one row of each matrix; a gradient of weights or bias has its sum alone.

    ``at`` may count from the end.
    """
    if isinstance(signature, GemmSignature):
        at %= signature.m
        return _rows(signature, arguments, slice(at, at + 1))
    at %= _count(signature)
    return _some_images(signature, arguments, slice(at, at + 1))


def _images(signature: ConvSignature, arguments: Sequence[Array], elements: int) -> Iterator[Part]:
    """The problem for a few images at a time."""
    count = _count(signature)
    sizes = sum(int(np.prod(shape, dtype=np.int64)) for shape in (signature.input_shape, signature.output_shape))
    step = max(1, elements * count // sizes)
    for first in range(0, count, step):
        images = slice(first, min(first + step, count))
        if images == slice(0, count):
            yield Part(signature, tuple(arguments), (), (0,) * _rank(signature))
            return
        yield _some_images(signature, arguments, images)


def _some_images(signature: ConvSignature, arguments: Sequence[Array], images: slice) -> Part:
    x_axis, y_axis = (parse_layout(name).order.index("N") for name in (signature.input_layout, signature.output_layout))
    # Which axis of each argument counts images; the filter and the bias have none.
    result_axis = y_axis if signature.mode == "fwd" else x_axis
    axes: list[int | None] = {"fwd": [x_axis, None], "bwd": [y_axis, None], "wrw": [y_axis, x_axis], "bgrad": [y_axis]}[
        signature.mode
    ]  # type: ignore[assignment]
    e = signature.epilogue
    axes += [None] * e.bias + [result_axis] * e.residual + [None] * e.is_scaled
    shape = list(signature.input_shape)
    shape[x_axis] = images.stop - images.start
    small = replace(signature, input_shape=tuple(shape), input_strides=None, kernel_strides=None, output_strides=None)
    views = tuple(a if axis is None else a[_at(axis, images)] for a, axis in zip(arguments, axes, strict=True))
    summed = signature.mode not in ("fwd", "bwd")
    where = () if summed else _at(result_axis, images)
    return Part(small, views, where, (images.start, *[0] * (_rank(signature) - 1)))


def _gemm_parts(signature: GemmSignature, arguments: Sequence[Array], elements: int) -> Iterator[Part]:
    """Some rows of one matrix, or of every matrix of a batch, at a time."""
    step = max(1, elements * signature.m // max(1, arguments[0].size + signature.batch * signature.m * signature.n))
    block = SCALE_BLOCKS.get(signature.a_scale, 1)  # of rows that share a factor
    step = -(-step // block) * block
    if step >= signature.m:
        yield Part(signature, tuple(arguments), (), (0,) * len(signature.c_shape))
        return
    for first in range(0, signature.m, step):
        yield _rows(signature, arguments, slice(first, min(first + step, signature.m)))


def _rows(signature: GemmSignature, arguments: Sequence[Array], rows: slice) -> Part:
    a, b, *extra = arguments
    e = signature.epilogue
    factors = [extra.pop(0), extra.pop(0)] if signature.has_scales else []
    if factors and signature.a_scale != "tensor":
        of_rows = SCALE_BLOCKS[signature.a_scale]
        blocks = slice(rows.start // of_rows, -(-rows.stop // of_rows))
        factors[0] = factors[0][:, blocks] if signature.trans_a else factors[0][blocks]
    bias = [extra.pop(0)] if e.bias else []
    scale = [extra.pop(int(e.residual))] if e.is_scaled else []
    ends = [np.clip(extra.pop(0), rows.start, rows.stop) - np.int32(rows.start)] if signature.groups else []
    rows_of = [term[..., rows, :] for term in extra]
    plain = {f"ld{name}": None for name in "abc"} | {f"stride_{name}": None for name in "abc"}
    small = replace(signature, m=rows.stop - rows.start, **plain)  # type: ignore[arg-type]
    mine = a[..., :, rows] if signature.trans_a else a[..., rows, :]
    views = (mine, b, *ends, *factors, *bias, *rows_of[: e.residual], *scale, *rows_of[e.residual :])
    return Part(small, views, (Ellipsis, rows, slice(None)), (*[0] * (len(signature.c_shape) - 2), rows.start, 0))


def _count(signature: ConvSignature) -> int:
    return signature.input_shape[parse_layout(signature.input_layout).order.index("N")]


def _rank(signature: ConvSignature) -> int:
    return len(signature.output_logical)


def _at(axis: int, span: slice) -> tuple[Any, ...]:
    return (*[slice(None)] * axis, span)
