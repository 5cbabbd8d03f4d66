"""First layers: forward convolutions of few input channels, read as they lie, without a padded copy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from tilesmith.plan.records import Draft
from tilesmith.problems.features import ACTIVATED, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.first.cost import first_seconds
from tilesmith.solvers.cuda.first.draft import first_draft
from tilesmith.solvers.cuda.first.tile import FirstTile, refused
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.target import CudaTarget

AXES = (
    Axis("tile_w", (8, 16, 32, 64), "Results of a tile in a row of the image."),
    Axis("warps", (4, 8), "Warps of a block."),
    Axis("parts", (1, 2, 4), "Sixteens of pixels of a warp."),
    Axis("block_n", (8, 16, 32, 48, 64, 96, 128), "Channels of the results of a block."),
    Axis("wgmma", (0, 1), "Whether warpgroups multiply (wgmma), or warps (mma.sync)."),
    Axis("blocks_per_sm", (1, 2, 3, 4), "Blocks that share an SM."),
)


class FirstLayerSolver:
    """Up to 16 channels of x in any layout, any window, channels-last results of any width."""

    name = "first_layer"
    revision = 1
    features = (USUAL - {"tf32"}) | ACTIVATED | WINDOW | {"fwd", "bias"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        refusal = refused(problem)
        if refusal is not None:
            return refusal
        if not target.has_cp_async or (problem.x.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "mma of 16-bit floats")
        found = next(_tiles(problem, target), None)
        return Accepted() if found is not None else Rejected(reasons.FILTER, f"no window of {problem.filter} fits")

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return SearchSpace(values_of(AXES), lambda config: self.tile(problem, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return self.ranked(problem, target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        assert isinstance(problem, ConvGeometry)
        return list(_ranked(problem, target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return first_seconds(self.tile(problem, config, target))

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> FirstTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        assert isinstance(problem, ConvGeometry)
        return FirstTile(problem, config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return first_draft(self.tile(problem, config, target))


def _tiles(g: ConvGeometry, target: CudaTarget) -> Iterator[FirstTile]:
    """All that fit."""
    for values in product(*values_of(AXES).values()):
        tile = FirstTile(g, Config(tuple(zip(values_of(AXES), values, strict=True))), target)
        if tile.fits:
            yield tile


@lru_cache(maxsize=256)
def _ranked(g: ConvGeometry, target: CudaTarget) -> tuple[Config, ...]:
    return tuple(tile.config for tile in sorted(_tiles(g, target), key=first_seconds))
