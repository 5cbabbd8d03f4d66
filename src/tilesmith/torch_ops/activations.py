"""Gradients of activations, made of PyTorch's operators, so that they can be differentiated again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.errors import ProblemError
from tilesmith.problems.epilogue import Epilogue

aten: Any = torch.ops.aten


def gradient_before(epilogue: Epilogue, dy: torch.Tensor, y: Any, before: Callable[[], torch.Tensor]) -> Any:
    """The gradient with respect to the activation's argument, of which ``before`` computes the value anew.

    ``y`` is the activation's result, from which most gradients follow. At the limits of ``clamp`` the gradient is zero.
    """
    activation = epilogue.activation
    if activation == "none":
        return dy
    if activation == "relu":
        return aten.threshold_backward(dy, y, 0)
    if activation == "leaky_relu":
        return aten.leaky_relu_backward(dy, y, epilogue.slope, True)
    if activation == "clamp":
        return aten.hardtanh_backward(dy, y, epilogue.low, epilogue.high)
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
