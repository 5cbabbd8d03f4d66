"""Random convolutions as PyTorch's tensors and an operator's options."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilesmith.errors import ArgumentError
from tilesmith.plan.records import Slot
from tilesmith.plan.slots import arguments
from tilesmith.problems.rewrite import Signature

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
Options = tuple[list[int], list[int], list[int], bool, list[int], int]


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Random numbers of both signs."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def signature(seed: int, two_sides: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, Options]:
    """Random tensors ``x, w, b`` and options that make a convolution."""
    draw = random.Random(seed)
    dims = draw.choice((1, 2, 2, 2, 3))
    dtype = draw.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16))
    groups, transposed = draw.choice((1, 1, 2, 3)), draw.random() < 0.3
    c, k = groups * draw.randint(1, 3), groups * draw.randint(1, 3)
    filter_ = [draw.randint(1, 3) for _ in range(dims)]
    dilation = [draw.randint(1, 2) for _ in range(dims)]
    size = [d * (f - 1) + draw.randint(1, 5) for f, d in zip(filter_, dilation, strict=True)]
    stride = [draw.randint(1, 2) for _ in range(dims)]
    padding = [draw.randint(0, 1 if f > 1 and not transposed else 0) for f in filter_]
    if two_sides and draw.random() < 0.2:
        padding = [side for each in padding for side in (each, 0 if transposed else each + 1)]
    extra = [draw.randint(0, s - 1) if transposed else 0 for s in stride]
    x = randn(draw.randint(1, 3), c, *size, dtype=dtype, seed=seed)
    w = randn(*((c, k // groups) if transposed else (k, c // groups)), *filter_, dtype=dtype, seed=seed + 1)
    if dims > 1:
        x = x.to(memory_format=FORMATS[x.dim()]) if draw.random() < 0.5 else x
        w = w.to(memory_format=FORMATS[x.dim()]) if draw.random() < 0.5 else w
    elif draw.random() < 0.5:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    b = randn(k, dtype=dtype, seed=seed + 2) if draw.random() < 0.5 else None
    return x, w, b, (stride, padding, dilation, transposed, extra, groups)


class Zeros:
    """Stands for a launchable: its kernel writes zeros, and so nothing is compiled."""

    exportable, prepares = True, False
    dtypes = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}  # noqa: RUF012

    def __init__(self, problem: Signature, **options: Any) -> None:
        self.signature = problem
        self.bound = self.bound_for(arguments(problem))

    def bound_for(self, lying: Sequence[Slot], exact: int = 2) -> Callable[..., torch.Tensor]:
        *inputs, result = lying

        def call(*tensors: torch.Tensor) -> torch.Tensor:
            for slot, tensor in zip(inputs, tensors, strict=True):
                if slot.shape != tensor.shape:
                    raise ArgumentError(f"{slot.name} has shape {tensor.shape}, not {slot.shape}")
            return torch.empty_strided(result.shape, result.strides, dtype=self.dtypes[result.dtype]).zero_()

        return call
