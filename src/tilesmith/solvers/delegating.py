"""A base for solvers that have another one compute a changed problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from tilesmith.solvers.contract import Solver
from tilesmith.solvers.solver import Axis, Config, Geometry, SearchSpace, remembered
from tilesmith.targets.target import CpuTarget, CudaTarget

Kind = TypeVar("Kind", bound=CpuTarget | CudaTarget)


class Delegating(ABC, Generic[Kind]):
    """Its configs are those that ``inner`` has for the changed problem."""

    inner: Solver[Kind]

    @abstractmethod
    def changed(self, problem: Geometry) -> Geometry:
        """``problem`` as ``inner`` computes it."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.inner.axes

    def search_space(self, problem: Geometry, target: Kind) -> SearchSpace:
        return self.inner.search_space(self.changed(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: Kind) -> Config:
        return self.inner.default_config(self.changed(problem), target)

    def ranked(self, problem: Geometry, target: Kind) -> Sequence[Config]:
        return self.inner.ranked(self.changed(problem), target)
