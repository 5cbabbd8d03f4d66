"""The right answer, in float64 with NumPy, independent of every generated kernel.

Convolutions become matrix products of float64 with columns gathered tap by tap (im2col), a block of pixels at a time.
The definition is PyTorch's, NaN and Inf included: ``fwd`` and ``wrw`` multiply the zeros of the padding, the gradient
of the input sums only products that exist. A second pass over squared operands gives each result's root of the sum of
squared products, from which ``measure.accuracy`` takes its bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import SCALE_BLOCKS, SCALE_K
from tilesmith.problems.layouts import parse_layout

Array = NDArray[Any]

# Gathered columns held at a time: about the last-level cache.
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Oracle:
    """The result in its logical shape (``logical``), and what bounds a kernel's error.

    ``value``: float64, or int64 for int32 results; for int8 results what is rounded to them, but saturated. ``norm``:
    root of the sum of squared products of each element, times ``|alpha|`` and ``|scale|``. ``addends``: sum of the
    magnitudes that the epilogue adds (scaled accumulator, bias, residual, ``beta * c``). ``length``: products summed in
    one element, at most.
    """

    value: Array
    norm: Array
    addends: Array
    length: int


class Sums(Protocol):
    """An interface for computing the long sums of products in float64 without NumPy."""

    def convolution(self, signature: ConvSignature, operands: Sequence[Array], kind: Any) -> Array:
        """Without epilogue; operands and result are ``(N, C, D, H, W)``."""
        ...

    def product(self, a: Array, b: Array, kind: Any) -> Array: ...


class _NumPySums:
    def convolution(self, signature: ConvSignature, operands: Sequence[Array], kind: Any) -> Array:
        return _linear(signature, operands, kind)

    def product(self, a: Array, b: Array, kind: Any) -> Array:
        found: Array = np.matmul(_as(a, kind), _as(b, kind))
        return found


def oracle(signature: ConvSignature | GemmSignature, arguments: Sequence[Array], sums: Sums | None = None) -> Oracle:
    """The result of ``signature`` for ``arguments``: in its own layouts and order, as ``sample_args`` gives them.

    ``sums`` makes the sums of products in place of NumPy.
    """
    with np.errstate(all="ignore"):
        if isinstance(signature, GemmSignature):
            return _gemm(signature, arguments, sums or _NumPySums())
        return _conv(signature, arguments, sums or _NumPySums())


def logical(signature: ConvSignature | GemmSignature, result: Array) -> Array:
    """A result array in its layout as a view in the logical shape of ``Oracle.value``."""
    if isinstance(signature, GemmSignature) or signature.mode == "bgrad":
        return result
    return _logical(result, _result_layout(signature))


def write_oracle(path: Path, truth: Oracle) -> None:
    """Put an answer into a file, all at once."""
    staged = path.with_suffix(".tmp.npz")
    np.savez(staged, value=truth.value, norm=truth.norm, addends=truth.addends, length=np.int64(truth.length))
    staged.replace(path)


def read_oracle(path: Path) -> Oracle:
    """Reads the file that ``write_oracle`` has written."""
    with np.load(path) as kept:
        return Oracle(kept["value"], kept["norm"], kept["addends"], int(kept["length"]))


# --- convolution ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Window:
    """One convolution in three spatial axes: what is slid over what."""

    groups: int
    image: tuple[int, ...]
    taps: tuple[int, ...]
    result: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """Padded image that the taps can reach."""
        rows = zip(self.result, self.stride, self.dilation, self.taps, strict=True)
        return tuple((o - 1) * s + d * (f - 1) + 1 for o, s, d, f in rows)

    def tap_slices(self, block: tuple[slice, slice, slice, slice]) -> Iterator[tuple[slice, ...]]:
        """For each tap, the part of the padded image that meets a block (images, depths, rows, columns)."""
        for tap in np.ndindex(*self.taps):
            parts = [block[0]]
            for t, d, s, span in zip(tap, self.dilation, self.stride, block[1:], strict=True):
                first = t * d + span.start * s
                parts.append(slice(first, first + (span.stop - span.start - 1) * s + 1, s))
            yield tuple(parts)

    def blocks(self, images: int, bytes_a_pixel: int) -> Iterator[tuple[slice, slice, slice, slice]]:
        """Blocks of the result whose columns stay under the limit: whole images if they fit, else rows."""
        d, h, w = self.result
        limit = max(1, _BLOCK_BYTES // bytes_a_pixel)
        per_image = max(1, limit // (d * h * w))
        per_depth = d if limit >= d * h * w else max(1, limit // (h * w))
        per_row = h if limit >= h * w else max(1, limit // w)
        for n in range(0, images, per_image):
            for i in range(0, d, per_depth):
                for j in range(0, h, per_row):
                    yield (
                        slice(n, min(n + per_image, images)), slice(i, min(i + per_depth, d)),
                        slice(j, min(j + per_row, h)), slice(0, w),
                    )  # fmt: skip


def _conv(signature: ConvSignature, arguments: Sequence[Array], sums: Sums) -> Oracle:
    if signature.mode == "bgrad":
        return _bias_gradient(signature, arguments[0])
    operands = [_spatial3(_logical(a, name)) for a, name in zip(arguments, _operand_layouts(signature), strict=False)]
    value = sums.convolution(signature, operands, np.float64)
    scales = [_power_of_two(a) for a in operands]
    squares = [_squared(a, scale) for a, scale in zip(operands, scales, strict=True)]
    norm = np.sqrt(sums.convolution(signature, squares, np.float32)) * np.float64(scales[0] * scales[1])
    shape = _result_shape(signature)
    value, norm = value.reshape(shape), norm.reshape(shape)
    extra = list(arguments[2:])
    channel_axis = (1, -1, *([1] * (len(shape) - 2)))
    if signature.epilogue.is_scaled:
        value, norm = _scaled(value, norm, _as(extra.pop()).reshape(channel_axis), signature.acc_dtype)
    bias = _as(extra.pop(0)).reshape(channel_axis) if signature.epilogue.bias else None
    residual = _as(_logical(extra.pop(0), _result_layout(signature))) if signature.epilogue.residual else None
    return _finish(value, norm, bias, residual, signature.epilogue, signature.acc_dtype, _length(signature))


def _linear(signature: ConvSignature, operands: Sequence[Array], kind: Any) -> Array:
    """The convolution without epilogue; operands and result are ``(N, C, D, H, W)``.

    Transposed forward is the gradient of the input of the convolution that maps ``y`` to ``x``, and so on; ``w`` is the
    same in both: its first axis counts the channels of that convolution's result.
    """
    t = signature.transposed
    small, large = (signature.input_logical, signature.output_logical) if t else (
        signature.output_logical, signature.input_logical
    )  # fmt: skip
    window = _Window(
        signature.groups, _triple(large[2:], 1), _triple(signature.kernel_logical[2:], 1), _triple(small[2:], 1),
        _triple(signature.stride, 1), _triple(signature.padding_low, 0), _triple(signature.dilation, 1),
    )  # fmt: skip
    first, second = operands[:2]
    if signature.mode == "wrw":
        # Arguments are (dy, x); the small side is x when transposed.
        return _filter_gradient(window, second if t else first, first if t else second, kind)
    if (signature.mode == "fwd") != t:
        return _forward(window, first, second, kind)
    return _input_gradient(window, first, second, kind)


def _forward(window: _Window, x: Array, w: Array, kind: Any) -> Array:
    g, taps, kg, cg = window.groups, math.prod(window.taps), w.shape[0] // window.groups, w.shape[1]
    padded = _padded(window, x, kind)
    out = np.zeros((x.shape[0], *window.result, g, kg), kind)
    if cg == kg == 1:
        weights = _as(w, kind).reshape(g, taps)
        for block in window.blocks(x.shape[0], g * 8):
            for t, part in enumerate(window.tap_slices(block)):
                out[block] += padded[part] * weights[:, t, None]
        return _channels_first(out)
    stacked = _as(w, kind).reshape(g, kg, cg, taps).transpose(0, 3, 2, 1).reshape(g, taps * cg, kg)
    for block in window.blocks(x.shape[0], taps * cg * g * 8):
        columns = _columns(window, padded, block, kind)
        product = np.matmul(columns, stacked)
        out[block] = np.moveaxis(product.reshape(g, *out[block].shape[:4], kg), 0, 4)
    return _channels_first(out)


def _input_gradient(window: _Window, dy: Array, w: Array, kind: Any) -> Array:
    g, taps, kg, cg = window.groups, math.prod(window.taps), w.shape[0] // window.groups, w.shape[1]
    n = dy.shape[0]
    grown = np.zeros((n, *window.extent, g, cg), kind)
    source = np.moveaxis(_as(dy, kind).reshape(n, g, kg, *window.result), (1, 2), (4, 5))
    weights = np.ascontiguousarray(_as(w, kind).reshape(g, kg, cg, taps).transpose(0, 1, 3, 2)).reshape(g, kg, -1)
    for block in window.blocks(n, taps * cg * g * 8):
        part = source[block]
        rows = np.ascontiguousarray(np.moveaxis(part, 4, 0)).reshape(g, -1, kg)
        product = (rows * weights if cg == kg == 1 else np.matmul(rows, weights)).reshape(g, *part.shape[:4], taps, cg)
        for t, target in enumerate(window.tap_slices(block)):
            grown[target] += np.moveaxis(product[..., t, :], 0, 4)
    out = np.zeros((n, *window.image, g, cg), kind)
    inner, outer = _overlap(window)
    out[inner] = grown[outer]
    return _channels_first(out)


def _filter_gradient(window: _Window, dy: Array, x: Array, kind: Any) -> Array:
    g, taps = window.groups, math.prod(window.taps)
    n, kg, cg = dy.shape[0], dy.shape[1] // g, x.shape[1] // g
    padded = _padded(window, x, kind)
    source = np.moveaxis(_as(dy, kind).reshape(n, g, kg, *window.result), (1, 2), (4, 5))
    out = np.zeros((g, kg, taps, cg), kind)
    for block in window.blocks(n, taps * cg * g * 8):
        if cg == kg == 1:
            for t, part in enumerate(window.tap_slices(block)):
                out[:, :, t, :] += (source[block] * padded[part]).sum(axis=(0, 1, 2, 3))[..., None]
            continue
        columns = _columns(window, padded, block, kind)
        rows = np.ascontiguousarray(np.moveaxis(source[block], (4, 5), (0, 1))).reshape(g, kg, -1)
        out += np.matmul(rows, columns).reshape(out.shape)
    return np.moveaxis(out, 3, 2).reshape(g * kg, cg, *window.taps)


def _columns(window: _Window, padded: Array, block: tuple[slice, ...], kind: Any) -> Array:
    """``(groups, pixels of the block, taps * channels)``."""
    sizes = [span.stop - span.start for span in block]
    g, cg = padded.shape[4:]
    taps = math.prod(window.taps)
    columns = np.empty((g, *sizes, taps, cg), kind)
    into = np.moveaxis(columns, 0, 4)
    for t, part in enumerate(window.tap_slices(block)):  # type: ignore[arg-type]
        into[..., t, :] = padded[part]
    return columns.reshape(g, -1, taps * cg)


def _padded(window: _Window, x: Array, kind: Any) -> Array:
    """``x`` as ``(N, D, H, W, groups, channels of a group)`` with its zero padding, as far as taps reach."""
    n, c = x.shape[:2]
    out = np.zeros((n, *window.extent, window.groups, c // window.groups), kind)
    inner, outer = _overlap(window)
    split = np.moveaxis(x.reshape(n, window.groups, c // window.groups, *x.shape[2:]), (1, 2), (4, 5))
    out[outer] = split[inner]
    return out


def _overlap(window: _Window) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of the image that taps reach, in the image and in the padded extent."""
    inner, outer = [slice(None)], [slice(None)]
    for size, extent, p in zip(window.image, window.extent, window.padding, strict=True):
        count = max(0, min(size, extent - p))
        inner.append(slice(0, count))
        outer.append(slice(p, p + count))
    return tuple(inner), tuple(outer)


