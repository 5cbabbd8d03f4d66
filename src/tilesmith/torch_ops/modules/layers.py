"""PyTorch's layers with our kernels: a layer that is replaced gets one of these classes and keeps everything else.

The class alone changes: parameters, names, hooks and ``isinstance`` stay. ``ORIGINALS`` gives PyTorch's class back.
Where the operators do not take a call (another dtype, a tensor of a subclass, sizes that make no convolution),
PyTorch's own ``forward`` runs, with its results and its errors.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tilesmith.errors import TilesmithError
from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.torch_ops.activations import activation_arguments
from tilesmith.torch_ops.modules.finish import activate_in_place
from tilesmith.torch_ops.modules.race import may_measure, run_faster
from tilesmith.torch_ops.modules.tensors import differentiates_forward, exports_to_onnx, find_mode, taken

Optional = torch.Tensor | None
_log = logging.getLogger("tilesmith.dispatch")
_told: set[str] = set()


class _Convolution:
    """``forward`` of the convolutions."""

    def forward(self: Any, input: torch.Tensor) -> Any:
        found = convolved(self, input, self.weight, self.bias)
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
        found = convolved(self, input, self.weight, self.bias, output_size=output_size)
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
        found = multiplied(self, input, self.weight, self.bias)
        return super().forward(input) if found is None else found  # type: ignore[misc]


class Linear(_Linear, nn.Linear):
    """``torch.nn.Linear`` with our kernels, on CUDA devices, and on CPUs where they are measured to be faster."""


REPLACED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: Conv1d, nn.Conv2d: Conv2d, nn.Conv3d: Conv3d, nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d, nn.ConvTranspose3d: ConvTranspose3d, nn.Linear: Linear,
}  # fmt: skip
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


def convolved(
    layer: Any, x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional = None,
    epilogue: Epilogue = IDENTITY, *, output_size: Any = None,
) -> torch.Tensor | None:  # fmt: skip
    """What a convolution makes of ``x`` with this filter and bias; None where the operator does not take the call.

    With a residual of another shape than the result, too.
    """
    transposed = layer.transposed
    if not _is_taken(layer, x, w, b, residual):
        return None
    batched = x.dim() == w.dim()
    if not batched:
        if x.dim() != w.dim() - 1 or residual is not None:
            return None
        x = x.unsqueeze(0)
    dims = w.dim() - 2
    padding, output_padding = layer.padding, layer.output_padding
    if transposed:
        given = None if output_size is None else list(output_size)
        if given is not None:
            output_padding = layer._output_padding(
                x, given, layer.stride, layer.padding, layer.kernel_size, dims, layer.dilation
            )
    elif layer.padding_mode != "zeros":
        x = functional.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
        padding = (0,) * dims
    elif isinstance(padding, str):
        # (low, high) of the last axis first -> (low, high) of the first axis first
        around = layer._reversed_padding_repeated_twice
        padding = [around[2 * axis + side] for axis in reversed(range(dims)) for side in (0, 1)]
        if padding[::2] == padding[1::2]:
            padding = padding[::2]
    if torch._C._get_tracing_state() is None:  # torch.jit.trace has tensors for sizes, which must not be compared
        shape = _result_shape(layer, x, w, padding, output_padding)
        if shape is None or (residual is not None and tuple(residual.shape) != shape):
            return None
    options = (layer.stride, padding, layer.dilation, transposed, output_padding, layer.groups)

    def ours() -> Any:
        return torch.ops.tilesmith.convolution.default(
            x, w, b, residual, *options, *activation_arguments(epilogue), not layer.training, mode=find_mode(x)
        )

    try:
        if len(padding) == dims and may_measure(layer, x):

            def pytorchs() -> Any:
                y = torch.ops.aten.convolution.default(x, w, b, *options)
                return activate_in_place(epilogue, y if residual is None else y.add_(residual))

            y: torch.Tensor = run_faster(layer, (*_lying(x, w, residual), b is None, epilogue), x, ours, pytorchs)
        else:
            y = ours()
    except TilesmithError as error:
        tell(error)
        return None
    return y if batched else y.squeeze(0)


def multiplied(
    layer: Any, x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional = None, epilogue: Epilogue = IDENTITY
) -> torch.Tensor | None:
    """What a linear layer makes of ``x``; None where the operator does not take the call, or would not pay."""
    if not _is_taken(layer, x, w, b, residual) or x.dim() < 2 or x.shape[-1] != w.shape[1]:
        return None
    races = may_measure(layer, x)
    if (x.device.type != "cuda" and not races) or x.numel() == 0:
        return None
    shape = (*x.shape[:-1], w.shape[0])
    if residual is not None and tuple(residual.shape) != shape:
        return None
    rows = x.reshape(-1, w.shape[1])
    added = None if residual is None else residual.reshape(-1, w.shape[0])

    def ours() -> Any:
        return torch.ops.tilesmith.gemm.default(
            rows, w.t(), b, added, *activation_arguments(epilogue), not layer.training, mode=find_mode(x)
        )

    def pytorchs() -> Any:
        y = functional.linear(rows, w, b)
        return activate_in_place(epilogue, y if added is None else y.add_(added))

    try:
        key = (*_lying(rows, w, added), b is None, epilogue)
        y: torch.Tensor = run_faster(layer, key, x, ours, pytorchs) if races else ours()
    except TilesmithError as error:
        tell(error)
        return None
    return y.reshape(shape)


def _lying(*tensors: Optional) -> tuple[Any, ...]:
    """What times depend on of tensors of one dtype."""
    first = tensors[0]
    assert first is not None
    return (first.dtype, *[None if each is None else (each.shape, each.stride()) for each in tensors])


def tell(error: TilesmithError) -> None:
    """Log, once for each text, why PyTorch's kernel runs where ours was asked for."""
    text = str(error)
    if text not in _told:
        _told.add(text)
        _log.warning("PyTorch's kernel runs a layer of an optimized model: %s", text)


def _is_taken(layer: Any, x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional) -> bool:
    if isinstance(x, torch.fx.Proxy) or not isinstance(x, torch.Tensor) or exports_to_onnx():
        return False
    return taken(x, w, b, residual) and not differentiates_forward()


def _result_shape(
    layer: Any, x: torch.Tensor, w: torch.Tensor, padding: Any, output_padding: Any
) -> tuple[int, ...] | None:
    """The shape of a convolution's result; None where PyTorch would raise, or where nothing is to be computed."""
    if x.shape[1] != layer.in_channels:
        return None
    both = len(padding) == w.dim() - 2
    sizes = []
    for axis, (step, apart, size, taps) in enumerate(
        zip(layer.stride, layer.dilation, x.shape[2:], w.shape[2:], strict=True)
    ):
        around = 2 * padding[axis] if both else padding[2 * axis] + padding[2 * axis + 1]
        reach = apart * (taps - 1) + 1
        if layer.transposed:
            sizes.append((size - 1) * step - around + reach + output_padding[axis])
        else:
            if size + around < reach:
                return None
            sizes.append((size + around - reach) // step + 1)
        if sizes[-1] <= 0 or size == 0:
            return None
    return (x.shape[0], layer.out_channels, *sizes)
