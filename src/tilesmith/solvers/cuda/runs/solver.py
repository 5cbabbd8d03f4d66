"""Strided convolutions of odd channels, rows of x read, or rows of dx written, as they lie."""

from __future__ import annotations

from typing import TypeVar

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.common.listed import Listed
from tilesmith.solvers.cuda.runs.back import BackForm, BackTile, back_form
from tilesmith.solvers.cuda.runs.cost import back_seconds, runs_seconds, weights_seconds
from tilesmith.solvers.cuda.runs.draft import back_draft, runs_draft, weights_draft
from tilesmith.solvers.cuda.runs.form import RunsForm, runs_form
from tilesmith.solvers.cuda.runs.tile import RunsTile, RunsWeightsTile
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected
from tilesmith.targets.target import CudaTarget

_MOST = 256  # configs that are worth measuring
Tile = TypeVar("Tile", RunsTile, RunsWeightsTile)


class _ReadsRuns(Listed[RunsForm, Tile]):
    most = _MOST

    def form_of(self, problem: ConvGeometry) -> RunsForm | Rejected:
        return runs_form(problem)


class RunsSolver(_ReadsRuns[RunsTile]):
    """Forward: rows of x without gaps, of which results are multiples of 16 bytes apart."""

    name = "mma_runs"
    revision = 1
    features = (USUAL - {"tf32"}) | EPILOGUE | WINDOW | {"fwd"}
    axes = (
        Axis("tile_h", (1, 2, 4, 8, 16), "Rows of results of a tile."),
        Axis("tile_w", (16, 32, 64), "Results of each of them."),
        Axis("rows", (1, 2, 4), "Rows of results of a warp."),
        Axis("parts", (1, 2, 4), "Sixteens of results of a warp in a row."),
        Axis("warps_k", (1, 2, 4, 7, 8, 11), "Warps that share results, each with a part of the sums."),
        Axis("block_n", (8, 16, 24, 32, 48, 64), "Channels of the results of a block."),
        Axis("stages", (2, 3), "Stages of the ring: the rows of a phase."),
        Axis("blocks_per_sm", (1, 2, 3), "Blocks that share an SM."),
    )
    of = RunsTile

    def seconds(self, tile: RunsTile) -> float:
        return runs_seconds(tile)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return runs_draft(self.tile(problem, config, target))


class RunsWrwSolver(_ReadsRuns[RunsWeightsTile]):
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


class RunsBwdSolver(Listed[BackForm, BackTile]):
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
    most = _MOST
    of = BackTile

    def form_of(self, problem: ConvGeometry) -> BackForm | Rejected:
        return back_form(problem)

    def seconds(self, tile: BackTile) -> float:
        return back_seconds(tile)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return back_draft(self.tile(problem, config, target))
