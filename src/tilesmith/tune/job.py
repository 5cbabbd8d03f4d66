"""The subject of one search: the problem, the machine, and the candidates with their spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from tilesmith import __version__
from tilesmith.db.records import TUNE, UNTUNED, Record
from tilesmith.errors import NoSolutionError
from tilesmith.measure.host import HostFacts, host_facts, moment
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Draft, Plan
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.generation import generator_digest, provenance_of
from tilesmith.solvers.solver import Accepted, Config
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.targets.detect_cuda import cuda_devices
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.toolchains import Toolchain, find_toolchain
from tilesmith.tune.space import Point, SolverSpace, points


@dataclass(frozen=True)
class Job:
    """``signature`` is canonical; ``candidates`` are the accepted ones in the table's order, by name."""

    signature: Signature
    target: Target
    candidates: dict[str, Candidate]
    compiler: Toolchain
    host: HostFacts
    origin: str
    device: int = -1  # the CUDA device that measures; -1 is the CPU

    @cached_property
    def problem(self) -> str:
        """The database key."""
        return self.signature.key()

    @cached_property
    def solvers(self) -> dict[str, SolverSpace]:
        """The search space of each generated kernel family."""
        return {name: _space_of(each, self.target) for name, each in self.candidates.items() if each.external is None}

    @cached_property
    def external_points(self) -> list[Point]:
        """Every way to call another library's kernel, which is measured in the playoff alone, never searched."""
        spaces = {
            name: each.solver.search_space(each.geometry, self.target)
            for name, each in self.candidates.items()
            if each.external is not None
        }
        return [Point(name, config) for name, space in spaces.items() for config in points(space)]

    @cached_property
    def untuned(self) -> Point:
        """The choice of ``fast`` mode: the default config that is predicted fastest."""
        return min((Point(solver.name, solver.default) for solver in self.solvers.values()), key=self.predict)

    def origin_of(self, point: Point, held: str = "") -> str:
        """The origin of a record of ``point``, which an earlier search recorded as ``held``.

        One record of a search says that it is the untuned choice: reports compare the winner with it.
        """
        ours = self.origin == TUNE and self.candidates[point.solver].external is None
        if ours and point == self.untuned:
            return UNTUNED
        return TUNE if held == UNTUNED else held or self.origin

    def predict(self, point: Point) -> float:
        """The cost model's seconds."""
        return self.solvers[point.solver].predict(point.config)

    def draft(self, point: Point) -> Draft:
        candidate = self.candidates[point.solver]
        return candidate.solver.draft(candidate.geometry, point.config, self.target)

    def plan(self, point: Point, draft: Draft, digests: Sequence[str]) -> Plan:
        solver = self.candidates[point.solver].solver
        provenance = provenance_of(point.solver, solver.revision, self.target.family)
        return assemble(draft, self.signature, point.solver, str(point.config), self.target, digests, provenance)

    def blank(self, point: Point) -> Record:
        """A record of ``point``, now, with the evidence that all of this search's records share."""
        return Record(
            self.problem, self.target.name, point.solver, str(point.config),
            revision=self.candidates[point.solver].solver.revision, compiler=self.compiler.identity,
            generator=f"tilesmith {__version__} {generator_digest(self.target.family)}", host=self.host.name,
            date=moment(), origin=self.origin_of(point),
        )  # fmt: skip


def make_job(
    signature: Signature, target: Target, origin: str, among: Sequence[Candidate] | None = None, device: int = 0,
    external: bool | None = False,
) -> Job:  # fmt: skip
    """Gather the facts. Raises ``NoSolutionError`` if no solver fits, and ``NoCompilerError``."""
    compiler = find_toolchain(target)
    canonical = signature.canonical
    found = candidates(canonical, target, None if among is None else (), external)
    ours = [each for each in found if each.external is None] if among is None else among
    others = [each for each in found if each.external is not None]
    accepted = {each.name: each for each in (*ours, *others) if isinstance(each.verdict, Accepted)}
    if not any(each.name in accepted for each in ours):
        raise NoSolutionError("no solver fits: " + "; ".join(f"{each.name}: {each.verdict}" for each in ours))
    if isinstance(target, CpuTarget):
        return Job(canonical, target, accepted, compiler, host_facts(compiler.identity), origin)
    host = host_facts(compiler.identity, cuda_devices()[device])
    return Job(canonical, target, accepted, compiler, host, origin, device)


def _space_of(candidate: Candidate, target: Target) -> SolverSpace:
    solver, geometry = candidate.solver, candidate.geometry
    known: dict[Config, float] = {}

    def predict(config: Config) -> float:
        if config not in known:
            known[config] = solver.predict(geometry, config, target)
        return known[config]

    return SolverSpace(
        candidate.name, solver.search_space(geometry, target), solver.default_config(geometry, target), predict,
        partial(solver.ranked, geometry, target),
    )  # fmt: skip
