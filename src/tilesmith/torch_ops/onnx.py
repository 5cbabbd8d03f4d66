"""ONNX: the operators of ``torch.ops.tilesmith`` as ``Conv``, ``ConvTranspose`` and ``Gemm``.

``torch.onnx.export`` of an optimized model needs none of this, since its layers are PyTorch's while it exports. A
program of ``torch.export`` holds our operators, which this table translates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import tilesmith.torch_ops.convolution
import tilesmith.torch_ops.gemm  # noqa: F401


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Make the table for ``torch.onnx.export(program, custom_translation_table=translations())``.

    Returns:
        A function of onnxscript for each operator. onnxscript must be installed.
    """
    from onnxscript import opset20

    op: Any = opset20

    def finished(y: Any, residual: Any, activation: str, slope: float, low: float, high: float) -> Any:
        y = y if residual is None else op.Add(y, residual)
        limits = [op.CastLike(op.Constant(value_float=limit), y) for limit in (low, high)]
        known: dict[str, Callable[[], Any]] = {
            "none": lambda: y,
            "relu": lambda: op.Relu(y),
            "leaky_relu": lambda: op.LeakyRelu(y, alpha=slope),
            "silu": lambda: op.Mul(y, op.Sigmoid(y)),
            "gelu": lambda: op.Gelu(y),
            "gelu_tanh": lambda: op.Gelu(y, approximate="tanh"),
            "clamp": lambda: op.Clip(y, *limits),
            "sigmoid": lambda: op.Sigmoid(y),
            "tanh": lambda: op.Tanh(y),
            "hardswish": lambda: op.HardSwish(y),
            "hardsigmoid": lambda: op.HardSigmoid(y, alpha=1 / 6, beta=0.5),
        }
        return known[activation]()

    def convolution(
        x: Any, w: Any, b: Any, residual: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
        transposed: bool, output_padding: Sequence[int], groups: int, activation: str = "none", slope: float = 0.01,
        low: float = 0.0, high: float = 6.0, frozen: bool = False,
    ) -> Any:  # fmt: skip
        dims = len(w.shape) - 2
        one_each = {1: lambda values: [*values] * dims}
        stride, dilation, output_padding = (
            one_each.get(len(values), list)(values) for values in (stride, dilation, output_padding)
        )
        low_pads, high_pads = (padding[::2], padding[1::2]) if len(padding) == 2 * dims else (padding, padding)
        pads = [*low_pads, *high_pads] if len(low_pads) == dims else [padding[0]] * (2 * dims)
        same: dict[str, Any] = {"strides": stride, "dilations": dilation, "pads": pads, "group": groups}
        y = op.ConvTranspose(x, w, b, output_padding=output_padding, **same) if transposed else op.Conv(x, w, b, **same)
        return finished(y, residual, activation, slope, low, high)

    def gemm(
        a: Any, b: Any, bias: Any, residual: Any, activation: str = "none", slope: float = 0.01, low: float = 0.0,
        high: float = 6.0, frozen: bool = False,
    ) -> Any:  # fmt: skip
        if len(a.shape) == 2:
            y = op.Gemm(a, b, bias)
        else:
            y = op.MatMul(a, b)
            y = y if bias is None else op.Add(y, bias)
        return finished(y, residual, activation, slope, low, high)

    return {torch.ops.tilesmith.convolution.default: convolution, torch.ops.tilesmith.gemm.default: gemm}
