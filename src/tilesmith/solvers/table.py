"""The table problem -> solvers: best first, the plain reference last. Adding a kernel family is one line here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tilesmith.env import takes_part
from tilesmith.problems.features import CONVOLUTIONS, features_of
from tilesmith.problems.rewrite import Signature, rewrites
from tilesmith.solvers import reasons
from tilesmith.solvers.c.bgrad.solver import BgradSolver
from tilesmith.solvers.c.common.relayout import CPU_COPIES
from tilesmith.solvers.c.dense.solver import DenseSolver
from tilesmith.solvers.c.grouped.solver import DepthwiseSolver, GroupedSolver
from tilesmith.solvers.c.reference.solver import ReferenceSolver
from tilesmith.solvers.c.wrw.solver import WrwSolver
from tilesmith.solvers.c.wrw_grouped.solver import WrwGroupedSolver
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.cuda.channel_sums.solver import ChannelSumsSolver
from tilesmith.solvers.cuda.common.relayout import CUDA_COPIES
from tilesmith.solvers.cuda.depthwise.solver import DepthwiseCudaSolver
from tilesmith.solvers.cuda.depthwise_mma.solver import DepthwiseMmaSolver
from tilesmith.solvers.cuda.depthwise_planes.solver import DepthwisePlanesSolver
from tilesmith.solvers.cuda.dp4a.solver import Dp4aSolver
from tilesmith.solvers.cuda.ffma.solver import FfmaGemmSolver
from tilesmith.solvers.cuda.first.solver import FirstLayerSolver, FirstLayerWrwSolver
from tilesmith.solvers.cuda.first_rows.solver import FirstRowsSolver, FirstRowsWrwSolver
from tilesmith.solvers.cuda.halo.solver import HaloSm90Solver
from tilesmith.solvers.cuda.halo_wrw.solver import HaloWrwSm90Solver
from tilesmith.solvers.cuda.mma.solver import MmaDenseSolver
from tilesmith.solvers.cuda.narrow_groups.solver import NarrowGroupsSolver
from tilesmith.solvers.cuda.phases.solver import PhasesSolver, WgmmaPhasesSolver
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.cuda.row_groups.solver import RowGroupsSolver
from tilesmith.solvers.cuda.runs.solver import RunsBwdSolver, RunsSolver, RunsWrwSolver
from tilesmith.solvers.cuda.thin.solver import FfmaThinSolver, MmaThinSolver, WgmmaThinSolver
from tilesmith.solvers.cuda.wgmma.channels_first import ChannelsFirstSolver
from tilesmith.solvers.cuda.wgmma.copied import CopiedGemmSolver
from tilesmith.solvers.cuda.wgmma.solver import ConvSm90Solver, GemmSm90Solver
from tilesmith.solvers.external.candidate import EXTERNAL_SOLVERS, LibrarySolver
from tilesmith.solvers.limited import Limited
from tilesmith.solvers.relayout import Relayout
from tilesmith.solvers.solver import Accepted, Geometry, Rejected, refusal
from tilesmith.targets.target import CpuTarget, CudaTarget, Target

_FAST_CPU: tuple[Solver[CpuTarget], ...] = (
    DepthwiseSolver(),
    GroupedSolver(),
    DenseSolver(),
    WrwGroupedSolver(),
    WrwSolver(),
    BgradSolver(),
)

# Each fast solver once more with layout changes around it.
CPU_SOLVERS: tuple[Solver[CpuTarget], ...] = (
    *_FAST_CPU,
    *(Relayout(solver, CPU_COPIES) for solver in _FAST_CPU),
    ReferenceSolver(),
)

_FAST_CUDA: tuple[Solver[CudaTarget], ...] = (
    GemmSm90Solver(),
    RowGroupsSolver(),
    HaloSm90Solver(),
    HaloWrwSm90Solver(),
    ConvSm90Solver(),
    DepthwiseCudaSolver(),
    FirstRowsSolver(),
    FirstRowsWrwSolver(),
    FirstLayerSolver(),
    FirstLayerWrwSolver(),
    DepthwiseMmaSolver(),
    DepthwisePlanesSolver(),
    NarrowGroupsSolver(),
    Dp4aSolver(),
    FfmaGemmSolver(),
    FfmaThinSolver(),
    MmaThinSolver(),
    WgmmaThinSolver(),
    WgmmaPhasesSolver(),
    PhasesSolver(),
    RunsSolver(),
    RunsWrwSolver(),
    RunsBwdSolver(),
    MmaDenseSolver(exact=False),
    MmaDenseSolver(exact=True),
)

CUDA_SOLVERS: tuple[Solver[CudaTarget], ...] = (
    *_FAST_CUDA,
    ChannelSumsSolver(),  # reads any strides
    ChannelsFirstSolver(),
    CopiedGemmSolver(),
    CopiedGemmSolver(RowGroupsSolver()),
    # Products read operands of any strides where they lie.
    *(Relayout(solver, CUDA_COPIES) for solver in _FAST_CUDA if solver.features & CONVOLUTIONS),
    CudaReferenceSolver(),
)


def solvers_for(target: Target) -> tuple[Solver[Any], ...]:
    """Every solver of the target's family, in order of priority."""
    return CPU_SOLVERS if isinstance(target, CpuTarget) else CUDA_SOLVERS


