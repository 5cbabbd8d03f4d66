"""The common part of PyTorch's kernels on CPU and CUDA: shapes in the form of its operators, and epilogues."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional

from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.geometry import ConvGeometry

Call = Callable[[], torch.Tensor]


def argument_names(problem: ConvGeometry) -> tuple[str, ...]:
    extra = (("b",) if problem.epilogue.bias else ()) + (("z",) if problem.epilogue.residual else ())
    return {"fwd": ("x", "w", *extra), "bwd": ("y", "w", *extra), "wrw": ("y", "x"), "bgrad": ("y",)}[problem.direction]


class ConvShape:
    """Strides, paddings and so on as PyTorch wants them: one value for each of its spatial axes."""

    def __init__(self, problem: ConvGeometry, dims: int) -> None:
        cut = 3 - dims
        self.dims = dims
        self.groups = problem.groups
        self.stride = list(problem.stride[cut:])
        self.padding = list(problem.padding[cut:])
        self.dilation = list(problem.dilation[cut:])
        self.x_shape = [problem.n, problem.c, *problem.input[cut:]]
        self.y_shape = [problem.n, problem.k, *problem.output[cut:]]
        self.w_shape = [problem.k, problem.c // problem.groups, *problem.filter[cut:]]
        reach = [d * (f - 1) + 1 for d, f in zip(self.dilation, problem.filter[cut:], strict=True)]
        smallest = [
            (y - 1) * s - 2 * p + r
            for y, s, p, r in zip(self.y_shape[2:], self.stride, self.padding, reach, strict=True)
        ]
        # The transposed convolution must add the elements that the forward division by the stride rounds away.
        self.output_padding = [x - least for x, least in zip(self.x_shape[2:], smallest, strict=True)]


def placed(tensor: torch.Tensor, form: str) -> torch.Tensor:
    if form == "contiguous":
        return tensor.contiguous()
    return tensor.contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)


class Finish:
    """The epilogue: the bias goes into the operator, the rest is applied to its result."""

    def __init__(self, epilogue: Epilogue, bias: torch.Tensor | None, residual: torch.Tensor | None) -> None:
        self.epilogue, self.bias, self.residual = epilogue, bias, residual

    def placed(self, form: str, with_bias: bool = False) -> Finish:
        """The same with the residual as ``form`` likes it; ``with_bias`` for operators that take none."""
        residual = None if self.residual is None else placed(self.residual, form)
        if with_bias and self.bias is not None:
            shaped = self.bias.reshape(1, -1, *[1] * (2 if residual is None else residual.dim() - 2))
            residual = shaped if residual is None else residual + shaped
        return Finish(self.epilogue, self.bias, residual)

    @property
    def fused(self) -> tuple[str, list[float], str]:
        """The activation as oneDNN's operators take it, when there is no residual before it."""
        if self.residual is not None:
            return "none", [], ""
        e = self.epilogue
        return {
            "none": ("none", [], ""),
            "relu": ("relu", [], ""),
            "leaky_relu": ("leaky_relu", [e.slope], ""),
            "silu": ("swish", [], ""),
            "gelu": ("gelu", [], "none"),
            "gelu_tanh": ("gelu", [], "tanh"),
            "clamp": ("hardtanh", [e.low, e.high], ""),
            "sigmoid": ("sigmoid", [], ""),
            "tanh": ("tanh", [], ""),
            "hardswish": ("hardswish", [], ""),
            "hardsigmoid": ("hardsigmoid", [], ""),
        }[e.activation]

    @property
    def is_identity(self) -> bool:
        """Nothing is left to do after an operator that took the bias."""
        return self.residual is None and self.epilogue.activation == "none"

    def __call__(self, result: torch.Tensor) -> torch.Tensor:
        if self.residual is not None:
            result = result + self.residual
        return activate(self.epilogue, result)


def activate(epilogue: Epilogue, r: torch.Tensor) -> torch.Tensor:
    """PyTorch's operator for the activation."""
    if epilogue.activation == "none":
        return r
    if epilogue.activation == "clamp":
        return r.clamp_(epilogue.low if math.isfinite(epilogue.low) else None, epilogue.high)
    if epilogue.activation == "leaky_relu":
        return functional.leaky_relu_(r, epilogue.slope)
    operators: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "relu": functional.relu_,
        "silu": lambda v: functional.silu(v, inplace=True),
        "gelu": functional.gelu,
        "gelu_tanh": lambda v: functional.gelu(v, approximate="tanh"),
        "sigmoid": torch.sigmoid_,
        "tanh": torch.tanh_,
        "hardswish": lambda v: functional.hardswish(v, inplace=True),
        "hardsigmoid": lambda v: functional.hardsigmoid(v, inplace=True),
    }
    return operators[epilogue.activation](r)
