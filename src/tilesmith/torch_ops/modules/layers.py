"""PyTorch's layers with our kernels: a layer that is replaced gets one of these classes and keeps everything else.

The class alone changes: parameters, names, hooks and ``isinstance`` stay. ``ORIGINALS`` gives PyTorch's class back.
Where the operators do not take a call (another dtype, a tensor of a subclass, sizes that make no convolution),
PyTorch's own ``forward`` runs, with its results and its errors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling

from tilesmith.torch_ops.modules.computed import convolved, multiplied
from tilesmith.torch_ops.modules.quick import QUICK


class _Convolution:
    """``forward`` of the convolutions."""

    def forward(self: Any, input: torch.Tensor) -> Any:
        quick = self.__dict__.get(QUICK)
        if quick is None or is_dynamo_compiling():
            found = convolved(self, input, self.weight, self.bias)
        else:
            held, options = self._parameters, (
                self.stride, self.padding, self.dilation, self.groups, self.padding_mode, self.training
            )  # fmt: skip
            w, b = held.get("weight"), held.get("bias")
            found = quick.result(input, w, b, None, options)
            if found is None:
                found = convolved(self, input, self.weight, self.bias, quick=quick, options=options)
        return super().forward(input) if found is None else found  # type: ignore[misc]


class Conv1d(_Convolution, nn.Conv1d):
    """``torch.nn.Conv1d`` with our kernels."""


class Conv2d(_Convolution, nn.Conv2d):
    """``torch.nn.Conv2d`` with our kernels."""


class Conv3d(_Convolution, nn.Conv3d):
    """``torch.nn.Conv3d`` with our kernels."""


class _Transposed:
    """``forward`` of the transposed convolutions."""

    def forward(self: Any, input: torch.Tensor, output_size: list[int] | None = None) -> Any:
        quick = self.__dict__.get(QUICK)
        if quick is None or output_size is not None or is_dynamo_compiling():
            found = convolved(self, input, self.weight, self.bias, output_size=output_size)
        else:
            held, options = self._parameters, (
                self.stride, self.padding, self.dilation, self.groups, self.padding_mode, self.training,
                self.output_padding,
            )  # fmt: skip
            w, b = held.get("weight"), held.get("bias")
            found = quick.result(input, w, b, None, options)
            if found is None:
                found = convolved(self, input, self.weight, self.bias, quick=quick, options=options)
        return super().forward(input, output_size) if found is None else found  # type: ignore[misc]


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """``torch.nn.ConvTranspose1d`` with our kernels."""


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d`` with our kernels."""


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """``torch.nn.ConvTranspose3d`` with our kernels."""


class _Linear:
    """``forward`` of linear layers."""

    def forward(self: Any, input: torch.Tensor) -> Any:
        quick = self.__dict__.get(QUICK)
        if quick is None or is_dynamo_compiling():
            found = multiplied(self, input, self.weight, self.bias)
        else:
            held, options = self._parameters, self.training
            w, b = held.get("weight"), held.get("bias")
            found = quick.result(input, w, b, None, options)
            if found is None:
                found = multiplied(self, input, self.weight, self.bias, quick=quick, options=options)
        return super().forward(input) if found is None else found  # type: ignore[misc]


class Linear(_Linear, nn.Linear):
    """``torch.nn.Linear`` with our kernels, on CUDA devices, and on CPUs where they are measured to be faster."""


REPLACED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: Conv1d, nn.Conv2d: Conv2d, nn.Conv3d: Conv3d, nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d, nn.ConvTranspose3d: ConvTranspose3d, nn.Linear: Linear,
}  # fmt: skip
REPLACED_CLASSES: tuple[type[nn.Module], ...] = tuple(REPLACED)
ORIGINALS = {ours: theirs for theirs, ours in REPLACED.items()}
_OWN_CODE = ("forward", "_conv_forward", "_output_padding", "__call__", "_call_impl")


_MADE: dict[type[nn.Module], type[nn.Module]] = {}  # for subclasses of programs


def replacement_of(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The class with our kernels for a class of layers, PyTorch's or a program's; None for one with code of its own."""
    known = REPLACED.get(kind) or _MADE.get(kind)
    if known is not None:
        return known
    base = next((each for each in kind.__mro__ if each in REPLACED), None)
    if base is None or kind in ORIGINALS or kind.__module__.startswith("torch."):
        return None
    between = kind.__mro__[: kind.__mro__.index(base)]
    if any(name in vars(each) for each in between for name in _OWN_CODE):
        return None
    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__reduce_ex__": _reduced}
    made: type[nn.Module] = type(kind.__name__, (REPLACED[base].__mro__[1], kind), own)
    _MADE[kind], ORIGINALS[made] = made, kind
    return made


def _reduced(self: Any, protocol: object) -> tuple[Any, ...]:
    """How a layer of such a class is copied and saved: no module has the class."""
    return _made_again, (ORIGINALS[type(self)],), self.__getstate__()


def _made_again(kind: type[nn.Module]) -> nn.Module:
    ours = replacement_of(kind)
    assert ours is not None
    return ours.__new__(ours)
