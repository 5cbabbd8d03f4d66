"""The solvers of a problem: best first, the plain reference last. ``table_cpu`` and ``table_cuda`` list them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tilesmith.env import takes_part
from tilesmith.problems.features import features_of
from tilesmith.problems.rewrite import Signature, rewrites
from tilesmith.solvers import reasons
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.external.candidate import EXTERNAL_SOLVERS, LIBRARY_CALL_US, LibrarySolver
from tilesmith.solvers.limited import Limited
from tilesmith.solvers.solver import Accepted, Geometry, Plain, Rejected, refusal
from tilesmith.targets.target import CpuTarget, CudaTarget, Target


def solvers_for(target: Target) -> tuple[Solver[Any], ...]:
    """Every solver of the target's family, in order of priority."""
    # One family's modules take half of the time of both.
    if isinstance(target, CpuTarget):
        from tilesmith.solvers import table_cpu

        return table_cpu.CPU_SOLVERS
    from tilesmith.solvers import table_cuda

    return table_cuda.CUDA_SOLVERS


def all_solvers() -> tuple[Solver[Any], ...]:
    """Those of processors, then those of GPUs."""
    from tilesmith.solvers.table_cpu import CPU_SOLVERS
    from tilesmith.solvers.table_cuda import CUDA_SOLVERS

    return (*CPU_SOLVERS, *CUDA_SOLVERS)


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
        return isinstance(solver, Plain)

    @property
    def external(self) -> LibrarySolver | None:
        """The solver, where it is another library's: its kernels are called there, and no plan can be exported."""
        return self.solver if isinstance(self.solver, LibrarySolver) else None


def external_solver(name: str) -> LibrarySolver | None:
    """The solver of another library that a record names; None for one of ours."""
    return next((solver for solver in EXTERNAL_SOLVERS if solver.name == name), None)


def counted_us(solver: str, time_us: float) -> float:
    """The time by which solvers are compared: a kernel's, and of another library what its call costs the host more."""
    return time_us if external_solver(solver) is None else time_us + LIBRARY_CALL_US


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
