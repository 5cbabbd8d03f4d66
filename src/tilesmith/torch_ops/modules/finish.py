"""What follows a layer in a model: which activations the kernels compute, in the forms in which programs write them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional

from tilesmith.problems.epilogue import ACTIVATIONS

F: Any = functional


@dataclass(frozen=True)
class Finish:
    """An activation as the operators take it."""

    activation: str = "none"
    slope: float = 0.01
    low: float = 0.0
    high: float = 6.0

    @property
    def arguments(self) -> tuple[str, float, float, float]:
        """In the order of the operators' schema."""
        return self.activation, self.slope, self.low, self.high

    def __call__(self, r: torch.Tensor) -> Any:
        """PyTorch's operator for the activation."""
        return _PYTORCHS[self.activation](self, r)

    def in_place(self, r: torch.Tensor) -> Any:
        """The same, in the memory of ``r`` where PyTorch has such an operator."""
        written = _IN_PLACE.get(self.activation)
        return self(r) if written is None else written(self, r)


NOTHING = Finish()
_PYTORCHS: dict[str, Callable[[Finish, torch.Tensor], Any]] = {
    "none": lambda f, r: r,
    "relu": lambda f, r: F.relu(r),
    "leaky_relu": lambda f, r: F.leaky_relu(r, f.slope),
    "silu": lambda f, r: F.silu(r),
    "gelu": lambda f, r: F.gelu(r),
    "gelu_tanh": lambda f, r: F.gelu(r, approximate="tanh"),
    "clamp": lambda f, r: r.clamp(f.low, f.high),
    "sigmoid": lambda f, r: r.sigmoid(),
    "tanh": lambda f, r: r.tanh(),
    "hardswish": lambda f, r: F.hardswish(r),
    "hardsigmoid": lambda f, r: F.hardsigmoid(r),
}

_IN_PLACE: dict[str, Callable[[Finish, torch.Tensor], Any]] = {
    "relu": lambda f, r: r.relu_(),
    "leaky_relu": lambda f, r: F.leaky_relu_(r, f.slope),
    "silu": lambda f, r: F.silu(r, inplace=True),
    "clamp": lambda f, r: r.clamp_(f.low, f.high),
    "sigmoid": lambda f, r: r.sigmoid_(),
    "tanh": lambda f, r: r.tanh_(),
    "hardswish": lambda f, r: F.hardswish(r, inplace=True),
    "hardsigmoid": lambda f, r: F.hardsigmoid(r, inplace=True),
}

_MODULES: dict[type[nn.Module], Callable[[Any], Finish]] = {
    nn.ReLU: lambda m: Finish("relu"),
    nn.ReLU6: lambda m: Finish("clamp", low=0.0, high=6.0),
    nn.Hardtanh: lambda m: Finish("clamp", low=m.min_val, high=m.max_val),
    nn.LeakyReLU: lambda m: Finish("leaky_relu", slope=m.negative_slope),
    nn.SiLU: lambda m: Finish("silu"),
    nn.GELU: lambda m: _gelu(m.approximate),
    nn.Sigmoid: lambda m: Finish("sigmoid"),
    nn.Tanh: lambda m: Finish("tanh"),
    nn.Hardswish: lambda m: Finish("hardswish"),
    nn.Hardsigmoid: lambda m: Finish("hardsigmoid"),
}


def _gelu(approximate: str) -> Finish:
    return Finish({"none": "gelu", "tanh": "gelu_tanh"}[approximate])


def _clamp(low: Any = None, high: Any = None) -> Finish:
    if low is None and high is None:
        raise ValueError
    return Finish("clamp", low=-math.inf if low is None else low, high=math.inf if high is None else high)


# Functions and methods: how the arguments behind the first one give the activation. ``inplace`` plays no part, since
# nothing else reads the argument of an activation that is fused.
_RELU = lambda inplace=False: Finish("relu")  # noqa: E731
_RELU6 = lambda inplace=False: Finish("clamp", low=0.0, high=6.0)  # noqa: E731
_HARDTANH = lambda min_val=-1.0, max_val=1.0, inplace=False: Finish("clamp", low=min_val, high=max_val)  # noqa: E731
_LEAKY = lambda negative_slope=0.01, inplace=False: Finish("leaky_relu", slope=negative_slope)  # noqa: E731
_SIGMOID, _TANH = (lambda: Finish("sigmoid")), (lambda: Finish("tanh"))
_CLAMP = lambda min=None, max=None: _clamp(min, max)  # noqa: E731
_FUNCTIONS: dict[Any, Callable[..., Finish]] = {
    torch.relu: _RELU, torch.relu_: _RELU, F.relu: _RELU, F.relu_: _RELU, F.relu6: _RELU6,
    F.hardtanh: _HARDTANH, F.hardtanh_: _HARDTANH, F.leaky_relu: _LEAKY, F.leaky_relu_: _LEAKY,
    F.silu: lambda inplace=False: Finish("silu"), F.gelu: lambda approximate="none": _gelu(approximate),
    torch.sigmoid: _SIGMOID, torch.sigmoid_: _SIGMOID, F.sigmoid: _SIGMOID,
    torch.tanh: _TANH, torch.tanh_: _TANH, F.tanh: _TANH,
    torch.clamp: _CLAMP, torch.clamp_: _CLAMP, torch.clip: _CLAMP,
    F.hardswish: lambda inplace=False: Finish("hardswish"),
    F.hardsigmoid: lambda inplace=False: Finish("hardsigmoid"),
    "relu": _RELU, "relu_": _RELU, "sigmoid": _SIGMOID, "sigmoid_": _SIGMOID, "tanh": _TANH, "tanh_": _TANH,
    "clamp": _CLAMP, "clamp_": _CLAMP, "clip": _CLAMP, "clip_": _CLAMP,
}  # fmt: skip
_ADDS = (operator.add, operator.iadd, torch.add, "add", "add_")
_CHANGES_FIRST = (operator.iadd, "add_")


def activation_of(node: Node, module: nn.Module | None) -> Finish | None:
    """The activation that a node of a graph computes of its first argument; None if it computes something else.

    ``module`` is the module that the node calls, if it calls one.
    """
    try:
        if module is not None:
            found = _MODULES[type(module)](module)
        else:
            found = _FUNCTIONS[node.target](*node.args[1:], **node.kwargs)
        numbers = (found.slope, found.low, found.high)
        if not all(isinstance(each, int | float) for each in numbers) or found.low > found.high:
            return None
    except (KeyError, TypeError, ValueError):
        return None
    return found if found.activation in ACTIVATIONS and math.isfinite(found.slope) else None


def added_to(node: Node, result: Node) -> Node | None:
    """The tensor that ``node`` adds to ``result``; None if the node is no such sum, or changes the other tensor."""
    if node.op == "call_module" or node.target not in _ADDS or len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if not isinstance(first, Node) or not isinstance(second, Node) or first is second:
        return None
    if first is result:
        return second
    return first if second is result and node.target not in _CHANGES_FIRST else None
