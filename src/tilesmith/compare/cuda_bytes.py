"""GEMMs of fp8 and int8 through PyTorch: ``torch._scaled_mm`` and ``torch._int_mm``, which call cuBLASLt.

Products of scaled operands are compared with ``torch._scaled_mm`` with the same factors, and with ``torch.mm`` of bf16
copies of the numbers that the operands stand for, which are made before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import SCALE_BLOCKS, SCALE_K
from tilesmith.solvers.external.tensors import TORCH_DTYPES

_FP8 = ("fp8e4m3", "fp8e5m2")
Call = Callable[[], torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]


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
    made = TORCH_DTYPES[g.c.dtype]
    if signature.has_scales:
        return _scaled_ways(signature, operands, [tensors[2:4] for tensors in row], made)
    one = torch.ones((), dtype=torch.float32, device=row[0][0].device)
    ways = {"scaled_mm": False, "scaled_mm_fast": True}
    return {name: [partial(_scaled_mm, a, b, one, one, made, fast) for a, b in operands] for name, fast in ways.items()}


def _scaled_ways(
    signature: GemmSignature, operands: Sequence[Pair], factors: Sequence[Sequence[torch.Tensor]], made: torch.dtype
) -> dict[str, list[Call]]:
    """``scaled_mm`` is left out where PyTorch has no kernel for these kinds of factors."""
    calls: dict[str, list[Call]] = {"scaled_mm": [], "mm_bf16": []}
    turned = signature.trans_a, signature.trans_b
    for (a, b), given in zip(operands, factors, strict=True):
        of_a, of_b = (_turned(each, turn) for each, turn in zip(given, turned, strict=True))
        calls["scaled_mm"].append(partial(_scaled_mm, a, b, of_a, of_b, made, False))
        wide = _wide(a, of_a, signature.a_scale), _wide(b.t(), of_b.t(), signature.b_scale).t()
        calls["mm_bf16"].append(partial(_mm, *wide, made))
    return calls


def _wide(matrix: torch.Tensor, factors: torch.Tensor, kind: str) -> torch.Tensor:
    """The numbers that ``matrix``, rows x k, stands for, in bf16."""
    if kind in SCALE_BLOCKS:
        (rows, k), share = matrix.shape, SCALE_BLOCKS[kind]
        factors = factors.repeat_interleave(share, 0)[:rows].repeat_interleave(SCALE_K, 1)[:, :k]
    return (matrix.float() * factors).bfloat16()


def _turned(factors: torch.Tensor, turned: bool) -> torch.Tensor:
    """One factor as PyTorch takes it, others by the axes of the product."""
    return factors.reshape(()) if factors.dim() == 1 else factors.t() if turned else factors


def _mm(a: torch.Tensor, b: torch.Tensor, made: torch.dtype) -> torch.Tensor:
    return torch.mm(a, b).to(made)[None]


def _int_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch._int_mm(a, b)[None]


def _scaled_mm(
    a: torch.Tensor, b: torch.Tensor, of_a: torch.Tensor, of_b: torch.Tensor, made: torch.dtype, fast: bool
) -> torch.Tensor:
    """``fast``: sums stay in the tensor cores, which keep 13 bits of their fraction."""
    return torch._scaled_mm(a, b, of_a, of_b, out_dtype=made, use_fast_accum=fast)[None]
