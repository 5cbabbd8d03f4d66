"""The features that a problem needs beyond sizes, types and layouts, by name: each solver names those it computes.

The table of solvers refuses a problem that uses a feature which a solver does not name. So a new feature needs a line
here and no edit in any solver: all of them refuse it until they compute it.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.problems.epilogue import ACTIVATIONS
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry, MatrixView, TensorView, has_gaps

Geometry = ConvGeometry | GemmGeometry

ACTIVATED = frozenset(name for name in ACTIVATIONS if name != "none")
SCALED = frozenset(("scale_tensor", "scale_channel"))
EPILOGUE = ACTIVATED | {"bias", "residual"}
WINDOW = frozenset(("stride", "padding", "padding_high", "dilation", "depth"))
# The features of every fast solver: fp32 sums in a fixed order, operands that may be rounded, and element strides.
USUAL = frozenset(("acc=fp32", "tf32", "deterministic", "pitch"))
CONVOLUTIONS = frozenset(("fwd", "bwd", "wrw", "bgrad"))
CONV = EPILOGUE | WINDOW | CONVOLUTIONS | {"groups"}
GEMM = EPILOGUE | {"gemm", "batch", "alpha", "beta"}
# Of today: what the plain references compute.
EVERYTHING = CONV | GEMM | USUAL | SCALED | {"acc=fp64", "acc=int32", "vector", "row_groups", "operand_scales"}


def _conv(test: Callable[[ConvGeometry], bool]) -> Callable[[Geometry], bool]:
    return lambda problem: isinstance(problem, ConvGeometry) and test(problem)


def _gemm(test: Callable[[GemmGeometry], bool]) -> Callable[[Geometry], bool]:
    return lambda problem: isinstance(problem, GemmGeometry) and test(problem)


# The features that a problem has or has not. ``features_of`` adds its operation, accumulation type and activation.
FEATURES: dict[str, Callable[[Geometry], bool]] = {
    "bias": lambda problem: problem.epilogue.bias, "residual": lambda problem: problem.epilogue.residual,
    "scale_tensor": lambda problem: problem.epilogue.scale == "tensor",
    "scale_channel": lambda problem: problem.epilogue.scale == "channel", "tf32": lambda problem: problem.tf32,
    "deterministic": lambda problem: problem.deterministic, "groups": _conv(lambda g: g.groups > 1),
    "stride": _conv(lambda g: max(g.stride) > 1), "padding": _conv(lambda g: max(g.padding) > 0),
    "padding_high": _conv(lambda g: g.padding_high != g.padding), "dilation": _conv(lambda g: max(g.dilation) > 1),
    "depth": _conv(lambda g: max(g.input[0], g.filter[0], g.output[0]) > 1 or g.padding[0] > 0),
    "vector": _conv(lambda g: max(g.x.vector, g.w.vector, g.y.vector) > 1),
    "pitch": lambda problem: any(_has_gaps(view) for view in _views(problem)), "batch": _gemm(lambda g: g.batch > 1),
    "alpha": _gemm(lambda g: g.alpha != 1.0), "beta": _gemm(lambda g: g.beta != 0.0),
    "row_groups": _gemm(lambda g: g.groups > 0), "operand_scales": _gemm(lambda g: g.has_scales),
}  # fmt: skip


def features_of(problem: Geometry) -> frozenset[str]:
    """The features that ``problem`` uses: ``fwd``, ``bwd``, ``wrw``, ``bgrad`` or ``gemm``, its accumulation type as
    ``acc=fp32``, its activation, and every name of ``FEATURES`` that applies."""
    found = {name for name, used in FEATURES.items() if used(problem)}
    found.add(problem.direction if isinstance(problem, ConvGeometry) else "gemm")
    found.add(f"acc={problem.acc_dtype}")
    if problem.epilogue.activation != "none":
        found.add(problem.epilogue.activation)
    return frozenset(found)


def _views(problem: Geometry) -> tuple[TensorView | MatrixView, ...]:
    if isinstance(problem, ConvGeometry):
        return problem.x, problem.w, problem.y
    return problem.a, problem.b, problem.c


def _has_gaps(view: TensorView | MatrixView) -> bool:
    if isinstance(view, TensorView):
        shape = (view.shape[0], -(-view.shape[1] // view.vector), *view.shape[2:], view.vector)
        return has_gaps(shape, (*view.strides, 1))
    return has_gaps((view.batch, view.rows, view.columns), view.strides)
