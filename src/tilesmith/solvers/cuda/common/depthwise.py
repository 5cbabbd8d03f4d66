"""The common part of the families of depthwise convolutions: one input and one output channel a group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import product
from typing import Generic, TypeVar

from tilesmith.problems.geometry import ConvGeometry, TensorView, Triple
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import RESULTS
from tilesmith.solvers.cuda.common.listed import HasFits
from tilesmith.solvers.solver import Config, Configured, Geometry, Rejected, SearchSpace, cached_property, remembered
from tilesmith.targets.target import CudaTarget


def refused_depthwise(problem: Geometry, *, multiplied: bool = False) -> Rejected | None:
    """Why no family of depthwise convolutions computes ``problem``; None if it is one.

    ``multiplied``: several results of each channel are one, too, but for backward data, which sums over them.
    """
    if not isinstance(problem, ConvGeometry):
        return Rejected(reasons.OP)
    g = problem
    if g.direction not in ("fwd", "bwd", "wrw"):
        return Rejected(reasons.DIRECTION, g.direction)
    if g.groups != g.c or g.c == 1 or (g.k != g.c and not (multiplied and g.direction != "bwd")):
        return Rejected(reasons.GROUPS, f"{g.groups} groups of {g.c} and {g.k} channels")
    operand, filter_, result = {"fwd": (g.x, g.w, g.y), "bwd": (g.y, g.w, g.x), "wrw": (g.x, g.y, g.w)}[g.direction]
    if operand.dtype != filter_.dtype or operand.dtype not in RESULTS or result.dtype not in RESULTS:
        return Rejected(reasons.DTYPE, f"{operand.dtype} x {filter_.dtype} -> {result.dtype}")
    if g.acc_dtype != "fp32":
        return Rejected(reasons.DTYPE, f"accumulated in {g.acc_dtype}")
    return None


class DepthwiseConfigured(Configured):
    """A base for tiles of a depthwise convolution."""

    g: ConvGeometry
    config: Config
    target: CudaTarget

    @property
    def weights(self) -> bool:
        return self.g.direction == "wrw"

    @property
    def back(self) -> bool:
        return self.g.direction == "bwd"

    @property
    def source(self) -> TensorView:
        """The tensor that the filter slides over; x for ``wrw``."""
        return self.g.y if self.back else self.g.x

    @property
    def result(self) -> TensorView:
        """The tensor of sums; dy for ``wrw``, which has its size."""
        return self.g.x if self.back else self.g.y

    @cached_property
    def padding(self) -> Triple:
        """Of a convolution of ``source`` with the filter, turned round for backward data."""
        g = self.g
        if not self.back:
            return g.padding
        d, h, w = ((f - 1) * step - pad for f, step, pad in zip(g.filter, g.dilation, g.padding, strict=True))
        return d, h, w

    @property
    @abstractmethod
    def fits(self) -> bool:
        """Whether the config computes the problem."""


Tile = TypeVar("Tile", bound=HasFits)


class RankedDepthwise(Generic[Tile]):
    """A solver whose configs are few enough to be sorted by their estimates."""

    @abstractmethod
    def axis_values(self, problem: Geometry) -> dict[str, tuple[int, ...]]:
        """The values of each axis for ``problem``."""

    def ranked_values(self, problem: Geometry) -> dict[str, tuple[int, ...]]:
        """Of some axes the few values that are ranked: the estimate hardly tells the others apart."""
        return {}

    @abstractmethod
    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Tile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""

    @abstractmethod
    def seconds(self, tile: Tile, target: CudaTarget) -> float:
        """The estimate of ``predict``."""

    def tiles(self, problem: Geometry, target: CudaTarget) -> Iterator[Tile]:
        """The configs that fit, of those that are ranked."""
        values = self.axis_values(problem) | self.ranked_values(problem)
        for point in product(*values.values()):
            tile = self.tile(problem, Config(tuple(zip(values, point, strict=True))), target)
            if tile.fits:
                yield tile

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return SearchSpace(self.axis_values(problem), lambda config: self.tile(problem, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return min(self.tiles(problem, target), key=lambda tile: self.seconds(tile, target)).config

    @remembered
    def ranked(self, problem: Geometry, target: CudaTarget) -> tuple[Config, ...]:
        """Configs worth measuring, the untuned choice first."""
        found = sorted(self.tiles(problem, target), key=lambda tile: self.seconds(tile, target))
        return tuple(tile.config for tile in found)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return self.seconds(self.tile(problem, config, target), target)
