"""Computes layers by our kernels or by PyTorch's. ``quick.py`` repeats a layer's last call without these steps."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any

import torch
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.nn import functional

from tilesmith.errors import ArgumentError, TilesmithError
from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.runtime._runtime import torch_settings, torch_watches
from tilesmith.torch_ops.activations import activation_arguments
from tilesmith.torch_ops.arguments import PLAIN_TYPES, ConvArguments, GemmArguments
from tilesmith.torch_ops.compile.decide import Decision
from tilesmith.torch_ops.library import as_autocast
from tilesmith.torch_ops.modules.decisions import (
    LayerArguments,
    conv_decision,
    decides,
    is_left_to_pytorch,
    prepare_gradients,
    product_decision,
)
from tilesmith.torch_ops.modules.finish import activate_in_place
from tilesmith.torch_ops.modules.quick import Quick, Run, launches
from tilesmith.torch_ops.modules.race import has_lost, may_measure, run_faster
from tilesmith.torch_ops.modules.tensors import (
    differentiates_forward,
    exports,
    exports_to_onnx,
    find_mode,
    records_gradients,
    taken,
)
from tilesmith.torch_ops.recording import record

Optional = torch.Tensor | None
Four = tuple[torch.Tensor, torch.Tensor, Optional, Optional]
_log = logging.getLogger("tilesmith.dispatch")
_told: set[str] = set()


# --- convolutions -----------------------------------------------------------------------------------------------------


def convolved(
    layer: Any, x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional = None,
    epilogue: Epilogue = IDENTITY, *, output_size: Any = None, quick: Quick | None = None, options: object = None,
) -> torch.Tensor | None:  # fmt: skip
    """Convolves ``x`` with this filter and bias; returns None where the operator does not take the call.

    It does not take a residual of another shape than the result. ``quick`` learns how the call was run; the call
    depends on ``options`` of the layer.
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
    stride, padding, dilation, output_padding = (
        (each,) * dims if isinstance(each, int) else each  # a program may set what PyTorch's functions take
        for each in (layer.stride, layer.padding, layer.dilation, layer.output_padding)
    )
    as_given = batched  # whether the operator takes the layer's own tensors
    if transposed:
        given = None if output_size is None else list(output_size)
        if given is not None:
            output_padding = tuple(layer._output_padding(x, given, stride, padding, layer.kernel_size, dims, dilation))
    elif layer.padding_mode != "zeros":
        x = functional.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
        padding, as_given = (0,) * dims, False
    elif isinstance(padding, str):
        # (low, high) of the last axis first -> (low, high) of the first axis first
        around = layer._reversed_padding_repeated_twice
        padding = tuple(around[2 * axis + side] for axis in reversed(range(dims)) for side in (0, 1))
        if padding[::2] == padding[1::2]:
            padding = padding[::2]
    if torch._C._get_tracing_state() is None:  # torch.jit.trace has tensors for sizes, which must not be compared
        sizes = _result_shape(layer, x, w, stride, padding, dilation, output_padding)
        if sizes is None or (residual is not None and tuple(residual.shape) != sizes):
            return None
    shape = (stride, padding, dilation, transposed, output_padding, layer.groups)
    if is_compiling():
        x, residual = _lying_as(w, x), None if residual is None else _lying_as(w, residual)
    call = _Convolution(shape, epilogue, not layer.training, len(padding) == dims)
    tensors = x, w, b, residual
    y = _computed(call, layer, tensors, tensors, quick if as_given else None, options)
    return y if batched or y is None else y.squeeze(0)


