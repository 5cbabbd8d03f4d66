"""Random arguments for a problem: cancelling data of both signs, laid out as the signature says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilesmith.errors import ArgumentError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import dense_strides

Array = np.ndarray[Any, Any]

# Large tensors repeat a block: drawing random numbers is slower than any kernel that reads them. The length is a prime,
# so that no row, image or channel stride maps the block onto itself and an index error still changes the result.
_BLOCK = 1_000_003
_LINE = 64  # bytes of a cache line


def sample_args(signature: ConvSignature | GemmSignature, seed: int = 0) -> tuple[Array, ...]:
    """Arguments of a call, in the order of the signature's mode.

    fwd: x, w, [bias], [residual], [scale]. bwd: dy, w, [bias], [residual], [scale]. wrw: dy, x. bgrad: dy. GEMM: a, b,
    [group_ends], [a_scale, b_scale], [bias], [residual], [scale], [c when ``beta != 0``]. Values are of
    order 1 (of order ``k ** -0.25`` when the result is fp8, which would overflow), integers span int8; scales are
    positive, and such that some int8 results saturate.
    The gaps of pitched tensors hold NaN: nothing may read them.

    Raises ``ArgumentError`` for a seed that is no integer from 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ArgumentError(f"seed must be an integer from 0, got {seed!r}")
    operands = _operands(signature)
    rngs = [np.random.default_rng([seed, place]) for place in range(len(operands))]
    values = [_tensor(rng, *operand) for rng, operand in zip(rngs, operands, strict=True)]
    if signature.epilogue.is_scaled:
        first = signature.first_extra if isinstance(signature, GemmSignature) else 2
        place = first + signature.epilogue.bias + signature.epilogue.residual
        values[place] = _scales(rngs[place], signature, operands[place][0])
    if isinstance(signature, GemmSignature) and signature.groups:
        values[2] = _ends(rngs[2], signature)
    if isinstance(signature, GemmSignature) and signature.has_scales:
        for place in (2, 3):
            values[place][...] = np.exp(0.5 * rngs[place].standard_normal(values[place].shape))
    return tuple(values)


Operand = tuple[tuple[int, ...], tuple[int, ...] | None, str, float]


def _operands(sig: ConvSignature | GemmSignature) -> list[Operand]:
    """Shape, strides, dtype and scale of each argument."""
    if isinstance(sig, GemmSignature):
        scale = _scale(sig.c_dtype, max(1, sig.k))
        c: Operand = (sig.c_shape, sig.c_strides, sig.c_dtype, 1.0)
        operands: list[Operand] = [
            (sig.a_shape, sig.a_strides, sig.a_dtype, scale),
            (sig.b_shape, sig.b_strides, sig.b_dtype, scale),
        ]
        ends: list[Operand] = [((sig.groups,), None, "int32", 1.0)] if sig.groups else []
        scales: list[Operand] = [(*sig.scale_layout(n), "fp32", 1.0) for n in "ab"] if sig.has_scales else []
        return operands + ends + scales + _extras(sig, c, sig.n) + ([c] if sig.beta != 0 else [])
    result_dtype = {"fwd": sig.output_dtype, "bwd": sig.input_dtype, "wrw": sig.kernel_dtype}
    length = 1 if sig.is_empty else sig.geometry.reduction_length
    scale = _scale(result_dtype.get(sig.mode, sig.output_dtype), length)
    x: Operand = (sig.input_shape, sig.input_strides, sig.input_dtype, scale)
    w: Operand = (sig.kernel_shape, sig.kernel_strides, sig.kernel_dtype, scale)
    y: Operand = (sig.output_shape, sig.output_strides, sig.output_dtype, scale)
    if sig.mode == "fwd":
        return [x, w, *_extras(sig, y, sig.output_channels)]
    if sig.mode == "bwd":
        return [y, w, *_extras(sig, x, sig.input_logical[1])]
    return [y, x] if sig.mode == "wrw" else [y]


def _extras(sig: ConvSignature | GemmSignature, result: Operand, channels: int) -> list[Operand]:
    shape, strides, name, _ = result
    e = sig.epilogue
    bias: list[Operand] = [((channels,), None, e.bias_dtype(name), 1.0)] if e.bias else []
    residual: list[Operand] = [(shape, strides, name, 1.0)] if e.residual else []
    scale: list[Operand] = [((channels if e.scale == "channel" else 1,), None, "fp32", 1.0)] if e.is_scaled else []
    return bias + residual + scale


