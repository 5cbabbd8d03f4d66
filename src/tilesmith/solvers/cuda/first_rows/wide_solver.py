"""Backward weights of first layers by warpgroups."""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.first_rows.cost import wide_weights_seconds
from tilesmith.solvers.cuda.first_rows.solver import ByWarpgroups
from tilesmith.solvers.cuda.first_rows.wide import WideRowsTile, wide_refused
from tilesmith.solvers.cuda.first_rows.wide_draft import wide_draft
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget


class WideRowsWrwSolver(ByWarpgroups[WideRowsTile]):
    """Backward weights of the same x by warpgroups, where pixels of dy are multiples of 16 bytes."""

    name = "wgmma_first_rows_wrw"
    revision = 1
    features = (USUAL - {"tf32"}) | WINDOW | {"wrw"}
    axes = (
        Axis("tile_h", (1, 2, 4, 8), "Rows of pixels of dy that a tile sums over."),
        Axis("tile_w", (16, 32, 48, 56, 64, 80, 96, 112, 160), "Columns of them."),
        Axis("warpgroups", (1, 2, 3, 4), "Warpgroups of a block that multiply."),
        Axis("group", (1, 2, 3, 4), "Matrices of 32 words of the filter of a warpgroup."),
        Axis("channels", (32, 64, 128), "Channels of dy of a block, at most."),
        Axis("blocks_per_sm", (1, 2, 3), "Blocks that share an SM."),
    )
    of = WideRowsTile

    def form_of(self, problem: ConvGeometry) -> ConvGeometry | Rejected:
        return wide_refused(problem) or problem

    def seconds(self, tile: WideRowsTile) -> float:
        return wide_weights_seconds(tile, fit_of(tile.target).wide_rows_wrw)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return wide_draft(self.tile(problem, config, target))
