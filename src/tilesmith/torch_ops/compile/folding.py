"""Batch norm as a part of filter and bias, where these are constants: one node of the graph for each.

Inductor computes what depends on constants alone while it freezes. Each node costs it a fake tensor several times, and
a batch norm written out is nine.
"""

from __future__ import annotations

import torch

from tilesmith.torch_ops.library import add_plain


def _scale(variance: torch.Tensor, gamma: torch.Tensor | None, eps: float, wide: torch.dtype) -> torch.Tensor:
    scale = torch.rsqrt(variance.to(wide) + eps)
    return scale if gamma is None else scale * gamma.to(wide)


def folded_filter(
    w: torch.Tensor, variance: torch.Tensor, gamma: torch.Tensor | None, eps: float, axis: int
) -> torch.Tensor:
    """The filter, scaled along the axis of the result's channels; computed in fp32 or better."""
    wide = torch.promote_types(w.dtype, torch.float32)
    spread = [1] * w.dim()
    spread[axis] = -1
    return torch.empty_like(w).copy_(w.to(wide) * _scale(variance, gamma, eps, wide).view(spread))


def folded_bias(
    b: torch.Tensor | None, mean: torch.Tensor, variance: torch.Tensor, gamma: torch.Tensor | None,
    beta: torch.Tensor | None, eps: float, wide: torch.dtype, dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    """The bias behind the batch norm, of type ``dtype``; computed in ``wide``."""
    shifted = -mean.to(wide) if b is None else b.to(wide) - mean.to(wide)
    bias = shifted * _scale(variance, gamma, eps, wide)
    return (bias if beta is None else bias + beta.to(wide)).to(dtype)


def _fake_filter(w: torch.Tensor, *others: object) -> torch.Tensor:
    return torch.empty_like(w)


def _fake_bias(b: object, mean: torch.Tensor, *others: object) -> torch.Tensor:
    dtype = others[-1]
    assert isinstance(dtype, torch.dtype)
    return mean.new_empty(mean.shape, dtype=dtype)


add_plain(
    "folded_filter", "(Tensor w, Tensor variance, Tensor? gamma, float eps, int axis) -> Tensor",
    folded_filter, _fake_filter,
)  # fmt: skip
add_plain(
    "folded_bias",
    "(Tensor? b, Tensor mean, Tensor variance, Tensor? gamma, Tensor? beta, float eps, ScalarType wide, "
    "ScalarType dtype) -> Tensor",
    folded_bias, _fake_bias,
)  # fmt: skip
