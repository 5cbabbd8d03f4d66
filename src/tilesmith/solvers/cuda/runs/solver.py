"""Strided convolutions of any channels, rows of x read as they lie: forward and backward weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import Generic, TypeVar

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.runs.cost import runs_seconds, weights_seconds
from tilesmith.solvers.cuda.runs.draft import runs_draft, weights_draft
from tilesmith.solvers.cuda.runs.form import RunsForm, runs_form
from tilesmith.solvers.cuda.runs.tile import RunsTile, RunsWeightsTile
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.target import CudaTarget

Tile = TypeVar("Tile", RunsTile, RunsWeightsTile)


class _Runs(Generic[Tile]):
    """The common part of both directions: all configs are listed and sorted by their estimates."""

    name: str
    axes: tuple[Axis, ...]
    direction: str
    of: Callable[[RunsForm, Config, CudaTarget], Tile]

    @abstractmethod
    def seconds(self, tile: Tile) -> float:
        """The estimate of ``predict``."""

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        form = runs_form(problem)
        if isinstance(form, Rejected):
            return form
        if not target.has_cp_async or (problem.x.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "mma of 16-bit floats")
        if not self._ranked(form, target):
            return Rejected(reasons.FILTER, f"no rows of a filter {problem.filter} fit")
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return SearchSpace(values_of(self.axes), lambda config: self.tile(problem, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return self.ranked(problem, target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return list(self._ranked(_form(problem), target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return self.seconds(self.tile(problem, config, target))

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Tile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return self.of(_form(problem), config, target)

    def _tiles(self, form: RunsForm, target: CudaTarget) -> Iterator[Tile]:
        names = values_of(self.axes)
        for values in product(*names.values()):
            tile = self.of(form, Config(tuple(zip(names, values, strict=True))), target)
            if tile.fits:
                yield tile

    @lru_cache(maxsize=256)  # noqa: B019
    def _ranked(self, form: RunsForm, target: CudaTarget) -> tuple[Config, ...]:
        return tuple(tile.config for tile in sorted(self._tiles(form, target), key=self.seconds))


def _form(problem: Geometry) -> RunsForm:
    assert isinstance(problem, ConvGeometry)
    form = runs_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the solver of runs does not cover this problem: {form}")
    return form


class RunsSolver(_Runs[RunsTile]):
    """Forward: rows of x without gaps, of which results are multiples of 16 bytes apart."""

    name = "mma_runs"
    revision = 1
    features = (USUAL - {"tf32"}) | EPILOGUE | WINDOW | {"fwd"}
    axes = (
        Axis("tile_h", (1, 2, 4, 8), "Rows of results of a tile."),
        Axis("tile_w", (16, 32, 64), "Results of each of them."),
        Axis("rows", (1, 2, 4), "Rows of results of a warp."),
        Axis("parts", (1, 2, 4), "Sixteens of results of a warp in a row."),
        Axis("warps_k", (1, 2, 4, 7, 8), "Warps that share results, each with a part of the sums."),
        Axis("block_n", (8, 16, 24, 32, 48, 64), "Channels of the results of a block."),
        Axis("stages", (2, 3), "Stages of the ring: the rows of a phase."),
        Axis("blocks_per_sm", (1, 2, 3), "Blocks that share an SM."),
    )
    of = RunsTile

    def seconds(self, tile: RunsTile) -> float:
        return runs_seconds(tile)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return runs_draft(self.tile(problem, config, target))


class RunsWrwSolver(_Runs[RunsWeightsTile]):
    """Backward weights: the same rows of x, channels-last dy of any width."""

    name = "mma_runs_wrw"
    revision = 1
    features = (USUAL - {"tf32"}) | WINDOW | {"wrw"}
    axes = (
        Axis("tile_w", (16, 32, 64), "Results of a row that a stage holds."),
        Axis("warps_a", (1, 2, 4, 8), "Phases of rows of a block."),
        Axis("warps_e", (1, 2, 3, 4, 5, 6, 7, 8, 11), "Warps that share the elements of a run."),
        Axis("block_n", (8, 16, 24, 32, 48, 64), "Channels of dy of a block."),
        Axis("stages", (2, 3, 4), "Stages of the ring."),
        Axis("blocks_per_sm", (1, 2, 3), "Blocks that share an SM."),
    )
    of = RunsWeightsTile

    def seconds(self, tile: RunsWeightsTile) -> float:
        return weights_seconds(tile)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return weights_draft(self.tile(problem, config, target))