def _bias_gradient(signature: ConvSignature, dy: Array) -> Oracle:
    values = _logical(dy, signature.output_layout)
    axes = (0, *range(2, values.ndim))
    scale = _power_of_two(values)
    total = _as(values).sum(axis=axes)
    norm = np.sqrt(_squared(values, scale).sum(axis=axes, dtype=np.float64)) * scale
    length = values.size // values.shape[1]
    return Oracle(total, norm, np.abs(total), length)


def _length(signature: ConvSignature) -> int:
    return signature.geometry.reduction_length


# --- GEMM -------------------------------------------------------------------------------------------------------------


def _gemm(signature: GemmSignature, arguments: Sequence[Array], sums: Sums) -> Oracle:
    if signature.groups:
        return _groups(signature, arguments, sums)
    a, b, *extra = arguments
    if signature.has_scales:
        a, b = (_times_factors(signature, name, x, extra.pop(0)) for name, x in (("a", a), ("b", b)))
    a = np.swapaxes(a, -1, -2) if signature.trans_a else a
    b = np.swapaxes(b, -1, -2) if signature.trans_b else b
    value = sums.product(a, b, np.float64)
    scales = [_power_of_two(x) for x in (a, b)]
    squared_a, squared_b = (_squared(x, scale) for x, scale in zip((a, b), scales, strict=True))
    norm = np.sqrt(sums.product(squared_a, squared_b, np.float32)) * np.float64(
        scales[0] * scales[1] * abs(signature.alpha)
    )
    if signature.epilogue.is_scaled:
        scale = extra.pop(signature.epilogue.bias + signature.epilogue.residual)
        value, norm = _scaled(value, norm, _as(scale), signature.acc_dtype, signature.alpha)
    else:
        value = value * signature.alpha
    bias = _as(extra.pop(0)) if signature.epilogue.bias else None
    residual = _as(extra.pop(0)) if signature.epilogue.residual else None
    initial = _as(extra.pop(0)) * signature.beta if signature.beta != 0 else None
    return _finish(value, norm, bias, residual, signature.epilogue, signature.acc_dtype, signature.k, initial)


