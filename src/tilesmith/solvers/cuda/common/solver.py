"""The common part of the solvers of sm_90a families. Each solver defines its forms and the order of its configs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.form import Sm90Form
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, remembered
from tilesmith.targets.target import CudaTarget


class HasConfig(Protocol):
    """A config, parsed into the numbers of a problem."""

    @property
    def config(self) -> Config: ...


Tile = TypeVar("Tile", bound=HasConfig)


class Sm90Solver(Generic[Tile]):
    """A solver of problems that have a form, on targets with wgmma and bulk tensor copies."""

    name: str
    op: type[ConvGeometry] | type[GemmGeometry] = ConvGeometry

    @abstractmethod
    def form(self, problem: Geometry) -> Sm90Form | Rejected:
        """``problem``, one of ``op``, as the kernel sees it, or why it cannot."""

    @abstractmethod
    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Tile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""

    @abstractmethod
    def seconds(self, tile: Tile, target: CudaTarget) -> float:
        """The estimate of ``predict``."""

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, self.op):
            return Rejected(reasons.OP)
        if not (target.has_wgmma and target.has_tma):
            return Rejected(reasons.TARGET, "wgmma")
        form = self.form(problem)
        return form if isinstance(form, Rejected) else self.fitting(problem, target)

    def fitting(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        """Whether a config fits a problem that has a form."""
        return Accepted()

    def covered(self, problem: Geometry) -> Sm90Form:
        """The form of a problem that was accepted."""
        form = self.form(problem) if isinstance(problem, self.op) else Rejected(reasons.OP)
        if isinstance(form, Rejected):
            raise ValueError(f"{self.name} does not cover this problem: {form}")
        return form

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return self.seconds(self.tile(problem, config, target), target)


class WindowSolver(Sm90Solver[Tile]):
    """A solver whose configs are few enough to be sorted by their estimates."""

    @abstractmethod
    def candidates(self, problem: Geometry, target: CudaTarget) -> Iterator[Tile]:
        """The configs that fit."""

    def fitting(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if next(self.candidates(problem, target), None) is None:
            assert isinstance(problem, ConvGeometry)
            return Rejected(reasons.FILTER, f"no window of a filter {problem.filter} fits")
        return Accepted()

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return min(self.candidates(problem, target), key=lambda tile: self.seconds(tile, target)).config

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        found = sorted(self.candidates(problem, target), key=lambda tile: self.seconds(tile, target))
        return [tile.config for tile in found]
