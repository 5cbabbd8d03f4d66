"""``tilesmith::gemm``: the kernel, the fake kernel and the gradient, which is made of the operator itself."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.dispatch import eager
from tilesmith.problems.epilogue import Epilogue
from tilesmith.torch_ops.arguments import GemmArguments, is_launch
from tilesmith.torch_ops.batching import batched_gemm
from tilesmith.torch_ops.library import EPILOGUE, SUMS, add_autocast, add_operator
from tilesmith.torch_ops.recording import Launch, LevelFunction, kernels_of
from tilesmith.torch_ops.results import require, result_dtype
from tilesmith.torch_ops.undispatched import add_undispatched, lower_undispatched

Optional = torch.Tensor | None
_gemm, _recorded, _into = kernels_of(GemmArguments)


def _fake_gemm(
    a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, activation: str = "none",
    slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False, acc_dtype: str = "",
    mode: str | None = None, threads: int | None = None,
) -> torch.Tensor:  # fmt: skip
    lower_undispatched()
    Epilogue(activation=activation, slope=slope, low=low, high=high)
    require(a.dim() == b.dim() and a.dim() in (2, 3), lambda: f"a has {a.dim()} axes, b has {b.dim()}")
    require(a.shape[-1] == b.shape[-2], lambda: f"a has k = {a.shape[-1]}, b has k = {b.shape[-2]}")
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=result_dtype(a))


add_operator(
    "gemm", f"(Tensor a, Tensor b, Tensor? bias, Tensor? residual, {EPILOGUE}, {SUMS}) -> Tensor",
    _gemm, _fake_gemm, _recorded, batched_gemm,
)  # fmt: skip
add_autocast("gemm")
add_undispatched("gemm", _gemm, _into)


def recorded_product(launch: Launch, options: GemmArguments, trans_a: bool, trans_b: bool) -> Launch:
    """The call of ``a, b`` without bias and activation as one launch whose gradients are recorded: where nothing but
    gradients is asked for. A class of its own, as ``recording.recorded_launch`` says.

    ``launch`` takes the matrices as they are, and raises ``ArgumentError`` where they lie otherwise. Whoever calls it
    has asked whether anything watches the thread.
    """
    acc_dtype, mode, threads = options.sums
    how: dict[str, Any] = {"acc_dtype": acc_dtype, "mode": mode, "threads": threads}

    class RecordedProduct(LevelFunction):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            y = launch(a, b)
            ctx.save_for_backward(a, b)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, Any]:
            a, b = ctx.saved_tensors
            to_a, to_b = ctx.needs_input_grad
            if not is_launch(dy, a, b):
                x, w = a.mT if trans_a else a, b.mT if trans_b else b
                dx, dw, _ = options.gradients(dy, x, w, (to_a, to_b, False))
                return dx.mT if dx is not None and trans_a else dx, dw.mT if dw is not None and trans_b else dw
            da = db = None
            if to_a and trans_a:
                da = eager.gemm(b, dy, trans_a=trans_b, trans_b=True, **how)
            elif to_a:
                da = eager.gemm(dy, b, trans_b=not trans_b, **how)
            if to_b and trans_b:
                db = eager.gemm(dy, a, trans_a=True, trans_b=trans_a, **how)
            elif to_b:
                db = eager.gemm(a, dy, trans_a=not trans_a, **how)
            return da, db

    return RecordedProduct.apply  # type: ignore[no-any-return]