class _Convolution:
    """One convolution of a layer, as functions of its tensors.

    Args:
        shape: What comes before the epilogue in the operator's schema.
        frozen: Whether the filter is packed once.
        has_rival: Whether PyTorch has such an operator.
    """

    def __init__(self, shape: tuple[Any, ...], epilogue: Epilogue, frozen: bool, has_rival: bool) -> None:
        self.shape, self.epilogue, self.frozen, self.has_rival = shape, epilogue, frozen, has_rival

    def options(self, x: torch.Tensor) -> tuple[Any, ...]:
        return (*self.shape, *activation_arguments(self.epilogue), self.frozen, "", find_mode(x), None)

    def operator(self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> Any:
        return torch.ops.tilesmith.convolution.default(x, w, b, z, *self.options(x))

    def arguments(self, x: torch.Tensor) -> ConvArguments:
        return (LayerArguments if decides(x) else ConvArguments).of(*self.options(x))

    def pytorchs(self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> Any:
        y = torch.ops.aten.convolution.default(x, w, b, *self.shape)
        return activate_in_place(self.epilogue, y if z is None else y.add_(z))

    def decision(self, layer: Any, key: Hashable, tensors: Four) -> Decision:
        return conv_decision(layer, key, *tensors, self.epilogue, self.shape)

    def operand(self, w: torch.Tensor) -> torch.Tensor:
        """The layer's filter as the operator takes it."""
        return w

    def of_filter(self, run: Run) -> Run:
        """A function of the operator's operands as a function of the layer's filter."""
        return run

    def of_layer(self, run: Run) -> Run:
        """A function of the layer's input as the operator takes it as one of the input as the layer gets it."""
        return run


# --- linear layers ----------------------------------------------------------------------------------------------------


def multiplied(
    layer: Any, x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional = None, epilogue: Epilogue = IDENTITY,
    *, quick: Quick | None = None, options: object = None,
) -> torch.Tensor | None:  # fmt: skip
    """Multiplies ``x`` as a linear layer does; returns None where the operator does not take it, or would not pay.

    ``quick`` and ``options`` as in ``convolved``.
    """
    if not _is_taken(layer, x, w, b, residual) or x.dim() < 2 or x.shape[-1] != w.shape[1]:
        return None
    if x.device.type != "cuda" and not may_measure(layer, x) and not _is_compiled(layer, x, w, b, residual):
        alone = residual is None and epilogue == IDENTITY  # a chain finishes the layer's result by itself
        if quick is not None and alone and type(w) in PLAIN_TYPES and not torch_watches():
            quick.learn(None if torch.is_grad_enabled() else _left, w, b, None, options, recorded=_left)
        return None
    shape = (*x.shape[:-1], w.shape[0])
    if x.numel() == 0 or (residual is not None and tuple(residual.shape) != shape):
        return None
    rows = x.reshape(-1, w.shape[1])
    added = None if residual is None else residual.reshape(-1, w.shape[0])
    call = _Product(epilogue, not layer.training)
    y = _computed(call, layer, (rows, w, b, added), (x, w, b, residual), quick, options)
    return None if y is None else y.reshape(shape)


def _is_compiled(layer: Any, *tensors: Optional) -> bool:
    """Whether a linear layer on a CPU becomes a part of a compiled program in which its filter is packed once."""
    return is_dynamo_compiling() and not exports() and not layer.training and not records_gradients(*tensors)


def _left(x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> torch.Tensor:
    """A linear layer on a CPU that stays PyTorch's."""
    if not x.is_cpu:
        raise ArgumentError("the layer was moved")
    return functional.linear(x, w, b)


class _Product:
    """The product of a linear layer, as functions of the rows, the filter, the bias and what is added."""

    has_rival, shape = True, ()

    def __init__(self, epilogue: Epilogue, frozen: bool) -> None:
        self.epilogue, self.frozen = epilogue, frozen

    def options(self, x: torch.Tensor) -> tuple[Any, ...]:
        return (*activation_arguments(self.epilogue), self.frozen, "", find_mode(x), None)

    def operator(self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> Any:
        return torch.ops.tilesmith.gemm.default(x, w, b, z, *self.options(x))

    def arguments(self, x: torch.Tensor) -> GemmArguments:
        return GemmArguments.of(*self.options(x))

    def pytorchs(self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> Any:
        y = functional.linear(x, w, b)
        return activate_in_place(self.epilogue, y if z is None else y.add_(z))

    def decision(self, layer: Any, key: Hashable, tensors: Four) -> Decision:
        return product_decision(layer, key, *tensors, self.epilogue)

    def operand(self, w: torch.Tensor) -> torch.Tensor:
        return w.t()

    def of_filter(self, run: Run) -> Run:
        return lambda x, w, b, z: run(x, w.t(), b, z)

    def of_layer(self, run: Run) -> Run:
        def of(x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> torch.Tensor:
            if x.dim() == 2:
                return run(x, w, b, z)
            shape = (*x.shape[:-1], w.shape[0])
            added = None if z is None else z.reshape(-1, shape[-1])
            return run(x.reshape(-1, w.shape[1]), w, b, added).reshape(shape)

        return of


# --- both -------------------------------------------------------------------------------------------------------------


def _computed(
    call: _Convolution | _Product, layer: Any, tensors: Four, given: Four, quick: Quick | None, options: object
) -> torch.Tensor | None:
    """The result for the operator's tensors, and what ``quick`` learns about the layer's; None where it fails."""
    try:
        plain = all(each is None or type(each) in PLAIN_TYPES for each in tensors)
        if is_compiling() or not plain or torch_watches():
            x, w, b, z = tensors
            if call.has_rival and is_dynamo_compiling() and not exports() and _is_left(call, x, w, b, z):
                return call.pytorchs(x, w, b, z)  # type: ignore[no-any-return]
            return call.operator(x, call.operand(w), b, z)  # type: ignore[no-any-return]
        device = tensors[0].device.type
        if torch.is_autocast_enabled(device):
            x, w, b, z = as_autocast(tensors, device)
            tensors = x, w, b, z
        return _ours_or_pytorchs(call, layer, tensors, given, quick, options)
    except TilesmithError as error:
        tell(error)
        if quick is not None and call.has_rival and not isinstance(error, ArgumentError) and not torch_settings():
            # To search and to fail at each call would take longer than a small layer: PyTorch's stays until ``forget``.
            x, w, b, z = given
            run = call.of_layer(call.pytorchs)
            quick.learn(run, w, b, z, options, recorded=run, like=x)
        return None


def _ours_or_pytorchs(
    call: _Convolution | _Product, layer: Any, tensors: Four, given: Four, quick: Quick | None, options: object
) -> torch.Tensor:
    x, w, b, z = tensors
    arguments, operand = call.arguments(x), call.operand(w)

    def ours() -> torch.Tensor:
        if records_gradients(*tensors):
            y = record(None, x, operand, b, z, arguments)
            if isinstance(arguments, LayerArguments):
                prepare_gradients(arguments, y, x, w, b)
            return y
        return arguments.run(x, operand, b, z)

    key = (*_lying(x, w, z), b is None, call.epilogue, call.shape)
    lost: bool | None = False
    threads = 0
    if call.has_rival and may_measure(layer, x):
        y = run_faster(layer, key, x, ours, lambda: call.pytorchs(*tensors), lambda: arguments.kernel(x, operand, b, z))
        lost, threads = has_lost(layer, key), torch.get_num_threads()
    else:
        # On CPUs fp64 has the plain reference alone.
        slow = x.is_cpu and x.dtype == torch.float64
        lost = call.has_rival and (slow or (decides(x) and not call.decision(layer, key, tensors).ours))
        with _named(call):
            y = call.pytorchs(*tensors) if lost else ours()
    if quick is None or lost is None or torch_settings():
        return y
    filter_ = given[1]
    if lost:
        run = call.of_layer(call.pytorchs)
        quick.learn(run, filter_, b, z, options, recorded=None if threads else run, like=given[0], threads=threads)
        return y
    found = launches(arguments, operand, b, z)
    if found is not None:
        runs = [None if run is None else call.of_layer(call.of_filter(run)) for run in found[:2]]
        quick.learn(runs[0], filter_, b, z, options, recorded=runs[1], packed=found[2], threads=threads)
    return y


def _lying_as(w: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as channels last if the filter lies so: a compiler makes the copy part of the kernel before it.

    NOTE: on GPUs PyTorch's group norm gives channels-first results; the copy behind it, of our own, was 8 % of a model.
    """
    form = _LASTING.get(w.dim())
    if form is None or not w.is_contiguous(memory_format=form) or (w.stride(1), w.stride(-1)) == (w[0, 0].numel(), 1):
        return tensor
    return tensor.contiguous(memory_format=form)


_LASTING = {4: torch.channels_last, 5: torch.channels_last_3d}


def _is_left(call: _Convolution | _Product, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> bool:
    """Whether a compiled program has PyTorch's kernel for the call, by the rule for layers that run eagerly."""
    on_cpu = isinstance(call, _Product) and x.is_cpu  # convolutions on CPUs are ours
    if not on_cpu and not decides(x):
        return False
    if not all(map(torch.fx.experimental.symbolic_shapes.has_static_value, x.shape)):
        return on_cpu
    x_lies, w_lies = (tuple(x.shape), x.stride()), (tuple(w.shape), w.stride())
    numbers = activation_arguments(call.epilogue)
    given = b is not None, z is not None
    return is_left_to_pytorch(x.device, x.dtype, x_lies, w_lies, *given, numbers, call.shape, call.frozen)


def _named(call: _Convolution | _Product) -> Any:
    """The operator's name for a profiler, which would see it."""
    if not torch._C._autograd._profiler_enabled():
        return nullcontext()
    name = "convolution" if isinstance(call, _Convolution) else "gemm"
    return torch.profiler.record_function(f"tilesmith::{name}")


def _lying(*tensors: Optional) -> tuple[Any, ...]:
    """The dtype, shapes and strides, on which times depend, of tensors of one dtype."""
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
    layer: Any, x: torch.Tensor, w: torch.Tensor, stride: Any, padding: Any, dilation: Any, output_padding: Any
) -> tuple[int, ...] | None:
    """The shape of a convolution's result; None where PyTorch would raise, or where nothing is to be computed."""
    if x.shape[1] != layer.in_channels:
        return None
    both = len(padding) == w.dim() - 2
    sizes = []
    for axis, (step, apart, size, taps) in enumerate(zip(stride, dilation, x.shape[2:], w.shape[2:], strict=True)):
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
