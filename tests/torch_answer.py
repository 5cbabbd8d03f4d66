"""PyTorch's float64 answer to a problem: what every kernel and the oracle are measured against."""

from __future__ import annotations

import numpy as np
import torch

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature

torch.set_num_threads(1)  # two that wait for each other on a busy machine take many times as long


def torch_answer(sig: ConvSignature, args: tuple[np.ndarray, ...]) -> np.ndarray:
    """The same through PyTorch's float64 operations and their gradients; logical shapes."""
    dims = sig.spatial_dims

    def call(x, w):
        return convolved(sig, x, w)

    def tensor(array, layout):
        return torch.tensor(np.ascontiguousarray(to_logical(array, layout)).astype(np.float64), requires_grad=True)

    if sig.mode == "bgrad":
        dy = tensor(args[0], sig.output_layout).detach()
        return dy.sum((0, *range(2, dims + 2))).numpy()
    if sig.mode == "fwd":
        y = call(tensor(args[0], sig.input_layout), tensor(args[1], sig.kernel_layout))
    else:
        dy = tensor(args[0], sig.output_layout)
        x = torch.zeros(sig.input_logical, dtype=torch.float64, requires_grad=True)
        w = torch.zeros(sig.kernel_logical, dtype=torch.float64, requires_grad=True)
        if sig.mode == "bwd":
            w = tensor(args[1], sig.kernel_layout)
            y = torch.autograd.grad(call(x, w), x, dy)[0]
        else:
            x = tensor(args[1], sig.input_layout)
            y = torch.autograd.grad(call(x, w), w, dy)[0]
    result = y.detach()
    rest = list(args[2:])
    if sig.epilogue.is_scaled:
        result = result * torch.tensor(rest.pop().astype(np.float64)).reshape(1, -1, *[1] * dims)
    if sig.epilogue.bias:
        result = result + torch.tensor(rest.pop(0).astype(np.float64)).reshape(1, -1, *[1] * dims)
    if sig.epilogue.residual:
        layout = sig.output_layout if sig.mode == "fwd" else sig.input_layout
        result = result + tensor(rest.pop(0), layout).detach()
    return saturated(activated(result, sig.epilogue), sig.epilogue.is_scaled and sig.acc_dtype == "int32").numpy()


def saturated(result: torch.Tensor, wanted: bool) -> torch.Tensor:
    """What an int8 result is rounded from."""
    return torch.where(result.isnan(), 0.0, result).clamp(-128, 127) if wanted else result


def convolved(sig: ConvSignature, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The forward result; unequal padding is laid around x, or cut off the transposed result."""
    dims = sig.spatial_dims
    name = f"conv_transpose{dims}d" if sig.transposed else f"conv{dims}d"
    function = getattr(torch.nn.functional, name)
    extra = (sig.output_padding, sig.groups, sig.dilation) if sig.transposed else (sig.dilation, sig.groups)
    if sig.padding_low == sig.padding_high:
        return function(x, w, bias, sig.stride, sig.padding, *extra)
    sides = list(zip(sig.padding_low, sig.padding_high, strict=True))
    if not sig.transposed:
        x = torch.nn.functional.pad(x, [side for pair in reversed(sides) for side in pair])
        return function(x, w, bias, sig.stride, 0, *extra)
    y = function(x, w, bias, sig.stride, 0, *extra)
    return y[(..., *(slice(low, size - high) for (low, high), size in zip(sides, y.shape[2:], strict=True)))]


def activated(v: torch.Tensor, e: Epilogue) -> torch.Tensor:
    f = torch.nn.functional
    return {
        "none": lambda: v,
        "relu": lambda: f.relu(v),
        "leaky_relu": lambda: f.leaky_relu(v, e.slope),
        "silu": lambda: f.silu(v),
        "gelu": lambda: f.gelu(v),
        "clamp": lambda: v.clamp(e.low, e.high),
        "gelu_tanh": lambda: f.gelu(v, approximate="tanh"),
        "sigmoid": lambda: f.sigmoid(v),
        "tanh": lambda: f.tanh(v),
        "hardswish": lambda: f.hardswish(v),
        "hardsigmoid": lambda: f.hardsigmoid(v),
    }[e.activation]()


def to_logical(array: np.ndarray, layout: str) -> np.ndarray:
    """``(N, C, *spatial)``; written apart from the code under test."""
    order, vector = (layout.rstrip("0123456789").rstrip("c"), True) if layout[-1].isdigit() else (layout, False)
    if vector:
        at = order.index("C")
        array = np.moveaxis(array, -1, at + 1)
        shape = array.shape
        array = array.reshape(*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    return array.transpose([order.index(c) for c in "NCDHW" if c in order])


def torch_gemm(sig: GemmSignature, args: tuple[np.ndarray, ...]) -> np.ndarray:
    """The same for a GEMM; the initial ``c`` comes last when ``beta != 0``."""
    a, b, *rest = (torch.tensor(v.astype(np.float64)) for v in args)
    if sig.groups:
        ends = rest[0].clamp(0, sig.m).cummax(0).values
        groups = torch.searchsorted(ends, torch.arange(sig.m, dtype=torch.float64), right=True)
        rows = [row @ (b[g].mT if sig.trans_b else b[g]) if g < sig.groups else torch.zeros(sig.n, dtype=torch.float64)
                for row, g in zip(a, groups.tolist(), strict=True)]  # fmt: skip
        return torch.stack(rows).numpy()
    result = sig.alpha * ((a.mT if sig.trans_a else a) @ (b.mT if sig.trans_b else b))
    if sig.epilogue.is_scaled:
        result = result * rest.pop(sig.epilogue.bias + sig.epilogue.residual)
    bias = rest.pop(0) if sig.epilogue.bias else None
    residual = rest.pop(0) if sig.epilogue.residual else None
    if sig.beta != 0:
        result = result + sig.beta * rest.pop(0)
    for term in (bias, residual):
        result = result if term is None else result + term
    return saturated(activated(result, sig.epilogue), sig.epilogue.is_scaled and sig.acc_dtype == "int32").numpy()
