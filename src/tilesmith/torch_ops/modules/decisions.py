"""Decides which layers of an optimized model PyTorch runs where nothing is measured: on GPUs and in compiled programs.

One rule for layers and for compiled graphs: ``compile.decide``. It decides about a layer's own problem, and about the
gradient of its input, of its filter and of its bias, each for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from tilesmith.dispatch.kept_calls import when_forgotten
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.rewrite import Signature
from tilesmith.torch_ops.arguments import ConvArguments
from tilesmith.torch_ops.compile.builder import begin
from tilesmith.torch_ops.compile.decide import Decider, Decision
from tilesmith.torch_ops.describe import conv_problem, gemm_problem
from tilesmith.torch_ops.gradients import gradient_calls
from tilesmith.torch_ops.modules.tensors import find_mode
from tilesmith.torch_ops.results import conv_shape, conv_strides

Optional = torch.Tensor | None
_Lies = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides
_LIMIT = 4096
_deciders: dict[tuple[str, bool], Decider] = {}
_known: dict[Hashable, Decision] = {}
_of_layers: WeakKeyDictionary[Any, dict[Hashable, Decision]] = WeakKeyDictionary()


def _forget() -> None:
    _deciders.clear()
    _known.clear()
    _of_layers.clear()


when_forgotten(_forget)


def decides(x: torch.Tensor) -> bool:
    """Whether the rule decides: on a GPU, unless TILESMITH_FIND_MODE asks for measurements."""
    return x.is_cuda and find_mode(x) == "fast"


def decisions_of(layer: Any) -> tuple[Decision, ...]:
    """What was decided about a layer's own problems."""
    return tuple(_of_layers.get(layer, {}).values())


def conv_decision(
    layer: Any, key: Hashable, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional, epilogue: Epilogue,
    shape: tuple[Any, ...],
) -> Decision:  # fmt: skip
    """Whether our kernel runs a convolution; ``shape`` as in ``ConvArguments``, ``key`` stands for all of it."""
    full = replace(epilogue, bias=b is not None, residual=z is not None)
    return _decided(layer, (key, shape), x, partial(_conv_signature, x, w, full, shape))


def product_decision(
    layer: Any, key: Hashable, rows: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional, epilogue: Epilogue
) -> Decision:
    """Whether our kernel runs a linear layer."""
    full = replace(epilogue, bias=b is not None, residual=z is not None)
    return _decided(layer, key, rows, partial(_gemm_signature, rows, w, full))


def _conv_signature(x: torch.Tensor, w: torch.Tensor, epilogue: Epilogue, shape: tuple[Any, ...]) -> Signature:
    stride, padding, dilation, transposed, output_padding, groups = shape
    sizes = conv_shape(x, w, stride, padding, dilation, transposed, output_padding, groups)
    y = torch.empty_strided(sizes, conv_strides(x, w, sizes), dtype=x.dtype, device="meta")
    plain = conv_problem(
        "fwd", x, w, y, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=groups,
    )  # fmt: skip
    return replace(plain, epilogue=epilogue)


def _gemm_signature(rows: torch.Tensor, w: torch.Tensor, epilogue: Epilogue) -> Signature:
    return replace(gemm_problem(rows, w.t()), epilogue=epilogue)


def is_left_to_pytorch(
    device: torch.device, dtype: torch.dtype, x: _Lies, w: _Lies, bias: bool, residual: bool,
    activation: tuple[Any, ...], shape: tuple[Any, ...], packed: bool,
) -> bool:  # fmt: skip
    """Whether PyTorch's kernel runs a layer of a compiled program. The compiler takes the answer for a constant.

    Args:
        x: Shape and strides of the input.
        w: Those of the filter.
        activation: As ``activation_arguments`` gives it.
        shape: As in ``ConvArguments`` for a convolution; empty for a linear layer.
        packed: Whether the filter is packed once.
    """
    image, filter_ = (torch.empty_strided(*each, dtype=dtype, device="meta") for each in (x, w))
    epilogue = Epilogue(bias, activation[0], residual, *activation[1:])
    make: Callable[[], Signature] = partial(_gemm_signature, image, filter_, epilogue)
    if shape:
        make = partial(_conv_signature, image, filter_, epilogue, shape)
    return not decider(str(device), packed)(make).ours


# What ``torch.compiler.assume_constant_result`` does. NOTE: it imports the whole of Dynamo, a second of each program.
is_left_to_pytorch._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _decided(layer: Any, key: Hashable, x: torch.Tensor, make: Callable[[], Signature]) -> Decision:
    device = str(x.device)
    full = device, key
    found = _known.get(full)
    if found is None:
        if len(_known) >= _LIMIT:
            _known.clear()
        found = _known[full] = decider(device)(make)
    _of_layers.setdefault(layer, {})[full] = found
    return found


def decider(device: str, packed: bool = False) -> Decider:
    """The decisions for a device, of kernels that pack their filter once or at each call."""
    found = _deciders.get((device, packed))
    if found is None:
        found = _deciders[device, packed] = Decider(device, packed=packed)
    return found


def prepare_gradients(
    arguments: ConvArguments, y: torch.Tensor, x: torch.Tensor, w: torch.Tensor, b: Optional
) -> Future[None] | None:
    """Find and compile the kernels of a layer's gradients while the layers behind it run for the first time.

    The gradient of ``y`` usually lies as ``y``. Nothing is begun while a CUDA graph is captured.
    """
    if y.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    wanted = x.requires_grad, w.requires_grad, b is not None and b.requires_grad
    tensors = y.detach(), x.detach(), w.detach()
    find: Callable[..., object] = gradient_calls
    return begin(partial(find, *tensors, *arguments.shape, wanted, *arguments.sums, arguments.leaves))


class LayerArguments(ConvArguments):
    """Options of a layer's convolution: of its gradients, those that PyTorch is expected to win are left to it."""

    @staticmethod
    def leaves(signature: Signature, device: str) -> bool:
        return not decider(device)(lambda: signature).ours