def _times_factors(signature: GemmSignature, name: str, operand: Array, factors: Array) -> Array:
    """The numbers that ``operand`` stands for, in float64, which holds each product."""
    wide = _as(factors)
    if getattr(signature, f"{name}_scale") != "tensor":
        k_axis = int(not signature.trans_a) if name == "a" else int(signature.trans_b)
        of_rows = SCALE_BLOCKS[getattr(signature, f"{name}_scale")]
        for axis, each in ((k_axis, SCALE_K), (1 - k_axis, of_rows)):
            wide = np.repeat(wide, each, axis)
        wide = wide[tuple(slice(size) for size in operand.shape)]
    return _as(operand) * wide


def _groups(signature: GemmSignature, arguments: Sequence[Array], sums: Sums) -> Oracle:
    """Each group of rows by itself; rows of no group are 0."""
    a, b, ends = arguments
    value, norm = (np.zeros(signature.c_shape) for _ in range(2))
    last = np.maximum.accumulate(np.clip(ends, 0, signature.m))
    for first, end, matrix in zip((0, *last), last, b, strict=False):
        if end > first:
            some = replace(signature, m=int(end - first), groups=0, lda=None, ldb=None, ldc=None, stride_b=None)
            found = _gemm(some, (a[first:end], matrix), sums)
            value[first:end], norm[first:end] = found.value, found.norm
    return Oracle(value, norm, np.abs(value), signature.k)


