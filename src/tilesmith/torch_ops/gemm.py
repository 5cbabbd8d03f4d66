"""``tilesmith::gemm``: the kernel, the fake kernel and the gradient, which is made of the operator itself."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.dispatch.eager import gemm, gemm_call
from tilesmith.problems.epilogue import Epilogue
from tilesmith.torch_ops.activations import gradient_before
from tilesmith.torch_ops.frozen import lying, packed_filter
from tilesmith.torch_ops.library import EPILOGUE, add_operator
from tilesmith.torch_ops.results import require, result_dtype

Optional = torch.Tensor | None


def _gemm(
    a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, activation: str = "none",
    slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False,
) -> torch.Tensor:  # fmt: skip
    trans_a, trans_b = _is_transposed(a), _is_transposed(b)
    options: dict[str, Any] = {
        "trans_a": trans_a, "trans_b": trans_b, "activation": activation, "slope": slope, "low": low, "high": high,
    }  # fmt: skip
    left, right = a.mT if trans_a else a, b.mT if trans_b else b
    if frozen:
        packed = packed_filter(
            right, (*map(lying, (a, bias, residual)), *options.values()),
            lambda: gemm_call(left, right, None, bias, residual=residual, **options),
        )  # fmt: skip
        if packed is not None:
            return packed(left, None, bias, residual)
    y: torch.Tensor = gemm(left, right, None, bias, residual=residual, **options)
    return y


def _is_transposed(matrix: torch.Tensor) -> bool:
    """Whether the columns lie one after another, and the rows do not: then it is read as it lies."""
    if matrix.dim() < 2:
        return False
    *_, row, column = matrix.stride()
    return row == 1 and column > 1 and column >= matrix.shape[-2]


def _fake_gemm(
    a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, activation: str = "none",
    slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False,
) -> torch.Tensor:  # fmt: skip
    Epilogue(activation=activation, slope=slope, low=low, high=high)
    require(a.dim() == b.dim() and a.dim() in (2, 3), lambda: f"a has {a.dim()} axes, b has {b.dim()}")
    require(a.shape[-1] == b.shape[-2], lambda: f"a has k = {a.shape[-1]}, b has k = {b.shape[-2]}")
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=result_dtype(a))


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, bias, residual, activation, slope, low, high, ctx.frozen = inputs
    ctx.activation = Epilogue(activation=activation, slope=slope, low=low, high=high)
    anew = activation in ("silu", "gelu")
    ctx.save_for_backward(
        a, b, bias if anew else None, residual if anew else None, None if anew or activation == "none" else output
    )


def _gradient(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
    a, b, bias, residual, y = ctx.saved_tensors
    product = torch.ops.tilesmith.gemm
    dy = gradient_before(ctx.activation, dy, y, lambda: product(a, b, bias, residual, frozen=ctx.frozen))
    to_a, to_b, to_bias, to_residual = ctx.needs_input_grad[:4]
    return (
        product(dy, b.mT, None, None) if to_a else None,
        product(a.mT, dy, None, None) if to_b else None,
        dy.sum(tuple(range(dy.dim() - 1))) if to_bias else None,
        dy if to_residual else None,
        *[None] * 5,
    )


add_operator(
    "gemm", f"(Tensor a, Tensor b, Tensor? bias, Tensor? residual, {EPILOGUE}) -> Tensor",
    _gemm, _fake_gemm, _gradient, _save,
)  # fmt: skip
