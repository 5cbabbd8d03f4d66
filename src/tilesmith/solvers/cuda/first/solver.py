"""First layers: convolutions of few input channels, read as they lie, without a padded copy."""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import ACTIVATED, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.common.listed import Listed
from tilesmith.solvers.cuda.first.cost import first_seconds, weights_seconds
from tilesmith.solvers.cuda.first.draft import first_draft, weights_draft
from tilesmith.solvers.cuda.first.tile import FirstTile
from tilesmith.solvers.cuda.first.weights import WeightsTile
from tilesmith.solvers.cuda.first.window import refused
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget


class FirstLayerSolver(Listed[ConvGeometry, FirstTile]):
    """Forward: up to 7 channels of x in any layout, any window, channels-last results of any width."""

    name = "first_layer"
    revision = 2
    features = (USUAL - {"tf32"}) | ACTIVATED | WINDOW | {"fwd", "bias"}
    axes = (
        Axis("tile_w", (8, 16, 32, 64), "Results of a tile in a row of the image."),
        Axis("warps", (4, 8), "Warps of a block."),
        Axis("parts", (1, 2, 4), "Sixteens of pixels of a warp."),
        Axis("block_n", (8, 16, 32, 48, 64, 96, 128), "Channels of the results of a block."),
        Axis("wgmma", (0, 1), "Whether warpgroups multiply (wgmma), or warps (mma.sync)."),
        Axis("blocks_per_sm", (1, 2, 3, 4), "Blocks that share an SM."),
    )
    of = FirstTile

    def form_of(self, problem: ConvGeometry) -> ConvGeometry | Rejected:
        return refused(problem) or problem

    def seconds(self, tile: FirstTile) -> float:
        return first_seconds(tile, fit_of(tile.target).first)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return first_draft(self.tile(problem, config, target))


class FirstLayerWrwSolver(Listed[ConvGeometry, WeightsTile]):
    """Backward weights: up to 7 channels of x in any layout, any window, channels-last dy of any width."""

    name = "first_layer_wrw"
    revision = 1
    features = (USUAL - {"tf32"}) | WINDOW | {"wrw"}
    axes = (
        Axis("tile_h", (1, 2, 4, 8, 16), "Rows of pixels of dy that a tile sums over."),
        Axis("tile_w", (8, 16, 32, 64), "Columns of them."),
        Axis("warps", (1, 2, 3, 4, 5, 6, 7, 8, 10), "Warps of a block."),
        Axis("parts", (1, 2, 4), "Sixteens of channels of dy of a block."),
        Axis("groups", (1, 2, 3, 4), "Eights of units of the window of a warp."),
        Axis("blocks_per_sm", (1, 2, 3, 4), "Blocks that share an SM."),
    )
    of = WeightsTile

    def form_of(self, problem: ConvGeometry) -> ConvGeometry | Rejected:
        return refused(problem) or problem

    def seconds(self, tile: WeightsTile) -> float:
        return weights_seconds(tile, fit_of(tile.target).first)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return weights_draft(self.tile(problem, config, target))
