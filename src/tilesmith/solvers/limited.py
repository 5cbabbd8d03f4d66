"""A solver under a limit of workspace: only the configs whose plans need no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from tilesmith.plan.assemble import workspace_bytes
from tilesmith.plan.records import Draft
from tilesmith.solvers import reasons
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace
from tilesmith.targets.target import CpuTarget, CudaTarget, Target

Kind = TypeVar("Kind", bound=CpuTarget | CudaTarget)
_STEPS = 8  # changes of one axis each, from the solver's own default on


@dataclass(frozen=True)
class _Least:
    """The config to begin with, or the fewest bytes that were found."""

    config: Config | None
    nbytes: int


class Limited(Generic[Kind]):
    """``inner`` where its plans need at most ``limit`` bytes of workspace (``Plan.workspace_bytes``).

    Packed filters do not count: they are made once and kept. The default is that of ``inner`` if it obeys, else the
    best predicted of those that do among the configs that ``inner`` ranks, or that differ from its default in a few
    axes. A solver without one is refused.
    """

    def __init__(self, inner: Solver[Kind], limit: int) -> None:
        self.inner: Any = inner  # hashable, as every solver of the table is
        self.limit = limit
        self.name = inner.name
        self.revision = inner.revision
        self.features = inner.features
        self.axes = inner.axes

    def applicable(self, problem: Geometry, target: Kind) -> Accepted | Rejected:
        verdict: Accepted | Rejected = self.inner.applicable(problem, target)
        if isinstance(verdict, Rejected):
            return verdict
        least = _least(self.inner, problem, target, self.limit)
        if least.config is None:
            return Rejected(reasons.WORKSPACE, f"needs {least.nbytes} bytes or more, workspace_limit is {self.limit}")
        return verdict

    def search_space(self, problem: Geometry, target: Kind) -> SearchSpace:
        space: SearchSpace = self.inner.search_space(problem, target)
        return SearchSpace(
            space.axes, lambda config: space.allowed(config) and self._needs(problem, config, target) <= self.limit
        )

    def default_config(self, problem: Geometry, target: Kind) -> Config:
        config = _least(self.inner, problem, target, self.limit).config
        assert config is not None, "only of a problem that it takes"
        return config

    def ranked(self, problem: Geometry, target: Kind) -> Sequence[Config]:
        """The inner solver's order of what is worth measuring, without what needs more."""
        return [c for c in self.inner.ranked(problem, target) if self._needs(problem, c, target) <= self.limit]

    def predict(self, problem: Geometry, config: Config, target: Kind) -> float:
        seconds: float = self.inner.predict(problem, config, target)
        return seconds

    def draft(self, problem: Geometry, config: Config, target: Kind) -> Draft:
        draft: Draft = self.inner.draft(problem, config, target)
        return draft

    def _needs(self, problem: Geometry, config: Config, target: Kind) -> int:
        return _needs(self.inner, problem, config, target)


@lru_cache(maxsize=4096)
def _needs(solver: Any, problem: Geometry, config: Config, target: Target) -> int:
    return workspace_bytes(solver.draft(problem, config, target), target)


@lru_cache(maxsize=512)
def _least(solver: Any, problem: Geometry, target: Target, limit: int) -> _Least:
    here = solver.default_config(problem, target)
    nbytes = _needs(solver, problem, here, target)
    space = solver.search_space(problem, target)
    tried: Sequence[Config] = solver.ranked(problem, target) if nbytes > limit else ()
    for _ in range(_STEPS):
        if nbytes <= limit:
            return _Least(here, nbytes)
        needs = {config: _needs(solver, problem, config, target) for config in (*tried, *_neighbours(space, here))}
        obeying = [config for config, needed in needs.items() if needed <= limit]
        if obeying:
            best = min(obeying, key=lambda config: solver.predict(problem, config, target))
            return _Least(best, needs[best])
        nearer = min(needs, key=lambda config: needs[config], default=here)
        if needs.get(nearer, nbytes) >= nbytes:
            break
        here, nbytes, tried = nearer, needs[nearer], []
    return _Least(None, nbytes)


def _neighbours(space: SearchSpace, config: Config) -> Iterator[Config]:
    """Allowed configs that differ in one axis."""
    for name, values in space.axes.items():
        for value in values:
            moved = config.replace(**{name: value})
            if moved != config and space.allowed(moved):
                yield moved
