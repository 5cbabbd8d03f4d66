"""``tilesmith::scaled_gemm``: the kernel and the fake kernel. It records no gradients."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.dispatch.arrays import TORCH_NAMES
from tilesmith.dispatch.products.scaled import run_scaled
from tilesmith.errors import ArgumentError
from tilesmith.torch_ops.library import add_operator
from tilesmith.torch_ops.results import require

_C: Any = torch._C
_TYPES = {name: getattr(torch, full.partition(".")[2]) for full, name in TORCH_NAMES.items()}


def _scaled(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, bias: torch.Tensor | None = None,
    trans_b: bool = False, c_dtype: str = "bf16", mode: str | None = None, threads: int | None = None,
) -> torch.Tensor:  # fmt: skip
    given = (a, b, a_scale, b_scale) if bias is None else (a, b, a_scale, b_scale, bias)
    with torch.no_grad():
        found: torch.Tensor = run_scaled(given, trans_b, c_dtype, mode, threads)
    return found


def _fake(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, bias: torch.Tensor | None = None,
    trans_b: bool = False, c_dtype: str = "bf16", mode: str | None = None, threads: int | None = None,
) -> torch.Tensor:  # fmt: skip
    require(a.dim() == b.dim() == 2, lambda: f"a has {a.dim()} axes, b has {b.dim()}: they need 2")
    n, k = b.shape if trans_b else reversed(b.shape)
    require(a.shape[1] == k, lambda: f"a has k = {a.shape[1]}, b has k = {k}")
    require(c_dtype in _TYPES, lambda: f"c_dtype {c_dtype!r} does not exist")
    return a.new_empty((a.shape[0], n), dtype=_TYPES[c_dtype])


def _recorded(keyset: Any, *arguments: Any) -> Any:
    for name, each in zip(("a", "b", "a_scale", "b_scale", "bias"), arguments, strict=False):
        if each is not None and each.requires_grad and torch.is_grad_enabled():
            typed = f"use torch.no_grad() or {name}.detach()"
            raise ArgumentError(f"{name} requires a gradient, which scaled_gemm does not record; {typed}")
    return torch.ops.tilesmith.scaled_gemm.default.redispatch(keyset & _C._after_autograd_keyset, *arguments)


def _batched(info: Any, in_dims: Any, *arguments: Any) -> Any:
    raise ArgumentError("scaled_gemm has no rule for torch.vmap: call it once for each")


_MATRICES = "Tensor a, Tensor b, Tensor a_scale, Tensor b_scale, Tensor? bias=None, bool trans_b=False"
add_operator(
    "scaled_gemm", f"({_MATRICES}, str c_dtype='bf16', str? mode=None, int? threads=None) -> Tensor",
    _scaled, _fake, _recorded, _batched,
)  # fmt: skip
