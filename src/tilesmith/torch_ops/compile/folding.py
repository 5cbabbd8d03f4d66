"""Batch norm as a part of filter and bias: one node of the graph for each where these are constants, or one for all.

Inductor computes what depends on constants alone while it freezes. Each node costs it a fake tensor several times, and
a batch norm written out is nine. On a GPU parameters that are no constants are folded at each call, all in one launch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tilesmith.runtime.device_tensors import ALIGNMENT
from tilesmith.torch_ops.compile.norm_kernel import norms_kernel, norms_of
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


def folded_norms(
    filters: Sequence[torch.Tensor], biases: Sequence[torch.Tensor], means: Sequence[torch.Tensor],
    variances: Sequence[torch.Tensor], gammas: Sequence[torch.Tensor], betas: Sequence[torch.Tensor],
    eps: Sequence[float], axes: Sequence[int], dtype: torch.dtype,
) -> list[torch.Tensor]:  # fmt: skip
    """``folded_filter`` of each layer, then ``folded_bias`` of each, all of type ``dtype``.

    Without biases, or gammas and betas, these are empty lists.
    """
    given, place = (filters, biases, means, variances, gammas, betas, eps, axes, dtype), filters[0].device
    norms = norms_of(*given) if place.type == "cuda" else None
    kernel = None if norms is None else norms_kernel(norms, f"cuda:{place.index}")
    if kernel is None:
        return _one_by_one(*given)
    made, count = _empty(filters, means, dtype), len(filters)
    vectors = [each for each in (biases, means, variances, gammas, betas) if each]
    rows = zip(filters, *vectors, made[:count], made[count:], strict=True)
    slots = [each.data_ptr() for row in rows for each in row]
    contiguous = all(each.is_contiguous() for row in vectors for each in row)
    if not contiguous or any(address % ALIGNMENT for address in slots):
        return _one_by_one(*given)
    kernel.run_on(place.index, torch.cuda.current_stream(place).cuda_stream, slots, 0, 0)
    return made


def _one_by_one(
    filters: Sequence[torch.Tensor], biases: Sequence[torch.Tensor], means: Sequence[torch.Tensor],
    variances: Sequence[torch.Tensor], gammas: Sequence[torch.Tensor], betas: Sequence[torch.Tensor],
    eps: Sequence[float], axes: Sequence[int], dtype: torch.dtype,
) -> list[torch.Tensor]:  # fmt: skip
    wide = torch.promote_types(dtype, torch.float32)
    found = []
    for i, w in enumerate(filters):
        gamma = gammas[i] if gammas else None
        found.append(folded_filter(w.to(wide), variances[i], gamma, eps[i], axes[i]).to(dtype))
    for i, mean in enumerate(means):
        bias, gamma, beta = (each[i] if each else None for each in (biases, gammas, betas))
        found.append(folded_bias(bias, mean, variances[i], gamma, beta, eps[i], wide, dtype))
    return found


def _empty(filters: Sequence[torch.Tensor], means: Sequence[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.empty_like(w, dtype=dtype) for w in filters] + [
        mean.new_empty(mean.shape, dtype=dtype) for mean in means
    ]


def _fake_norms(
    filters: Sequence[torch.Tensor], biases: object, means: Sequence[torch.Tensor], *others: object
) -> list[torch.Tensor]:
    dtype = others[-1]
    assert isinstance(dtype, torch.dtype)
    return _empty(filters, means, dtype)


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
add_plain(
    "folded_norms",
    "(Tensor[] filters, Tensor[] biases, Tensor[] means, Tensor[] variances, Tensor[] gammas, Tensor[] betas, "
    "float[] eps, int[] axes, ScalarType dtype) -> Tensor[]",
    folded_norms, _fake_norms,
)  # fmt: skip
