"""How much a problem computes and moves."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import ConvGeometry


def flops(signature: ConvSignature | GemmSignature) -> int:
    """Floating-point (or integer) operations of the definition: two for each multiply-add, padding counted.

    All three directions of a convolution have as many; a bias gradient has one addition for each element of dy.
    Epilogues, alpha and beta are not counted.
    """
    if isinstance(signature, GemmSignature):
        return 2 * signature.batch * signature.m * signature.n * signature.k
    g = signature.geometry
    if g.direction == "bgrad":
        return g.n * g.k * prod(g.output)
    return 2 * g.n * g.k * prod(g.output) * (g.c // g.groups) * prod(g.filter)


def bytes_moved(signature: ConvSignature | GemmSignature) -> int:
    """Bytes when every operand is read once and the result written once; the gaps of pitched tensors do not count."""
    if isinstance(signature, GemmSignature):
        return _gemm_bytes(signature)
    g = signature.geometry
    x, w, y = (prod(t.shape) * dtype(t.dtype).nbytes for t in (g.x, g.w, g.y))
    if g.direction == "bgrad":
        return y + g.k * dtype(g.y.dtype).nbytes
    result, channels = {"fwd": (y, g.k), "bwd": (x, g.c), "wrw": (w, 0)}[g.direction]
    view = {"fwd": g.y, "bwd": g.x, "wrw": g.w}[g.direction]
    bias = channels * dtype(g.epilogue.bias_dtype(view.dtype)).nbytes if g.epilogue.bias else 0
    bias += {"none": 0, "tensor": 4, "channel": 4 * channels}[g.epilogue.scale]
    return x + w + y + bias + (result if g.epilogue.residual else 0)


def least_work(signature: ConvSignature | GemmSignature) -> tuple[int, int]:
    """``(operations, bytes)`` that no kernel can leave out, for a roofline.

    Products with padding are not counted, nor pixels of x (of dy, in ``bwd``) that no product reads: a 1x1 layer with
    stride 2 reads a quarter of its pixels.
    """
    work, moved = flops(signature), bytes_moved(signature)
    if isinstance(signature, GemmSignature) or signature.geometry.direction == "bgrad":
        return work, moved
    g = signature.geometry
    axes = [_axis(g, axis) for axis in range(3)]
    pairs = prod(pair for pair, _, _ in axes) / (prod(g.output) * prod(g.filter))
    x_read, y_used = prod(x for _, x, _ in axes) / prod(g.input), prod(y for _, _, y in axes) / prod(g.output)
    x, y = (prod(t.shape) * dtype(t.dtype).nbytes for t in (g.x, g.y))
    unread = {"fwd": (1 - x_read) * x, "bwd": (1 - y_used) * y, "wrw": (1 - x_read) * x + (1 - y_used) * y}
    return round(work * pairs), moved - round(unread[g.direction])


@lru_cache(maxsize=256)
def _axis(g: ConvGeometry, axis: int) -> tuple[int, int, int]:
    """In one spatial axis: pairs of an output and a tap that meet an input, inputs that any meet, outputs that do."""
    outputs, taps = np.arange(g.output[axis])[:, None], np.arange(g.filter[axis])[None]
    at = outputs * g.stride[axis] - g.padding[axis] + taps * g.dilation[axis]
    inside = (at >= 0) & (at < g.input[axis])
    return int(inside.sum()), len(np.unique(at[inside])), int(inside.any(axis=1).sum())


def _gemm_bytes(sig: GemmSignature) -> int:
    def operand(name: str, elements: int) -> int:
        shared = getattr(sig, f"stride_{name}") == 0
        return elements * (1 if shared else sig._count(name)) * dtype(getattr(sig, f"{name}_dtype")).nbytes

    c = operand("c", sig.m * sig.n)
    reads_of_c = int(sig.beta != 0) + int(sig.epilogue.residual)
    bias = sig.n * dtype(sig.epilogue.bias_dtype(sig.c_dtype)).nbytes if sig.epilogue.bias else 0
    bias += {"none": 0, "tensor": 4, "channel": 4 * sig.n}[sig.epilogue.scale]
    bias += 4 * sig.groups  # the ends
    bias += sum(4 * prod(sig.scale_layout(name)[0]) for name in "ab") if sig.has_scales else 0
    return operand("a", sig.m * sig.k) + operand("b", sig.k * sig.n) + c * (1 + reads_of_c) + bias