@dataclass(frozen=True)
class Candidate:
    """A solver looking at one form of a problem: as it is, or rewritten (for example 1x1 convolution as GEMM).

    ``name`` is what databases store: the solver's name, with ``@form`` when the problem was rewritten.
    """

    solver: Solver[Any]
    form: str
    geometry: Geometry
    verdict: Accepted | Rejected

    @property
    def name(self) -> str:
        return f"{self.solver.name}@{self.form}" if self.form else self.solver.name

    @property
    def plain(self) -> bool:
        """The plain reference: right for every problem, meant for those that nothing else computes."""
        solver = self.solver.inner if isinstance(self.solver, Limited) else self.solver
        return solver in (CPU_SOLVERS[-1], CUDA_SOLVERS[-1])

    @property
    def external(self) -> LibrarySolver | None:
        """The solver, where it is another library's: its kernels are called there, and no plan can be exported."""
        return self.solver if isinstance(self.solver, LibrarySolver) else None


def external_solver(name: str) -> LibrarySolver | None:
    """The solver of another library that a record names; None for one of ours."""
    return next((solver for solver in EXTERNAL_SOLVERS if solver.name == name), None)


def candidates(
    signature: Signature, target: Target, names: Collection[str] | None = None, external: bool | None = False
) -> tuple[Candidate, ...]:
    """Every solver on every form of ``signature``, accepted or rejected with its reason, in order of priority.

    ``names`` limits them to some. Under a ``workspace_limit`` each has only the configs that obey it. With ``external``
    the other libraries' kernel for the problem comes last, so that a tie goes to one of ours, and whatever the names
    (None: where ``takes_part``).
    """
    limit = signature.workspace_limit
    forms = [(rewrite.name, rewrite.signature.geometry) for rewrite in rewrites(signature)]
    asked = [(form, f"@{form}" if form else "", geometry, features_of(geometry)) for form, geometry in forms]
    found = [
        Candidate(solver, form, geometry, refusal(solver.features, features) or solver.applicable(geometry, target))
        for solver in (each if limit is None else Limited(each, limit) for each in solvers_for(target))
        for form, mark, geometry, features in asked
        if names is None or solver.name + mark in names
    ]
    if isinstance(target, CudaTarget) and takes_part(external):
        problem = signature.geometry
        for solver in (each for each in EXTERNAL_SOLVERS if each.takes(problem)):
            verdict = refusal(solver.features, features_of(problem)) or solver.applicable(problem, target)
            if limit is not None and isinstance(verdict, Accepted):
                verdict = Rejected(reasons.WORKSPACE, "PyTorch does not say how much its kernels take")
            found.append(Candidate(solver, "", problem, verdict))
    return tuple(found)