def _ends(rng: np.random.Generator, sig: GemmSignature) -> Array:
    """Groups of uneven sizes, whose ends are multiples of nothing; an eighth of them is empty.

    The last one ends at the last row, or up to seven before it.
    """
    shares = rng.gamma(4.0, size=sig.groups) * (rng.random(sig.groups) >= 0.125)
    covered = max(0, sig.m - int(rng.integers(8)))
    return np.rint(np.cumsum(shares) * (covered / max(1e-9, float(shares.sum())))).astype(np.int32)


def _scales(rng: np.random.Generator, sig: ConvSignature | GemmSignature, shape: tuple[int, ...]) -> Array:
    """Of order 1; for int8 such that results have a spread of about 60, beyond which some saturate."""
    factor = 1.0
    if sig.acc_dtype == "int32" and not sig.is_empty:
        length = sig.k if isinstance(sig, GemmSignature) else sig.geometry.reduction_length
        alpha = abs(sig.alpha) if isinstance(sig, GemmSignature) else 1.0
        factor = 60.0 / (74.0**2 * math.sqrt(max(1, length)) * max(1.0, alpha))
    return (factor * np.exp(0.5 * rng.standard_normal(shape))).astype(np.float32)


def _scale(result_dtype: str, reduction: int) -> float:
    """Sums of ``reduction`` products grow as its root; fp8 holds none of that, fp16 not that of the longest sums."""
    if dtype(result_dtype).nbytes == 1 or (result_dtype == "fp16" and reduction > 2**24):
        return 1.0 / math.sqrt(math.sqrt(reduction))
    return 1.0


def _tensor(rng: np.random.Generator, shape: tuple[int, ...], strides: Any, name: str, scale: float) -> Array:
    kind = dtype(name)
    size = int(np.prod(shape, dtype=np.int64))
    count = min(size, _BLOCK)
    if kind.is_integer:
        low, high = (-128, 128) if kind.nbytes == 1 else (-1000, 1001)
        block = rng.integers(low, high, count).astype(kind.numpy())
    else:
        wide = np.float64 if kind.nbytes == 8 else np.float32
        block = (rng.standard_normal(count, wide) * wide(scale)).astype(kind.numpy())
    view = pitched_empty(shape, strides and tuple(strides), kind.numpy())
    if strides is None or tuple(strides) == dense_strides(shape):
        flat = view.reshape(-1)
        for start in range(0, size, max(1, count)):
            flat[start : start + count] = block[: size - start]
    else:
        view[...] = np.resize(block, size).reshape(shape)
    return view


def pitched_empty(shape: tuple[int, ...], strides: tuple[int, ...] | None, kind: np.dtype[Any]) -> Array:
    """An array with these element strides (None: dense) in a buffer of its own, from a cache line's start on.

    Every byte of the gaps between pitched rows is 0xFF (NaN; -1 for integers). The alignment is PyTorch's; NumPy's own,
    16 bytes, would make most wide loads straddle two lines.
    """
    if 0 in shape:
        return np.empty(shape, kind)
    gaps = strides is not None and strides != dense_strides(shape)
    strides = strides or dense_strides(shape)
    span = (sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1) * kind.itemsize
    memory = np.empty(span + _LINE, np.uint8)
    if gaps:
        memory.fill(0xFF)
    first = -memory.__array_interface__["data"][0] % _LINE
    # NumPy cannot stride over every type of ml_dtypes, so it strides over integers of the same size.
    buffer = memory[first : first + span].view(f"u{kind.itemsize}")
    view = np.lib.stride_tricks.as_strided(buffer, shape, [stride * kind.itemsize for stride in strides])
    return view.view(kind)


def torch_args(args: tuple[Array, ...], device: Any) -> tuple[Any, ...]:
    """The same values as torch tensors on ``device``; strides are kept on the CPU."""
    try:
        import torch
    except ImportError:
        raise ArgumentError("sample arguments on a device need PyTorch; install it with: pip install torch") from None
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:  # PyTorch has no class of its own for it
        first = next(iter(str(error).splitlines()), "")
        raise ArgumentError(f"device {device!r} cannot be used: {first}") from None

    def convert(array: Array) -> Any:
        names = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}
        name = names.get(array.dtype.name)
        if name is None:
            return torch.from_numpy(array).to(device)
        # PyTorch reads no ml_dtypes; the bits are the same.
        bits = array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8)
        return torch.from_numpy(bits).view(getattr(torch, name)).to(device)

    return tuple(convert(array) for array in args)
