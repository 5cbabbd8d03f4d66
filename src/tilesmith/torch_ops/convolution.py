"""``tilesmith::convolution`` and ``tilesmith::convolution_backward``: kernels, fake kernels and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilesmith.dispatch.eager import conv
from tilesmith.torch_ops.activations import FROM_ARGUMENT, check_activation, gradient_before
from tilesmith.torch_ops.gradients import Gradients, gradients
from tilesmith.torch_ops.library import add_operator
from tilesmith.torch_ops.results import conv_shape, conv_strides, require, result_dtype, strides_like

Optional = torch.Tensor | None
_SHAPE = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, int groups"


# --- the convolution --------------------------------------------------------------------------------------------------


def _convolution(
    x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, activation: str,
) -> torch.Tensor:  # fmt: skip
    y: torch.Tensor = conv(
        x, w, b, stride=_axes(stride), padding=_axes(padding), dilation=_axes(dilation), groups=groups,
        transposed=transposed, output_padding=_axes(output_padding) if transposed else 0, activation=activation,
        residual=residual,
    )  # fmt: skip
    return y


def _axes(values: Sequence[int]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _fake_convolution(
    x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, activation: str,
) -> torch.Tensor:  # fmt: skip
    check_activation(activation)
    shape = conv_shape(x, w, stride, padding, dilation, transposed, output_padding, groups)
    return x.new_empty_strided(shape, conv_strides(x, w, shape), dtype=result_dtype(x))


def _save_convolution(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, w, b, residual, *ctx.shape, ctx.activation = inputs
    # The result serves most activations; the others compute their argument anew from the operands.
    anew = ctx.activation in FROM_ARGUMENT
    ctx.save_for_backward(
        x, w, b if anew else None, residual if anew else None, None if anew or ctx.activation == "none" else output
    )


def _convolution_gradient(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
    x, w, b, residual, y = ctx.saved_tensors
    ops = torch.ops.tilesmith
    dy = gradient_before(ctx.activation, dy, y, lambda: ops.convolution(x, w, b, residual, *ctx.shape, "none"))
    mask = list(ctx.needs_input_grad[:3])
    found = ops.convolution_backward(dy, x, w, *ctx.shape, mask) if any(mask) else (None, None, None)
    wanted = [grad if each else None for each, grad in zip(mask, found, strict=True)]
    return *wanted, dy if ctx.needs_input_grad[3] else None, *[None] * 7


add_operator(
    "convolution",
    f"(Tensor x, Tensor w, Tensor? b, Tensor? residual, {_SHAPE}, str activation) -> Tensor",
    _convolution, _fake_convolution, _convolution_gradient, _save_convolution,
)  # fmt: skip


# --- its gradients ----------------------------------------------------------------------------------------------------


def _fake_gradients(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    shape = conv_shape(x, w, stride, padding, dilation, transposed, output_padding, groups)
    require(all(a == b for a, b in zip(dy.shape, shape, strict=True)), lambda: f"dy has shape {dy.shape}, not {shape}")
    like_x, like_w, with_b = output_mask
    return (
        dy.new_empty_strided(x.shape, strides_like(x)) if like_x else dy.new_empty(0),
        dy.new_empty_strided(w.shape, strides_like(w)) if like_w else dy.new_empty(0),
        dy.new_empty(dy.shape[1]) if with_b else dy.new_empty(0),
    )


def _save_gradients(ctx: Any, inputs: tuple[Any, ...], output: Gradients) -> None:
    dy, x, w, *ctx.shape, ctx.mask = inputs
    ctx.save_for_backward(dy, x, w)


def _gradient_of_gradients(ctx: Any, ddx: torch.Tensor, ddw: torch.Tensor, ddb: torch.Tensor) -> tuple[Any, ...]:
    """By PyTorch's operators, which it can differentiate again.

    dx is linear in dy and w, dw is linear in dy and x: so each gradient is a convolution, or a gradient of one, with
    one tensor replaced.
    """
    dy, x, w = ctx.saved_tensors
    convolve, differentiate = torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default
    has_dx, has_dw, has_db = ctx.mask
    to_dy, to_x, to_w = ctx.needs_input_grad[:3]
    grads: list[Optional] = [None, None, None]
    if to_dy:
        parts = [convolve(ddx, w, None, *ctx.shape)] if has_dx else []
        parts += [convolve(x, ddw, None, *ctx.shape)] if has_dw else []
        parts += [ddb.reshape(1, -1, *[1] * (dy.dim() - 2)).expand(dy.shape)] if has_db else []
        grads[0] = sum(parts[1:], parts[0]) if parts else None
    if to_x and has_dw:
        grads[1] = differentiate(dy, x, ddw, None, *ctx.shape, [True, False, False])[0]
    if to_w and has_dx:
        grads[2] = differentiate(dy, ddx, w, None, *ctx.shape, [False, True, False])[1]
    return *grads, *[None] * 7


add_operator(
    "convolution_backward",
    f"(Tensor dy, Tensor x, Tensor w, {_SHAPE}, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    gradients, _fake_gradients, _gradient_of_gradients, _save_gradients,
)  # fmt: skip
