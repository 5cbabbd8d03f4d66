"""First layers: convolutions of few input channels, read as they lie, without a padded copy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Generic, TypeVar

from tilesmith.plan.records import Draft
from tilesmith.problems.features import ACTIVATED, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.first.cost import first_seconds, weights_seconds
from tilesmith.solvers.cuda.first.draft import first_draft, weights_draft
from tilesmith.solvers.cuda.first.tile import FirstTile
from tilesmith.solvers.cuda.first.weights import WeightsTile
from tilesmith.solvers.cuda.first.window import refused
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

Tile = TypeVar("Tile", FirstTile, WeightsTile)


class FewChannels(Generic[Tile]):
    """The common part of both directions: all configs are listed and sorted by their estimates."""

    name: str
    axes: tuple[Axis, ...]
    direction: str

    @abstractmethod
    def of(self, g: ConvGeometry, config: Config, target: CudaTarget) -> Tile:
        """The tiles and resources of ``config`` for ``g``."""

    @abstractmethod
    def seconds(self, tile: Tile) -> float:
        """The estimate of ``predict``."""

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        refusal = refused(problem)
        if refusal is not None:
            return refusal
        if not target.has_cp_async or (problem.x.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "mma of 16-bit floats")
        found = next(self._tiles(problem, target), None)
        return Accepted() if found is not None else Rejected(reasons.FILTER, f"no window of {problem.filter} fits")

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return SearchSpace(values_of(self.axes), lambda config: self.tile(problem, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return self.ranked(problem, target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        assert isinstance(problem, ConvGeometry)
        return list(self._ranked(problem, target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return self.seconds(self.tile(problem, config, target))

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Tile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        assert isinstance(problem, ConvGeometry)
        return self.of(problem, config, target)

    def _tiles(self, g: ConvGeometry, target: CudaTarget) -> Iterator[Tile]:
        """All that fit."""
        for values in product(*values_of(self.axes).values()):
            tile = self.of(g, Config(tuple(zip(values_of(self.axes), values, strict=True))), target)
            if tile.fits:
                yield tile

    @lru_cache(maxsize=256)  # noqa: B019
    def _ranked(self, g: ConvGeometry, target: CudaTarget) -> tuple[Config, ...]:
        return tuple(tile.config for tile in sorted(self._tiles(g, target), key=self.seconds))


class FirstLayerSolver(FewChannels[FirstTile]):
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

    def of(self, g: ConvGeometry, config: Config, target: CudaTarget) -> FirstTile:
        return FirstTile(g, config, target)

    def seconds(self, tile: FirstTile) -> float:
        return first_seconds(tile, fit_of(tile.target).first)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return first_draft(self.tile(problem, config, target))


class FirstLayerWrwSolver(FewChannels[WeightsTile]):
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

    def of(self, g: ConvGeometry, config: Config, target: CudaTarget) -> WeightsTile:
        return WeightsTile(g, config, target)

    def seconds(self, tile: WeightsTile) -> float:
        return weights_seconds(tile, fit_of(tile.target).first)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return weights_draft(self.tile(problem, config, target))
