"""``tilesmith::convolution`` and ``tilesmith::convolution_backward``: kernels, fake kernels and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from tilesmith.problems.epilogue import Epilogue
from tilesmith.torch_ops.arguments import ConvArguments
from tilesmith.torch_ops.batching import batched_convolution, batched_gradients
from tilesmith.torch_ops.gradients import gradient_calls
from tilesmith.torch_ops.library import EPILOGUE, SUMS, add_autocast, add_operator
from tilesmith.torch_ops.recording import LevelFunction, beneath, has_memory, has_tangent, kernels_of, one_level
from tilesmith.torch_ops.results import conv_shape, conv_strides, require, result_dtype, strides_like
from tilesmith.torch_ops.undispatched import add_undispatched, lower_undispatched

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_C: Any = torch._C
Optional = torch.Tensor | None
_SHAPE = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, int groups"


# --- the convolution --------------------------------------------------------------------------------------------------

_convolution, _recorded, _into = kernels_of(ConvArguments)


def _fake_convolution(
    x: torch.Tensor, w: torch.Tensor, b: Optional, residual: Optional, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, activation: str = "none",
    slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False, acc_dtype: str = "",
    mode: str | None = None, threads: int | None = None,
) -> torch.Tensor:  # fmt: skip
    lower_undispatched()
    Epilogue(activation=activation, slope=slope, low=low, high=high)
    shape = conv_shape(x, w, stride, padding, dilation, transposed, output_padding, groups)
    return x.new_empty_strided(shape, conv_strides(x, w, shape), dtype=result_dtype(x))


add_operator(
    "convolution", f"(Tensor x, Tensor w, Tensor? b, Tensor? residual, {_SHAPE}, {EPILOGUE}, {SUMS}) -> Tensor",
    _convolution, _fake_convolution, _recorded, batched_convolution,
)  # fmt: skip
add_autocast("convolution")
add_undispatched("convolution", _convolution, _into)


# --- its gradients ----------------------------------------------------------------------------------------------------


def _gradients(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *options: Any) -> Gradients:
    dx, dw, db = gradient_calls(dy, x, w, *options).run(dy, x, w)
    return _or_empty(dx, dy), _or_empty(dw, dy), _or_empty(db, dy)


def _or_empty(found: Optional, dy: torch.Tensor) -> torch.Tensor:
    return dy.new_empty(0) if found is None else found


def _fake_gradients(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
    acc_dtype: str = "", mode: str | None = None, threads: int | None = None,
) -> Gradients:  # fmt: skip
    shape = conv_shape(x, w, stride, padding, dilation, transposed, output_padding, groups)
    require(all(a == b for a, b in zip(dy.shape, shape, strict=True)), lambda: f"dy has shape {dy.shape}, not {shape}")
    like_x, like_w, with_b = output_mask
    return (
        dy.new_empty_strided(x.shape, strides_like(x)) if like_x else dy.new_empty(0),
        dy.new_empty_strided(w.shape, strides_like(w)) if like_w else dy.new_empty(0),
        dy.new_empty(dy.shape[1]) if with_b else dy.new_empty(0),
    )


class _RecordedGradients(LevelFunction):  # type: ignore[misc]
    """By the operators themselves, which can be differentiated again.

    dx is linear in dy and w, dw is linear in dy and x: so each gradient is a convolution, or a gradient of one, with
    one tensor replaced.
    """

    @staticmethod
    def forward(ctx: Any, keyset: Any, dy: Any, x: Any, w: Any, shape: Any, mask: Any, sums: Any) -> Any:
        ctx.save_for_backward(dy, x, w)
        ctx.save_for_forward(dy, x, w)
        ctx.shape, ctx.mask, ctx.sums = shape, mask, sums
        with beneath():
            return _redispatched(keyset, dy, x, w, *shape, mask, *sums)

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor, ddw: torch.Tensor, ddb: torch.Tensor) -> tuple[Any, ...]:
        dy, x, w = ctx.saved_tensors
        _, to_dy, to_x, to_w, *_ = ctx.needs_input_grad
        has_dx, has_dw, has_db = ctx.mask
        grads: list[Optional] = [None, None, None]
        if to_dy:
            parts = [_convolve(ctx, ddx, w)] if has_dx else []
            parts += [_convolve(ctx, x, ddw)] if has_dw else []
            parts += [ConvArguments.spread(ddb, dy.shape)] if has_db else []
            grads[0] = sum(parts[1:], parts[0]) if parts else None
        if to_x and has_dw:
            grads[1] = _differentiate(ctx, dy, x, ddw, (True, False, False))[0]
        if to_w and has_dx:
            grads[2] = _differentiate(ctx, dy, ddx, w, (False, True, False))[1]
        return None, *grads, None, None, None

    @staticmethod
    def jvp(ctx: Any, _: Any, ddy: Optional, dx: Optional, dw: Optional, *others: Any) -> Any:
        dy, x, w = ctx.saved_tensors
        has_dx, has_dw, has_db = ctx.mask
        found: list[Any] = list(_differentiate(ctx, ddy, x, w, ctx.mask)) if ddy is not None else [None, None, None]
        if dw is not None and has_dx:
            more = _differentiate(ctx, dy, x, dw, (True, False, False))[0]
            found[0] = more if found[0] is None else found[0] + more
        if dx is not None and has_dw:
            more = _differentiate(ctx, dy, dx, w, (False, True, False))[1]
            found[1] = more if found[1] is None else found[1] + more
        shapes = (x.shape, w.shape, (dy.shape[1],))
        return tuple(
            dy.new_zeros(shape if has else 0) if each is None else each
            for each, shape, has in zip(found, shapes, ctx.mask, strict=True)
        )


def _convolve(ctx: Any, x: Any, w: Any) -> Any:
    return torch.ops.tilesmith.convolution(x, w, None, None, *ctx.shape, "none", 0.01, 0.0, 6.0, False, *ctx.sums)


def _differentiate(ctx: Any, dy: Any, x: Any, w: Any, mask: Any) -> Any:
    return torch.ops.tilesmith.convolution_backward(dy, x, w, *ctx.shape, mask, *ctx.sums)


def _below(keyset: Any, *arguments: Any) -> Any:
    if has_memory(keyset):
        return _gradients(*arguments)
    with _C._AutoDispatchBelowAutograd():
        return _redispatched(keyset, *arguments)


def _redispatched(keyset: Any, *arguments: Any) -> Any:
    operator = torch.ops.tilesmith.convolution_backward.default
    return operator.redispatch(keyset & _C._after_autograd_keyset, *arguments)


def _recorded_gradients(keyset: Any, dy: Any, x: Any, w: Any, *options: Any) -> Any:
    tangents = forward_ad._current_level >= 0 and has_tangent(dy, x, w)
    if not tangents and not (_C.is_grad_enabled() and (dy.requires_grad or x.requires_grad or w.requires_grad)):
        return _below(keyset, dy, x, w, *options)
    with one_level():
        return _RecordedGradients.apply(keyset, dy, x, w, options[:6], options[6], options[7:])


add_operator(
    "convolution_backward",
    f"(Tensor dy, Tensor x, Tensor w, {_SHAPE}, bool[3] output_mask, {SUMS}) -> (Tensor, Tensor, Tensor)",
    _gradients, _fake_gradients, _recorded_gradients, batched_gradients,
)  # fmt: skip