# --- the epilogue and small parts -------------------------------------------------------------------------------------


def _scaled(value: Array, norm: Array, scale: Array, acc_dtype: str, alpha: float = 1.0) -> tuple[Array, Array]:
    """Sums of integers wrap modulo 2^32, as everywhere; what follows is computed with real numbers."""
    if acc_dtype == "int32":
        value = (value + 2.0**31) % 2.0**32 - 2.0**31
    return value * alpha * scale, norm * np.abs(scale)


def _finish(
    value: Array, norm: Array, bias: Array | None, residual: Array | None,
    epilogue: Epilogue, acc_dtype: str, length: int, initial: Array | None = None,
) -> Oracle:  # fmt: skip
    addends = np.abs(value)
    for term in (initial, bias, residual):
        if term is not None:
            value = value + term
            addends = addends + np.abs(term)
    value = activate(value, epilogue)
    if acc_dtype == "int32" and epilogue.is_scaled:
        value = np.clip(np.where(np.isnan(value), 0.0, value), -128.0, 127.0)
    elif acc_dtype == "int32":
        value = value.astype(np.int64)
    return Oracle(value, norm, addends, length)


def activate(v: Array, e: Epilogue) -> Array:
    """A comparison with NaN is false, so that NaN passes."""
    if e.activation == "relu":
        return np.where(v < 0, 0.0, v)
    if e.activation == "leaky_relu":
        return np.where(v > 0, v, v * e.slope)
    if e.activation == "silu":
        return v / (1.0 + np.exp(-v))
    if e.activation == "gelu":
        erf = np.vectorize(math.erf, otypes=[np.float64])
        gelu: Array = v * 0.5 * (1.0 + erf(v * math.sqrt(0.5)))
        return gelu
    if e.activation == "gelu_tanh":
        bent: Array = v * 0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (v + 0.044715 * v**3)))
        return bent
    if e.activation == "sigmoid":
        return 1.0 / (1.0 + np.exp(-v))
    if e.activation == "tanh":
        return np.tanh(v)
    if e.activation in ("hardswish", "hardsigmoid"):
        gate: Array = np.clip(v + 3.0, 0.0, 6.0) / 6.0
        return v * gate if e.activation == "hardswish" else gate
    if e.activation == "clamp":
        return np.where(v < e.low, e.low, np.where(v > e.high, e.high, v))
    return v


