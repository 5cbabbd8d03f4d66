"""GEMMs of fp8 and int8 through PyTorch: ``torch._scaled_mm`` and ``torch._int_mm``, which call cuBLASLt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.external.tensors import TORCH_DTYPES

_FP8 = ("fp8e4m3", "fp8e5m2")
Call = Callable[[], torch.Tensor]


def byte_calls(signature: GemmSignature, row: Sequence[Sequence[torch.Tensor]]) -> dict[str, list[Call]]:
    """For each way its calls on the tensors of each place in ``row``; none with an epilogue, a factor or a batch.

    A call returns ``(batch, m, n)``. An operand that does not lie as the library reads it is copied before; the copy is
    not counted.
    """
    g = signature.geometry
    if g.batch > 1 or not g.epilogue.is_identity or (g.alpha, g.beta) != (1.0, 0.0):
        return {}
    operands = []
    for tensors in row:
        a, b = (
            tensor.as_strided((view.rows, view.columns), view.strides[1:])
            for tensor, view in zip(tensors, (g.a, g.b), strict=False)
        )
        operands.append((a.contiguous(), b.t().contiguous().t()))
    if (g.a.dtype, g.b.dtype) == ("int8", "int8"):
        return {"int_mm": [partial(_int_mm, a, b) for a, b in operands]}
    if g.a.dtype not in _FP8 or g.b.dtype not in _FP8 or g.c.dtype not in TORCH_DTYPES:
        return {}
    one = torch.ones((), dtype=torch.float32, device=row[0][0].device)
    made = TORCH_DTYPES[g.c.dtype]
    ways = {"scaled_mm": False, "scaled_mm_fast": True}
    return {name: [partial(_scaled_mm, a, b, one, made, fast) for a, b in operands] for name, fast in ways.items()}


def _int_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch._int_mm(a, b)[None]


def _scaled_mm(a: torch.Tensor, b: torch.Tensor, one: torch.Tensor, made: torch.dtype, fast: bool) -> torch.Tensor:
    """``fast``: sums stay in the tensor cores, which keep 13 bits of their fraction."""
    return torch._scaled_mm(a, b, one, one, out_dtype=made, use_fast_accum=fast)[None]
