"""Gradients of activations, made of PyTorch's operators, so that they can be differentiated again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.errors import ProblemError
from tilesmith.problems.epilogue import Epilogue

aten: Any = torch.ops.aten
# The numbers of leaky_relu and clamp, which the operators do not take.
_LEAKY, _CLAMP = Epilogue(activation="leaky_relu"), Epilogue(activation="clamp")


def check_activation(activation: str) -> None:
    """Raise ``ProblemError`` for an activation that does not exist."""
    Epilogue(activation=activation)


def gradient_before(activation: str, dy: torch.Tensor, y: Any, before: Callable[[], torch.Tensor]) -> Any:
    """The gradient with respect to the activation's argument, of which ``before`` computes the value anew.

    ``y`` is the activation's result, from which most gradients follow. At the limits of ``clamp`` the gradient is zero.
    """
    if activation == "none":
        return dy
    if activation == "relu":
        return aten.threshold_backward(dy, y, 0)
    if activation == "leaky_relu":
        return aten.leaky_relu_backward(dy, y, _LEAKY.slope, True)
    if activation == "clamp":
        return aten.hardtanh_backward(dy, y, _CLAMP.low, _CLAMP.high)
    if activation == "silu":
        return _silu_gradient(dy, before())
    if activation == "gelu":
        return aten.gelu_backward(dy, before())
    raise ProblemError(f"the gradient of activation {activation!r} is not known")


def _silu_gradient(dy: torch.Tensor, z: torch.Tensor) -> Any:
    if not torch.is_grad_enabled():
        return aten.silu_backward(dy, z)
    gate = z.sigmoid()  # PyTorch has no derivative of silu_backward
    return dy * gate * (1 + z * (1 - gate))
