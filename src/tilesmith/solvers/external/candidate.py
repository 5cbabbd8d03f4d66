"""PyTorch's own CUDA kernels as solvers: what is known of them without loading PyTorch.

They have no plan that a package or a C library could hold, so they stand behind the table (``table.candidates``) where
a caller lets them take part. A search measures them in its playoff, and a launchable calls them on PyTorch's tensors
(``library.py`` beside this file) where a record says that they are faster than every generated kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilesmith.env import takes_part
from tilesmith.errors import PlanError
from tilesmith.loading import import_whole
from tilesmith.plan.records import Draft
from tilesmith.problems.features import CONV, GEMM
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers import reasons
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    Unranked,
    values_of,
)
from tilesmith.targets.target import CudaTarget

if TYPE_CHECKING:
    from tilesmith.solvers.external.library import Calls

FLOATS = ("fp64", "fp32", "fp16", "bf16")
# Its kernel is chosen where it saves more than this. Eager calls of short kernels wait for the host, which takes 5 us
# longer for PyTorch's call than for a launch of ours (benchmarks/results/host_h100.json); calls in a graph do not.
LIBRARY_CALL_US = 1.0


@dataclass(frozen=True)
class LibrarySolver(Unranked):
    """One library behind PyTorch. ``lt=1`` of a GEMM's config is cuBLASLt, ``lt=0`` cuBLAS."""

    name: str
    library: str
    features: frozenset[str]
    revision: int = 1

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (Axis("lt", (0, 1), "1: cuBLASLt, 0: cuBLAS."),) if self.library == "cublas" else ()

    def takes(self, problem: Geometry) -> bool:
        """Whether this is the library for such problems, of which it may refuse some."""
        return isinstance(problem, GemmGeometry) == (self.library == "cublas")

    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not self.takes(problem):
            return Rejected(reasons.OP)
        if isinstance(problem, ConvGeometry) and problem.direction == "bgrad":
            return Rejected(reasons.DIRECTION, problem.direction)
        views = (
            (problem.a, problem.b, problem.c)
            if isinstance(problem, GemmGeometry)
            else (problem.x, problem.w, problem.y)
        )
        found = {view.dtype for view in views}
        if len(found) != 1 or not found <= set(FLOATS):
            return Rejected(reasons.DTYPE, ", ".join(view.dtype for view in views))
        if isinstance(problem, ConvGeometry) and any(view.vector > 1 for view in (problem.x, problem.w, problem.y)):
            return Rejected(reasons.LAYOUT)
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return SearchSpace(values_of(self.axes))

    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return Config((("lt", 0),) if self.library == "cublas" else ())

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return float("inf")  # it is measured, or not used

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        raise PlanError(f"{self.name} generates nothing: it is called through PyTorch")

    # --- what a plan does elsewhere ---

    def is_here(self) -> bool:
        """Whether this process can call it, and is let to."""
        return takes_part()

    def version(self) -> str:
        """Name and version of the library, for records. Loads PyTorch, like all methods below."""
        library = import_whole("tilesmith.solvers.external.library")
        return str(library.version(self.library))

    def bind(self, signature: Signature, config: str, own: Callable[..., Any]) -> Callable[..., Any]:
        """A callable like the bound plan ``own``, which takes every call that is not for PyTorch."""
        from tilesmith.solvers.external.bound import ExternalBound

        return ExternalBound(signature, config, own)

    def measured(
        self, signature: Signature, values: tuple[Any, ...], ordinal: int, stream: int, calls: int
    ) -> AbstractContextManager[Calls]:
        """Inside, its calls on sample values: rows of ``calls`` on a stream of the driver."""
        from tilesmith.solvers.external.library import measured

        return measured(signature, values, ordinal, stream, calls)


_SUMS = frozenset(("acc=fp32", "acc=fp64", "tf32", "pitch"))
# cuDNN is asked for its fastest kernels, of which some add up in no fixed order.
CUDNN = LibrarySolver("torch_cudnn", "cudnn", _SUMS | CONV - {"bgrad", "padding_high"})
CUBLAS = LibrarySolver("torch_cublas", "cublas", _SUMS | GEMM | {"deterministic"})

EXTERNAL_SOLVERS = (CUDNN, CUBLAS)
