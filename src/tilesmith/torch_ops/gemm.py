"""``tilesmith::gemm``: the kernel, the fake kernel and the gradient, which is made of the operator itself."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.problems.epilogue import Epilogue
from tilesmith.torch_ops.arguments import GemmArguments
from tilesmith.torch_ops.batching import batched_gemm
from tilesmith.torch_ops.library import EPILOGUE, SUMS, add_autocast, add_operator
from tilesmith.torch_ops.recording import dispatch_recorded
from tilesmith.torch_ops.results import require, result_dtype

Optional = torch.Tensor | None


def _gemm(a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, *options: Any) -> torch.Tensor:
    return GemmArguments.of(*options).run(a, b, bias, residual)


def _recorded(keyset: Any, a: Any, b: Any, bias: Any, residual: Any, *options: Any) -> Any:
    return dispatch_recorded(keyset, a, b, bias, residual, GemmArguments, options)


def _fake_gemm(
    a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, activation: str = "none",
    slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False, acc_dtype: str = "",
    mode: str | None = None, threads: int | None = None,
) -> torch.Tensor:  # fmt: skip
    Epilogue(activation=activation, slope=slope, low=low, high=high)
    require(a.dim() == b.dim() and a.dim() in (2, 3), lambda: f"a has {a.dim()} axes, b has {b.dim()}")
    require(a.shape[-1] == b.shape[-2], lambda: f"a has k = {a.shape[-1]}, b has k = {b.shape[-2]}")
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=result_dtype(a))


add_operator(
    "gemm", f"(Tensor a, Tensor b, Tensor? bias, Tensor? residual, {EPILOGUE}, {SUMS}) -> Tensor",
    _gemm, _fake_gemm, _recorded, batched_gemm,
)  # fmt: skip
add_autocast("gemm")
