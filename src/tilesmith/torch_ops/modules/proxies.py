"""The stand-ins of tensors while a ``forward`` is traced: they refuse what they cannot answer as a tensor would."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import fx, nn

from tilesmith.torch_ops.modules.layers import ORIGINALS


class NotTraced(Exception):
    """Why there is no graph of a module."""


class _Careful:
    """Answers ``isinstance`` and ``hasattr`` as the tensor would that it stands for, or refuses the trace."""

    tracer: Any

    @property
    def __class__(self) -> Any:  # isinstance reads it
        kind = self.tracer.kind_of(self)
        if kind is not None:
            return kind
        return type(self) if _is_pytorchs(sys._getframe(1)) else self._refuse("it asks for the class of a result")

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        self._refuse("it changes the class of a tensor")

    def __getattr__(self: Any, name: str) -> Any:
        if name in ("tracer", "node", "_node", "root", "attr"):  # of an object that is being made
            raise AttributeError(name)
        kind = self.tracer.kind_of(self)
        if kind is not None and not hasattr(kind, name):
            if name == "_is_param":  # isinstance(x, nn.Parameter) asks tensors for it
                raise AttributeError(name)
            self._refuse(f"it asks a tensor for {name!r}")
        frame = sys._getframe(1)
        if kind is None and not _reads_attribute(frame) and not _is_pytorchs(frame):
            self._refuse(f"it asks a result whether it has {name!r}")
        return self.tracer.follow(_Attribute(self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("tracer", "node", "_node", "root", "attr"):
            self._refuse(f"it sets {name!r} of a tensor")
        object.__setattr__(self, name, value)

    @property
    def keys(self) -> Any:  # torch.fx's has it, and tensors do not
        return self.__getattr__("keys")

    def _refuse(self, why: str) -> NoReturn:
        self.tracer.refused = self.tracer.refused or why  # forward may catch what is raised
        raise NotTraced(why)


class Proxy(_Careful, fx.Proxy):
    """Records ``x += y`` as what it is: ``torch.fx`` records a sum, and the change of ``x`` is lost."""


class _Attribute(_Careful, fx.proxy.Attribute):
    """An attribute of a stand-in, or a method before it is called."""


STAND_INS = (Proxy, _Attribute)


def _records(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def record(self: Any, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operation, (self, other), {})

    return record


for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "imatmul"):
    setattr(Proxy, f"__{_name}__", _records(getattr(operator, _name)))


def _is_pytorchs(frame: FrameType | None) -> bool:
    """Whether code asks that knows stand-ins: the tracer, and ``setattr`` of modules."""
    while frame is not None and frame.f_globals.get("__name__") in ("abc", "torch.nn.parameter"):
        frame = frame.f_back
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    return name.startswith(("torch.fx.", "torch.utils._pytree", "torch.overrides", "torch.nn.modules.module"))


def _reads_attribute(frame: FrameType) -> bool:
    """Whether a frame is at ``x.name``, and not at a call such as ``hasattr(x, "name")``."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("LOAD_ATTR", "LOAD_METHOD")


# --- which results are tensors ----------------------------------------------------------------------------------------

_ARITHMETIC = {getattr(operator, name) for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "matmul", "iadd", "isub", "imul", "itruediv",
)}  # fmt: skip
_FUNCTIONS = {
    torch.relu, torch.sigmoid, torch.tanh, torch.flatten, torch.add, torch.mul, torch.sub, torch.matmul, torch.softmax,
    nn.functional.relu, nn.functional.relu6, nn.functional.leaky_relu, nn.functional.silu, nn.functional.gelu,
    nn.functional.hardswish, nn.functional.hardsigmoid, nn.functional.adaptive_avg_pool2d, nn.functional.avg_pool2d,
    nn.functional.interpolate, nn.functional.dropout, nn.functional.pad, nn.functional.softmax,
}  # fmt: skip
_METHODS = {
    "add", "add_", "sub", "mul", "mul_", "div", "relu", "relu_", "sigmoid", "tanh", "clamp", "flatten", "view",
    "reshape", "permute", "transpose", "contiguous", "unsqueeze", "squeeze", "float", "clone", "detach", "expand",
}  # fmt: skip
_LAYERS = ("conv", "linear", "batchnorm", "normalization", "instancenorm", "dropout", "padding", "upsampling",
           "flatten", "pixelshuffle", "channelshuffle", "activation", "pooling")  # fmt: skip


def result_of(node: fx.Node, kinds: dict[fx.Node, Any], root: nn.Module) -> Any:
    """The class of what a node gives, where that is known: the arguments of a graph are plain tensors."""
    if node.op == "placeholder":
        return torch.Tensor
    if node.op == "get_attr":
        *path, name = str(node.target).split(".")
        owner: Any = root
        for each in path:  # by dictionaries: the tracer records what getattr finds
            owner = owner._modules.get(each) if isinstance(owner, nn.Module) else None
        kind = type((owner._parameters | owner._buffers).get(name)) if isinstance(owner, nn.Module) else None
        return kind if kind in (torch.Tensor, nn.Parameter) else None
    if not any(kinds.get(each) is not None for each in node.args if isinstance(each, fx.Node)):
        return None
    if node.op == "call_function":
        return torch.Tensor if node.target in _ARITHMETIC or node.target in _FUNCTIONS else None
    if node.op == "call_method":
        known = isinstance(node.args[0], fx.Node) and kinds.get(node.args[0]) is not None
        return torch.Tensor if known and node.target in _METHODS else None
    return torch.Tensor if node.op == "call_module" and _is_plain(root.get_submodule(str(node.target))) else None


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer makes one tensor of one tensor."""
    own = type(layer).__module__.removeprefix("torch.nn.modules.")
    if isinstance(layer, nn.MultiheadAttention) or getattr(layer, "return_indices", False):
        return False
    return type(layer) in ORIGINALS or own in _LAYERS
