"""Gradients of activations, made of PyTorch's operators, so that they can be differentiated again."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from tilesmith.errors import ProblemError
from tilesmith.problems.epilogue import Epilogue

aten: Any = torch.ops.aten
# Activations whose gradient needs their argument; the others have theirs from the result.
_OF_ARGUMENT: dict[str, Any] = {
    "silu": aten.silu.default, "gelu": aten.gelu.default, "gelu_tanh": partial(aten.gelu.default, approximate="tanh"),
    "hardswish": aten.hardswish.default,
}  # fmt: skip


def activation_arguments(epilogue: Epilogue) -> tuple[str, float, float, float]:
    """The activation as the operators take it, in the order of their schema."""
    return epilogue.activation, epilogue.slope, epilogue.low, epilogue.high


def needs_argument(epilogue: Epilogue) -> bool:
    """Whether the gradient of an epilogue's activation needs the activation's argument."""
    return epilogue.activation in _OF_ARGUMENT or (epilogue.activation == "leaky_relu" and epilogue.slope <= 0)


def activate(epilogue: Epilogue, z: torch.Tensor) -> Any:
    """The activation of ``z``, in new memory, for those that need their argument."""
    if epilogue.activation == "leaky_relu":
        return aten.leaky_relu.default(z, epilogue.slope)
    return _OF_ARGUMENT[epilogue.activation](z)


def gradient_before(epilogue: Epilogue, dy: torch.Tensor, saved: Any) -> Any:
    """The gradient with respect to the activation's argument.

    ``saved`` is that argument where ``needs_argument`` says so, else the activation's result. At the limits of
    ``clamp`` and ``hardsigmoid`` the gradient is zero.
    """
    activation = epilogue.activation
    if activation == "none":
        return dy
    if activation == "relu":
        return aten.threshold_backward(dy, saved, 0)
    if activation == "leaky_relu":
        return aten.leaky_relu_backward(dy, saved, epilogue.slope, epilogue.slope > 0)
    if activation == "clamp":
        return aten.hardtanh_backward(dy, saved, epilogue.low, epilogue.high)
    if activation == "silu":
        return _silu_gradient(dy, saved)
    if activation == "gelu":
        return aten.gelu_backward(dy, saved)
    if activation == "gelu_tanh":
        return aten.gelu_backward(dy, saved, approximate="tanh")
    if activation == "sigmoid":
        return aten.sigmoid_backward(dy, saved)
    if activation == "tanh":
        return aten.tanh_backward(dy, saved)
    if activation == "hardswish":
        return aten.hardswish_backward(dy, saved)
    if activation == "hardsigmoid":
        return aten.hardtanh_backward(dy, saved, 0.0, 1.0) / 6
    raise ProblemError(f"the gradient of activation {activation!r} is not known")


def _silu_gradient(dy: torch.Tensor, z: torch.Tensor) -> Any:
    if not torch.is_grad_enabled():
        return aten.silu_backward(dy, z)
    gate = z.sigmoid()  # PyTorch has no derivative of silu_backward
    return dy * gate * (1 + z * (1 - gate))