def _logical(array: Array, layout_name: str) -> Array:
    """An array in its layout as ``(N, C, *spatial)``; a view unless the layout splits channels into vectors."""
    layout = parse_layout(layout_name)
    order = [layout.order.index(a) for a in ("N", "C", *(a for a in "DHW" if a in layout.order))]
    if layout.vector == 1:
        return array.transpose(order)
    moved = array.transpose([*order[:2], array.ndim - 1, *order[2:]])
    return moved.reshape(moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:])


def _operand_layouts(signature: ConvSignature) -> tuple[str, str]:
    x, w, y = signature.input_layout, signature.kernel_layout, signature.output_layout
    return {"fwd": (x, w), "bwd": (y, w), "wrw": (y, x)}[signature.mode]


def _result_layout(signature: ConvSignature) -> str:
    return {"fwd": signature.output_layout, "bwd": signature.input_layout, "wrw": signature.kernel_layout}[
        signature.mode
    ]


def _result_shape(signature: ConvSignature) -> tuple[int, ...]:
    return {"fwd": signature.output_logical, "bwd": signature.input_logical, "wrw": signature.kernel_logical}[
        signature.mode
    ]


def _spatial3(array: Array) -> Array:
    """``(N, C, D, H, W)``."""
    return array.reshape(*array.shape[:2], *([1] * (5 - array.ndim)), *array.shape[2:])


def _triple(values: Sequence[int], fill: int) -> tuple[int, ...]:
    return (fill,) * (3 - len(values)) + tuple(values)


def _channels_first(out: Array) -> Array:
    """``(N, D, H, W, groups, channels)`` as ``(N, C, D, H, W)``."""
    merged = out.reshape(*out.shape[:4], -1)
    return np.moveaxis(merged, 4, 1)


def _as(array: Array, kind: Any = np.float64) -> Array:
    return np.asarray(array).astype(kind)


def _power_of_two(array: Array) -> float:
    """A power of two near the largest finite magnitude, so that squares neither overflow nor vanish."""
    values = np.abs(_as(array))
    largest = float(np.max(values, where=np.isfinite(values), initial=0.0))
    return 2.0 ** math.frexp(largest)[1] if largest > 0 else 1.0


def _squared(array: Array, scale: float) -> Array:
    return np.square((_as(array) / scale).astype(np.float32))
