"""Strided convolutions of odd channels, rows of x read, or rows of dx written, as they lie."""

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
from tilesmith.solvers.cuda.runs.back import BackForm, BackTile, back_form
from tilesmith.solvers.cuda.runs.cost import back_seconds, runs_seconds, weights_seconds
from tilesmith.solvers.cuda.runs.draft import back_draft, runs_draft, weights_draft
from tilesmith.solvers.cuda.runs.form import RunsForm, runs_form
from tilesmith.solvers.cuda.runs.tile import RunsTile, RunsWeightsTile
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.target import CudaTarget

_RANKED = 256  # configs that are worth measuring
Form = TypeVar("Form", RunsForm, BackForm)
Tile = TypeVar("Tile", RunsTile, RunsWeightsTile, BackTile)


class _Runs(Generic[Form, Tile]):
    """The common part of all directions: all configs are listed and sorted by their estimates."""

    name: str
    axes: tuple[Axis, ...]
    of: Callable[[Form, Config, CudaTarget], Tile]

    @abstractmethod
    def form_of(self, g: ConvGeometry) -> Form | Rejected:
        """``g`` as the kernel sees it, or why it does not compute it."""

    @abstractmethod
    def seconds(self, tile: Tile) -> float:
        """The estimate of ``predict``."""

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        form = self.form_of(problem)
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
        return list(self._ranked(self._form(problem), target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return self.seconds(self.tile(problem, config, target))

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Tile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return self.of(self._form(problem), config, target)

    def _form(self, problem: Geometry) -> Form:
        assert isinstance(problem, ConvGeometry)
        form = self.form_of(problem)
        if isinstance(form, Rejected):
            raise ValueError(f"{self.name} does not cover this problem: {form}")
        return form

    def _tiles(self, form: Form, target: CudaTarget) -> Iterator[Tile]:
        """All that fit. The last axis counts the blocks of an SM: where two do not fit, three do not."""
        axes = values_of(self.axes)
        *others, last = axes
        chosen: tuple[int, ...]
        for chosen in product(*[axes[name] for name in others]):
            for count in axes[last]:
                tile: Tile = self.of(form, Config(tuple(zip(axes, (*chosen, count), strict=True))), target)
                if not tile.fits:
                    break
                yield tile

    @lru_cache(maxsize=256)  # noqa: B019
    def _ranked(self, form: Form, target: CudaTarget) -> tuple[Config, ...]:
        return tuple(tile.config for tile in sorted(self._tiles(form, target), key=self.seconds))[:_RANKED]


class RunsSolver(_Runs[RunsForm, RunsTile]):
    """Forward: rows of x without gaps, of which results are multiples of 16 bytes apart."""

    name = "mma_runs"
    revision = 1
    features = (USUAL - {"tf32"}) | EPILOGUE | WINDOW | {"fwd"}
    axes = (
        Axis("tile_h", (1, 2, 4, 8), "Rows of results of a tile."),
        Axis("tile_w", (16, 32, 64), "Results of each of them."),
        Axis("rows", (1, 2, 4), "Rows of results of a warp."),
        Axis("parts", (1, 2, 4), "Sixteens of results of a warp in a row."),
        Axis("warps_k", (1, 2, 4, 7, 8, 11), "Warps that share results, each with a part of the sums."),
        Axis("block_n", (8, 16, 24, 32, 48, 64), "Channels of the results of a block."),
        Axis("stages", (2, 3), "Stages of the ring: the rows of a phase."),
        Axis("blocks_per_sm", (1, 2, 3), "Blocks that share an SM."),
    )
    of = RunsTile

    def form_of(self, g: ConvGeometry) -> RunsForm | Rejected:
        return runs_form(g)

    def seconds(self, tile: RunsTile) -> float:
        return runs_seconds(tile)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return runs_draft(self.tile(problem, config, target))


class RunsWrwSolver(_Runs[RunsForm, RunsWeightsTile]):
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

    def form_of(self, g: ConvGeometry) -> RunsForm | Rejected:
        return runs_form(g)

    def seconds(self, tile: RunsWeightsTile) -> float:
        return weights_seconds(tile)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return weights_draft(self.tile(problem, config, target))


class RunsBwdSolver(_Runs[BackForm, BackTile]):
    """Backward data and transposed convolution: rows of dx without gaps, whatever the channels; dy of any pitch."""

    name = "mma_runs_bwd"
    revision = 1
    features = (USUAL - {"tf32"}) | EPILOGUE | (WINDOW - {"dilation"}) | {"bwd"}
    axes = (
        Axis("parts_w", (1, 2, 3, 4, 5, 6, 8, 12, 16), "Tiles that share the positions of a row."),
        Axis("tile_h", (1, 2, 3, 4, 6, 8), "Rows of positions of a tile."),
        Axis("phase_rows", (1, 2, 4, 8), "Rows of results that a block computes of each position."),
        Axis("warps_m", (1, 2, 3, 4, 5, 6, 8), "Warps along the positions."),
        Axis("warps_n", (1, 2, 4), "Warps along the elements of a position."),
        Axis("blocks_per_sm", (1, 2, 3, 4), "Blocks that share an SM."),
    )
    of = BackTile

    def form_of(self, g: ConvGeometry) -> BackForm | Rejected:
        return back_form(g)

    def seconds(self, tile: BackTile) -> float:
        return back_seconds(tile)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return back_draft(self.tile(problem, config, target))
