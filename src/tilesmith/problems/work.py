"""How much a problem computes and moves."""

from __future__ import annotations

from math import prod

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature


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


def _gemm_bytes(sig: GemmSignature) -> int:
    def operand(name: str, elements: int) -> int:
        shared = getattr(sig, f"stride_{name}") == 0
        return elements * (1 if shared else sig.batch) * dtype(getattr(sig, f"{name}_dtype")).nbytes

    c = operand("c", sig.m * sig.n)
    reads_of_c = int(sig.beta != 0) + int(sig.epilogue.residual)
    bias = sig.n * dtype(sig.epilogue.bias_dtype(sig.c_dtype)).nbytes if sig.epilogue.bias else 0
    bias += {"none": 0, "tensor": 4, "channel": 4 * sig.n}[sig.epilogue.scale]
    return operand("a", sig.m * sig.k) + operand("b", sig.k * sig.n) + c * (1 + reads_of_c) + bias
