"""``tilesmith::grouped_gemm``: the kernel and the fake kernel. It records no gradients."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.dispatch.products.groups import run_groups
from tilesmith.errors import ArgumentError
from tilesmith.torch_ops.library import SUMS, add_autocast, add_operator
from tilesmith.torch_ops.results import require, result_dtype

_C: Any = torch._C


def _grouped(
    a: torch.Tensor, b: torch.Tensor, group_ends: torch.Tensor, trans_b: bool = False, acc_dtype: str = "",
    mode: str | None = None, threads: int | None = None,
) -> torch.Tensor:  # fmt: skip
    with torch.no_grad():
        found: torch.Tensor = run_groups((a, b, group_ends), trans_b, acc_dtype, mode, threads)
    return found


def _fake(
    a: torch.Tensor, b: torch.Tensor, group_ends: torch.Tensor, trans_b: bool = False, acc_dtype: str = "",
    mode: str | None = None, threads: int | None = None,
) -> torch.Tensor:  # fmt: skip
    require(a.dim() == 2 and b.dim() == 3, lambda: f"a has {a.dim()} axes, b has {b.dim()}: they need 2 and 3")
    k, n = (b.shape[2], b.shape[1]) if trans_b else (b.shape[1], b.shape[2])
    require(a.shape[1] == k, lambda: f"a has k = {a.shape[1]}, b has k = {k}")
    return a.new_empty((a.shape[0], n), dtype=result_dtype(a))


def _recorded(keyset: Any, a: torch.Tensor, b: torch.Tensor, *more: Any) -> Any:
    for name, each in (("a", a), ("b", b)):
        if each.requires_grad and torch.is_grad_enabled():
            typed = f"use torch.no_grad() or {name}.detach()"
            raise ArgumentError(f"{name} requires a gradient, which grouped_gemm does not record; {typed}")
    return torch.ops.tilesmith.grouped_gemm.default.redispatch(keyset & _C._after_autograd_keyset, a, b, *more)


def _batched(info: Any, in_dims: Any, *arguments: Any) -> Any:
    raise ArgumentError("grouped_gemm has no rule for torch.vmap: call it once for each")


add_operator(
    "grouped_gemm", f"(Tensor a, Tensor b, Tensor group_ends, bool trans_b=False, {SUMS}) -> Tensor",
    _grouped, _fake, _recorded, _batched,
)  # fmt: skip
add_autocast("grouped_gemm")
