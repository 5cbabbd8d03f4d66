"""All kernels and splits of CUTLASS for one product, for the race among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from tilesmith.compare.contest import Compute
from tilesmith.compare.cutlass.kernels import CutlassKernel, Product, splits_of
from tilesmith.compare.cutlass.library import CutlassGemm


def way_name(kernel: str, splits: int) -> str:
    """The name of a way in tables."""
    return kernel if splits == 1 else f"{kernel} splits={splits}"


def split_of(way: str) -> tuple[str, int]:
    """Kernel and splits of a way's name."""
    kernel, _, splits = way.partition(" splits=")
    return kernel, int(splits or 1)


def makers(
    product: Product, kernels: Sequence[CutlassKernel], libraries: dict[str, Path], cores: int,
    tensors: Sequence[torch.Tensor], truth: torch.Tensor, stream: int,
) -> dict[str, Callable[[], Compute | None]]:  # fmt: skip
    """For each compiled kernel and each split of k what makes its call on these tensors.

    Args:
        product: The product.
        kernels: The kernels.
        libraries: Those that are compiled, by name.
        cores: Multiprocessors of the device.
        tensors: The operands a and b.
        truth: The product's values: results have their shape and type.
        stream: Where the calls are queued.
    """

    def make(path: Path, splits: int) -> Compute | None:
        result = torch.full(truth.shape, float("nan"), dtype=truth.dtype, device=truth.device)
        calls = CutlassGemm(path, product, splits).calls([tensors], [result], stream)
        return calls[0] if calls else None

    return {
        way_name(kernel.name, splits): partial(make, libraries[kernel.name], splits)
        for kernel in kernels if kernel.name in libraries
        for splits in splits_of(kernel, product, cores)
    }  # fmt: skip
