"""Gradients of random convolutions against PyTorch in float64: ``python tests/gradient_sweep.py 500``.

A gradient of fp32 or bf16 is a sum of n products in fp32, rounded once: element by element its error is at most
``(n + 2) * 2**-24`` times the sum of the products' magnitudes, and half a unit of the result.
"""

from __future__ import annotations

import sys

import torch

import tilesmith.torch_ops  # noqa: F401
from torch_signatures import randn, signature

_UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}


def worst(seed: int) -> float:
    """The largest error of the three gradients of one signature, as a share of its bound."""
    x, w, b, (stride, padding, dilation, transposed, extra, groups) = signature(seed)
    options = (stride, padding, dilation, transposed, extra, groups)
    leaves = [each.requires_grad_() for each in (x, w, randn(1).to(x.dtype) if b is None else b)]
    y = torch.ops.tilesmith.convolution(x, w, b, None, *options)
    dy = randn(*y.shape, dtype=y.dtype, seed=seed + 9)
    used = leaves[: 2 + (b is not None)]
    found = torch.autograd.grad(y, used, dy)
    sizes = [y.shape[1]]
    exact, magnitude, count = (
        torch.ops.aten.convolution_backward(
            change(dy), change(x), change(w), sizes, *options, [True, True, True]
        )
        for change in (
            lambda t: t.detach().double(), lambda t: t.detach().double().abs(),
            lambda t: torch.ones_like(t, dtype=torch.float64),
        )
    )  # fmt: skip
    share = 0.0
    for grad, value, most, terms in zip(found, exact, magnitude, count, strict=False):
        unit = _UNITS[grad.dtype]
        bound = (terms + 2) * min(unit, 2.0**-24) * most + unit * value.abs() + 1e-38
        share = max(share, ((grad.double() - value).abs() / bound).max().item())
    return share


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    found = {seed: worst(seed) for seed in range(count)}
    failed = {seed: share for seed, share in found.items() if not share <= 1}
    print(f"{count} signatures, {len(failed)} beyond the bound {failed or ''}; largest share {max(found.values()):.2f}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
