"""First layers by warpgroups: rows of pixels without gaps are read as they lie."""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import ACTIVATED, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.listed import Listed, Tile
from tilesmith.solvers.cuda.first_rows.cost import rows_seconds, rows_weights_seconds
from tilesmith.solvers.cuda.first_rows.draft import rows_draft, rows_weights_draft
from tilesmith.solvers.cuda.first_rows.tile import RowsTile
from tilesmith.solvers.cuda.first_rows.weights import EIGHTS, RowsWeightsTile
from tilesmith.solvers.cuda.first_rows.window import refused
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, remembered
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget


class ByWarpgroups(Listed[ConvGeometry, Tile]):
    """Solvers of targets that have wgmma."""

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not target.has_wgmma:
            return Rejected(reasons.TARGET, "wgmma")
        return super().applicable(problem, target)


class FirstRowsSolver(ByWarpgroups[RowsTile]):
    """Forward: up to 7 channels of x whose rows of pixels have no gaps, channels-last results of any width."""

    name = "first_rows"
    revision = 1
    features = (USUAL - {"tf32"}) | ACTIVATED | WINDOW | {"fwd", "bias"}
    axes = (
        Axis("tile_h", (1, 2, 3, 4, 6, 8, 12, 16, 32), "Rows of results of a block."),
        Axis("tile_w", (16, 28, 32, 48, 56, 64, 96, 112, 128, 160, 224), "Results in a row of them."),
        Axis("warps", (4, 8, 12, 16), "Warps of a block."),
        Axis("parts", (1, 2), "Sixteens of pixels of a warp."),
        Axis("blocks_per_sm", (1, 2, 3, 4, 5, 6), "Blocks that share an SM."),
    )
    of = RowsTile

    def form_of(self, problem: ConvGeometry) -> ConvGeometry | Rejected:
        return refused(problem) or problem

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return rows_draft(self.tile(problem, config, target))

    def seconds(self, tile: RowsTile) -> float:
        return rows_seconds(tile, fit_of(tile.target).first_rows)


class FirstRowsWrwSolver(Listed[ConvGeometry, RowsWeightsTile]):
    """Backward weights: up to 7 channels of x whose rows of pixels have no gaps, channels-last dy of any width."""

    name = "first_rows_wrw"
    revision = 1
    features = (USUAL - {"tf32"}) | WINDOW | {"wrw"}
    axes = (
        Axis("tile_h", (1, 2, 4, 8), "Rows of pixels of dy that a tile sums over."),
        Axis("tile_w", (16, 32, 48, 64, 96, 112, 160), "Columns of them."),
        Axis("warps", (4, 5, 6, 8, 10, 12), "Warps of a block."),
        Axis("group", (1, 2, 3, 4), "Matrices of eight words of the filter of a warp."),
        Axis("tiles_n", EIGHTS, "Eights of channels of dy of a block."),
        Axis("blocks_per_sm", (1, 2, 3, 4), "Blocks that share an SM."),
    )
    of = RowsWeightsTile

    def form_of(self, problem: ConvGeometry) -> ConvGeometry | Rejected:
        return refused(problem) or problem

    def seconds(self, tile: RowsWeightsTile) -> float:
        return rows_weights_seconds(tile, fit_of(tile.target).first_rows_wrw)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return rows_weights_draft(self.tile(problem, config, target))
