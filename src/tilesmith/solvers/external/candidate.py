"""PyTorch's own CUDA kernels as candidates: what is known of them without loading PyTorch.

They have no plan and no artifacts, so they stand in no table of solvers and in no package. A search measures them
when it is asked to, and a launchable calls them on PyTorch's tensors (``library.py`` beside this file) where a record
says that they are faster than every generated kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.errors import PlanError
from tilesmith.plan.records import Draft
from tilesmith.problems.features import CONV, GEMM, features_of
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers import reasons
from tilesmith.solvers.external.names import CUBLAS_NAME, CUDNN_NAME
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    Unranked,
    refusal,
    values_of,
)
from tilesmith.solvers.table import Candidate
from tilesmith.targets.target import CudaTarget, Target

FLOATS = ("fp64", "fp32", "fp16", "bf16")


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

    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if isinstance(problem, GemmGeometry) != (self.library == "cublas"):
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


_SUMS = frozenset(("acc=fp32", "acc=fp64", "tf32", "pitch"))
# cuDNN is asked for its fastest kernels, of which some add up in no fixed order.
CUDNN = LibrarySolver(CUDNN_NAME, "cudnn", _SUMS | CONV - {"bgrad", "padding_high"})
CUBLAS = LibrarySolver(CUBLAS_NAME, "cublas", _SUMS | GEMM | {"deterministic"})


def external_candidate(signature: Signature, target: Target) -> Candidate | None:
    """The library's side of a problem, refused or not; None for targets that have none."""
    if not isinstance(target, CudaTarget):
        return None
    solver = CUBLAS if isinstance(signature.canonical, GemmSignature) else CUDNN
    geometry = signature.geometry
    verdict = refusal(solver, features_of(geometry)) or solver.applicable(geometry, target)
    if signature.workspace_limit is not None and isinstance(verdict, Accepted):
        verdict = Rejected(reasons.WORKSPACE, "PyTorch says not how much its kernels take")
    return Candidate(solver, "", geometry, verdict)
