"""``tilesmith::gemm``: the kernel, the fake kernel and the gradient, which is made of the operator itself."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.dispatch.eager import gemm
from tilesmith.torch_ops.activations import FROM_ARGUMENT, check_activation, gradient_before
from tilesmith.torch_ops.library import add_operator
from tilesmith.torch_ops.results import require, result_dtype

Optional = torch.Tensor | None


def _gemm(a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, activation: str) -> torch.Tensor:
    trans_a, trans_b = _is_transposed(a), _is_transposed(b)
    y: torch.Tensor = gemm(
        a.mT if trans_a else a, b.mT if trans_b else b, None, bias, trans_a=trans_a, trans_b=trans_b,
        activation=activation, residual=residual,
    )  # fmt: skip
    return y


def _is_transposed(matrix: torch.Tensor) -> bool:
    """Whether the columns lie one after another, and the rows do not: then it is read as it lies."""
    if matrix.dim() < 2:
        return False
    *_, row, column = matrix.stride()
    return row == 1 and column > 1 and column >= matrix.shape[-2]


def _fake_gemm(a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, activation: str) -> torch.Tensor:
    check_activation(activation)
    require(a.dim() == b.dim() and a.dim() in (2, 3), lambda: f"a has {a.dim()} axes, b has {b.dim()}")
    require(a.shape[-1] == b.shape[-2], lambda: f"a has k = {a.shape[-1]}, b has k = {b.shape[-2]}")
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=result_dtype(a))


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, bias, residual, ctx.activation = inputs
    anew = ctx.activation in FROM_ARGUMENT
    ctx.save_for_backward(
        a, b, bias if anew else None, residual if anew else None, None if anew or ctx.activation == "none" else output
    )


def _gradient(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
    a, b, bias, residual, y = ctx.saved_tensors
    product = torch.ops.tilesmith.gemm
    dy = gradient_before(ctx.activation, dy, y, lambda: product(a, b, bias, residual, "none"))
    to_a, to_b, to_bias, to_residual, _ = ctx.needs_input_grad
    return (
        product(dy, b.mT, None, None, "none") if to_a else None,
        product(a.mT, dy, None, None, "none") if to_b else None,
        dy.sum(tuple(range(dy.dim() - 1))) if to_bias else None,
        dy if to_residual else None,
        None,
    )


add_operator(
    "gemm", "(Tensor a, Tensor b, Tensor? bias, Tensor? residual, str activation) -> Tensor",
    _gemm, _fake_gemm, _gradient, _save,
)  # fmt: skip
