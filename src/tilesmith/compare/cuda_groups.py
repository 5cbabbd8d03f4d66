"""Products of groups of rows through PyTorch: ``torch._grouped_mm``, and a graph of one cuBLAS product for each group.

The graph knows the sizes of the groups beforehand, and serves no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tilesmith.problems.gemm import GemmSignature

Call = Callable[[], torch.Tensor]


def group_calls(
    signature: GemmSignature, ends: NDArray[np.int32], row: Sequence[Sequence[torch.Tensor]]
) -> dict[str, list[Call]]:
    """For each way its calls on the tensors of each place in ``row``; a call returns ``(1, m, n)``.

    Rows of no group hold anything (``cleared``).
    """
    g, library = signature.geometry, vars(torch)
    places = [
        (a.as_strided((g.m, g.k), g.a.strides[1:]), b.as_strided((g.groups, g.k, g.n), g.b.strides), on_device)
        for a, b, on_device in row
    ]
    ways: dict[str, list[Call]] = {"mm_graph": [_graph(a, b, _rows(ends, g.m)) for a, b, _ in places]}
    if "_grouped_mm" in library:
        ways["grouped_mm"] = [partial(_grouped, library["_grouped_mm"], *tensors) for tensors in places]
    return ways


def cleared(ends: NDArray[np.int32], found: torch.Tensor) -> torch.Tensor:
    """A result with the rows of no group as they should be."""
    rows = _rows(ends, found.shape[1])
    last = max((end for _, end in rows), default=0)
    found = found.clone()
    found[:, last:] = 0
    return found


def _rows(ends: NDArray[np.int32], m: int) -> list[tuple[int, int]]:
    """First row and end of each group."""
    last = np.maximum.accumulate(np.clip(ends, 0, m)).tolist()
    return list(zip([0, *last], last, strict=False))


def _grouped(multiply: Callable[..., Any], a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = multiply(a, b, offs=ends)
    return found[None]


def _graph(a: torch.Tensor, b: torch.Tensor, rows: list[tuple[int, int]]) -> Call:
    """A recorded graph of ``torch.mm`` for each group that has rows."""
    result = torch.empty((a.shape[0], b.shape[2]), dtype=a.dtype, device=a.device)

    def multiply() -> None:
        for (first, end), matrix in zip(rows, b, strict=True):
            if end > first:
                torch.mm(a[first:end], matrix, out=result[first:end])

    multiply()  # cuBLAS makes its workspace
    torch.cuda.synchronize(a.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        multiply()

    def call() -> torch.Tensor:
        graph.replay()
        return result[None]

    return call
