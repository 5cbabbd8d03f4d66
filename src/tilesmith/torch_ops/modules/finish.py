"""The activations that kernels compute behind a layer, in the forms in which programs write them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional

from tilesmith.problems.epilogue import Epilogue

F: Any = functional


def _act(name: str, **numbers: float) -> Epilogue:
    return Epilogue(activation=name, **numbers)  # type: ignore[arg-type]


def activate(epilogue: Epilogue, r: torch.Tensor) -> Any:
    """The activation of an epilogue by PyTorch's operator."""
    return _PYTORCHS[epilogue.activation](epilogue, r)


def activate_in_place(epilogue: Epilogue, r: torch.Tensor) -> Any:
    """The same, in the memory of ``r`` where PyTorch has such an operator."""
    return (_IN_PLACE.get(epilogue.activation) or _PYTORCHS[epilogue.activation])(epilogue, r)


_PYTORCHS: dict[str, Callable[[Epilogue, torch.Tensor], Any]] = {
    "none": lambda e, r: r,
    "relu": lambda e, r: F.relu(r),
    "leaky_relu": lambda e, r: F.leaky_relu(r, e.slope),
    "silu": lambda e, r: F.silu(r),
    "gelu": lambda e, r: F.gelu(r),
    "gelu_tanh": lambda e, r: F.gelu(r, approximate="tanh"),
    "clamp": lambda e, r: r.clamp(e.low, e.high),
    "sigmoid": lambda e, r: r.sigmoid(),
    "tanh": lambda e, r: r.tanh(),
    "hardswish": lambda e, r: F.hardswish(r),
    "hardsigmoid": lambda e, r: F.hardsigmoid(r),
}


_IN_PLACE: dict[str, Callable[[Epilogue, torch.Tensor], Any]] = {
    "relu": lambda e, r: r.relu_(),
    "leaky_relu": lambda e, r: F.leaky_relu_(r, e.slope),
    "silu": lambda e, r: F.silu(r, inplace=True),
    "clamp": lambda e, r: r.clamp_(e.low, e.high),
    "sigmoid": lambda e, r: r.sigmoid_(),
    "tanh": lambda e, r: r.tanh_(),
    "hardswish": lambda e, r: F.hardswish(r, inplace=True),
    "hardsigmoid": lambda e, r: F.hardsigmoid(r, inplace=True),
}

_MODULES: dict[type[nn.Module], Callable[[Any], Epilogue]] = {
    nn.ReLU: lambda m: _act("relu"),
    nn.ReLU6: lambda m: _act("clamp", low=0.0, high=6.0),
    nn.Hardtanh: lambda m: _act("clamp", low=m.min_val, high=m.max_val),
    nn.LeakyReLU: lambda m: _act("leaky_relu", slope=m.negative_slope),
    nn.SiLU: lambda m: _act("silu"),
    nn.GELU: lambda m: _gelu(m.approximate),
    nn.Sigmoid: lambda m: _act("sigmoid"),
    nn.Tanh: lambda m: _act("tanh"),
    nn.Hardswish: lambda m: _act("hardswish"),
    nn.Hardsigmoid: lambda m: _act("hardsigmoid"),
}


def _gelu(approximate: str) -> Epilogue:
    return _act({"none": "gelu", "tanh": "gelu_tanh"}[approximate])


def _clamp(low: Any = None, high: Any = None) -> Epilogue:
    if low is None and high is None:
        raise ValueError
    return _act("clamp", low=-math.inf if low is None else low, high=math.inf if high is None else high)


# Functions and methods: how the arguments behind the first one give the activation. ``inplace`` plays no part, since
# nothing else reads the argument of an activation that is fused.
_RELU = lambda inplace=False: _act("relu")  # noqa: E731
_RELU6 = lambda inplace=False: _act("clamp", low=0.0, high=6.0)  # noqa: E731
_HARDTANH = lambda min_val=-1.0, max_val=1.0, inplace=False: _act("clamp", low=min_val, high=max_val)  # noqa: E731
_LEAKY = lambda negative_slope=0.01, inplace=False: _act("leaky_relu", slope=negative_slope)  # noqa: E731
_SIGMOID, _TANH = (lambda: _act("sigmoid")), (lambda: _act("tanh"))
_CLAMP = lambda min=None, max=None: _clamp(min, max)  # noqa: E731
_FUNCTIONS: dict[Any, Callable[..., Epilogue]] = {
    torch.relu: _RELU, torch.relu_: _RELU, F.relu: _RELU, F.relu_: _RELU, F.relu6: _RELU6,
    F.hardtanh: _HARDTANH, F.hardtanh_: _HARDTANH, F.leaky_relu: _LEAKY, F.leaky_relu_: _LEAKY,
    F.silu: lambda inplace=False: _act("silu"), F.gelu: lambda approximate="none": _gelu(approximate),
    torch.sigmoid: _SIGMOID, torch.sigmoid_: _SIGMOID, F.sigmoid: _SIGMOID,
    torch.tanh: _TANH, torch.tanh_: _TANH, F.tanh: _TANH,
    torch.clamp: _CLAMP, torch.clamp_: _CLAMP, torch.clip: _CLAMP,
    F.hardswish: lambda inplace=False: _act("hardswish"),
    F.hardsigmoid: lambda inplace=False: _act("hardsigmoid"),
    "relu": _RELU, "relu_": _RELU, "sigmoid": _SIGMOID, "sigmoid_": _SIGMOID, "tanh": _TANH, "tanh_": _TANH,
    "clamp": _CLAMP, "clamp_": _CLAMP, "clip": _CLAMP, "clip_": _CLAMP,
}  # fmt: skip
_ADDS = (operator.add, operator.iadd, torch.add, "add", "add_")
_CHANGES_FIRST = (operator.iadd, "add_")


def activation_of(node: Node, module: nn.Module | None) -> Epilogue | None:
    """The activation that a node of a graph computes of its first argument; None if it computes something else.

    ``module`` is the module that the node calls, if it calls one.
    """
    try:
        if module is not None:
            found = _MODULES[type(module)](module)
        else:
            found = _FUNCTIONS[node.target](*node.args[1:], **node.kwargs)
    except (KeyError, TypeError, ValueError):  # numbers that are tensors, low > high
        return None
    return found


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
