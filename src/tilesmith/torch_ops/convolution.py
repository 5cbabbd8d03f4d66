"""``tilesmith::convolution`` and ``tilesmith::convolution_backward``: kernels, fake kernels and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilesmith.dispatch.eager import conv, conv_call
from tilesmith.problems.epilogue import Epilogue
from tilesmith.torch_ops.activations import gradient_before
from tilesmith.torch_ops.frozen import lying, packed_filter
from tilesmith.torch_ops.gradients import Gradients, gradients
from tilesmith.torch_ops.library import EPILOGUE, add_operator
from tilesmith.torch_ops.results import (
    axes,
    conv_shape,
    conv_strides,
    padding_of,
    require,
    result_dtype,
    strides_like,
)

Optional = torch.Tensor | None
_SHAPE = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, int groups"


# --- the convolution --------------------------------------------------------------------------------------------------


def _convolution(
    x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, activation: str = "none",
    slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False,
) -> torch.Tensor:  # fmt: skip
    options: dict[str, Any] = {
        "stride": axes(stride), "padding": padding_of(padding, x.dim() - 2), "dilation": axes(dilation),
        "groups": groups, "transposed": transposed, "output_padding": axes(output_padding) if transposed else 0,
        "activation": activation, "slope": slope, "low": low, "high": high,
    }  # fmt: skip
    if frozen:
        packed = packed_filter(
            w,
            (*map(lying, (x, b, residual)), *options.values()),
            lambda: conv_call(x, w, b, residual=residual, **options),
        )
        if packed is not None:
            return packed(x, b, residual)
    y: torch.Tensor = conv(x, w, b, residual=residual, **options)
    return y


def _fake_convolution(
    x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, activation: str = "none",
    slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False,
) -> torch.Tensor:  # fmt: skip
    Epilogue(activation=activation, slope=slope, low=low, high=high)
    shape = conv_shape(x, w, stride, padding, dilation, transposed, output_padding, groups)
    return x.new_empty_strided(shape, conv_strides(x, w, shape), dtype=result_dtype(x))


def _save_convolution(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, w, b, residual, *ctx.shape, activation, slope, low, high, ctx.frozen = inputs
    ctx.activation = Epilogue(activation=activation, slope=slope, low=low, high=high)
    # The result serves most activations; silu and gelu compute their argument anew from the operands.
    anew = activation in ("silu", "gelu")
    ctx.save_for_backward(
        x, w, b if anew else None, residual if anew else None, None if anew or activation == "none" else output
    )


def _convolution_gradient(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
    x, w, b, residual, y = ctx.saved_tensors
    ops = torch.ops.tilesmith
    dy = gradient_before(
        ctx.activation, dy, y, lambda: ops.convolution(x, w, b, residual, *ctx.shape, "none", frozen=ctx.frozen)
    )
    mask = list(ctx.needs_input_grad[:3])
    found = ops.convolution_backward(dy, x, w, *ctx.shape, mask) if any(mask) else (None, None, None)
    wanted = [grad if each else None for each, grad in zip(mask, found, strict=True)]
    return *wanted, dy if ctx.needs_input_grad[3] else None, *[None] * 11


add_operator(
    "convolution", f"(Tensor x, Tensor w, Tensor? b, Tensor? residual, {_SHAPE}, {EPILOGUE}) -> Tensor",
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
    """By the operators themselves, which can be differentiated again.

    dx is linear in dy and w, dw is linear in dy and x: so each gradient is a convolution, or a gradient of one, with
    one tensor replaced.
    """
    dy, x, w = ctx.saved_tensors
    convolve, differentiate = torch.ops.tilesmith.convolution, torch.ops.tilesmith.convolution_backward
    has_dx, has_dw, has_db = ctx.mask
    to_dy, to_x, to_w = ctx.needs_input_grad[:3]
    grads: list[Optional] = [None, None, None]
    if to_dy:
        parts = [convolve(ddx, w, None, None, *ctx.shape)] if has_dx else []
        parts += [convolve(x, ddw, None, None, *ctx.shape)] if has_dw else []
        parts += [ddb.reshape(1, -1, *[1] * (dy.dim() - 2)).expand(dy.shape)] if has_db else []
        grads[0] = sum(parts[1:], parts[0]) if parts else None
    if to_x and has_dw:
        grads[1] = differentiate(dy, x, ddw, *ctx.shape, [True, False, False])[0]
    if to_w and has_dx:
        grads[2] = differentiate(dy, ddx, w, *ctx.shape, [False, True, False])[1]
    return *grads, *[None] * 7


add_operator(
    "convolution_backward",
    f"(Tensor dy, Tensor x, Tensor w, {_SHAPE}, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    gradients, _fake_gradients, _gradient_of_gradients, _save_gradients,
)  # fmt: skip
