"""PyTorch's ways to compute a GEMM: ``mm`` (or ``bmm``), ``linear``, and the two prepacked forms, oneDNN's and MKL's.

The plain forms take the operands as the signature lays them; ``linear`` and the prepacked forms take ``b`` as they
like it best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.external.operators import Call, Finish
from tilesmith.solvers.external.tensors import TORCH_DTYPES, from_numpy, matrix_tensor


def gemm_calls(signature: GemmSignature, arguments: Sequence[np.ndarray[Any, Any]]) -> dict[str, Callable[[], Call]]:
    """A maker of the call for each mode."""
    problem = signature.geometry
    if not {problem.a.dtype, problem.b.dtype, problem.c.dtype} <= set(TORCH_DTYPES):
        return {}
    a, b = matrix_tensor(arguments[0], problem.a), matrix_tensor(arguments[1], problem.b)
    rest = list(arguments[2:])
    bias = from_numpy(np.ascontiguousarray(rest.pop(0))) if problem.epilogue.bias else None
    residual = matrix_tensor(rest.pop(0), problem.c) if problem.epilogue.residual else None
    c = matrix_tensor(rest.pop(0), problem.c) if problem.beta != 0 else None
    if problem.batch == 1:
        a, b = a[0], b[0]
        residual = None if residual is None else residual[0]
        c = None if c is None else c[0]
    extra = bias if residual is None else residual if bias is None else residual + bias
    finish = Finish(problem.epilogue, None, extra)
    calls: dict[str, Callable[[], Call]] = {"mm": lambda: _plain(a, b, c, problem.alpha, problem.beta, finish)}
    if problem.batch == 1 and problem.alpha == 1.0 and c is None:
        column_b = b.t().contiguous()
        fused_bias = bias if residual is None else None
        whole = finish if residual is not None else Finish(problem.epilogue, None, None)

        def linear() -> Call:
            if whole.is_identity:
                return lambda: functional.linear(a, column_b, fused_bias)
            return lambda: whole(functional.linear(a, column_b, fused_bias))

        def prepacked() -> Call:
            ops = torch.ops.mkldnn
            w = ops._reorder_linear_weight(column_b, problem.m)
            run = ops._linear_pointwise.default
            if residual is not None:
                return lambda: whole(run(a, w, None, "none", [], ""))
            fixed = (fused_bias, *whole.fused)
            return lambda: run(a, w, *fixed)

        def mkl() -> Call:
            w = torch.ops.mkl._mkl_reorder_linear_weight(column_b.to_mkldnn(), problem.m)
            run = torch.ops.mkl._mkl_linear.default
            if whole.is_identity:
                return lambda: run(a, w, column_b, fused_bias, problem.m)
            return lambda: whole(run(a, w, column_b, fused_bias, problem.m))

        calls["linear"] = linear
        calls["prepacked"] = prepacked
        if problem.a.dtype == "fp32":
            calls["prepacked mkl"] = mkl
    return calls


def _plain(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: float, beta: float, finish: Finish) -> Call:
    after: Callable[[torch.Tensor], torch.Tensor] | None = None if finish.is_identity else finish
    if c is not None:
        add = torch.addmm if a.dim() == 2 else torch.baddbmm
        if after is None:
            return lambda: add(c, a, b, beta=beta, alpha=alpha)
        return lambda: after(add(c, a, b, beta=beta, alpha=alpha))
    multiply = torch.mm if a.dim() == 2 else torch.bmm
    if alpha == 1.0 and after is None:
        return lambda: multiply(a, b)
    return lambda: finish(multiply(a, b).mul_(alpha))
