"""Channels-first depthwise convolution: a thread computes neighbouring results of a channel's rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, USUAL
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import RESULTS
from tilesmith.solvers.cuda.depthwise_planes.cost import planes_seconds
from tilesmith.solvers.cuda.depthwise_planes.draft import planes_draft
from tilesmith.solvers.cuda.depthwise_planes.tile import PlanesTile
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

AXES = (
    Axis("columns_per_thread", (1, 2, 4, 8), "Neighbours of a row that move at once."),
    Axis("rows_per_thread", (1, 2, 4, 7, 8), "Rows of the results of a thread; 1 for backward weights."),
    Axis("threads", (64, 128, 256), "Threads of a block."),
    Axis("blocks_per_sm", (0, 2, 4, 8), "Blocks of backward weights on each SM, at least; 0 for the others."),
)


class DepthwisePlanesSolver:
    """One input and one output channel a group, rows contiguous, stride 1, in one or two dimensions, sums in fp32."""

    name = "cuda_depthwise_planes"
    revision = 1
    features = USUAL | EPILOGUE | {"fwd", "bwd", "wrw", "groups", "padding", "padding_high", "dilation"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        g = problem
        if g.direction not in ("fwd", "bwd", "wrw"):
            return Rejected(reasons.DIRECTION, g.direction)
        if not g.groups == g.c == g.k or g.c == 1:
            return Rejected(reasons.GROUPS, f"{g.groups} groups of {g.c} and {g.k} channels")
        operand, filter_, result = {"fwd": (g.x, g.w, g.y), "bwd": (g.y, g.w, g.x), "wrw": (g.x, g.y, g.w)}[g.direction]
        if operand.dtype != filter_.dtype or operand.dtype not in RESULTS or result.dtype not in RESULTS:
            return Rejected(reasons.DTYPE, f"{operand.dtype} x {filter_.dtype} -> {result.dtype}")
        if not (_by_rows(g.x) and _by_rows(g.y)):
            return Rejected(reasons.LAYOUT, "rows are not contiguous")
        if next(_tiles(g, target), None) is None:
            return Rejected(reasons.FILTER, f"filter {g.filter}")
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        g = _conv(problem)
        return SearchSpace(_values(g), lambda config: PlanesTile(g, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return _ranked(_conv(problem), target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return list(_ranked(_conv(problem), target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return planes_seconds(self.tile(problem, config, target), fit_of(target).depthwise)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> PlanesTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return PlanesTile(_conv(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return planes_draft(self.tile(problem, config, target))


def _conv(problem: Geometry) -> ConvGeometry:
    assert isinstance(problem, ConvGeometry)
    return problem


def _by_rows(view: TensorView) -> bool:
    return view.vector == 1 and (view.strides[4] == 1 or view.shape[4] == 1)


def _values(g: ConvGeometry) -> dict[str, tuple[int, ...]]:
    if g.direction == "wrw":
        return values_of(AXES) | {"rows_per_thread": (1,), "blocks_per_sm": (2, 4, 8)}
    return values_of(AXES) | {"blocks_per_sm": (0,)}


def _tiles(g: ConvGeometry, target: CudaTarget) -> Iterator[PlanesTile]:
    """All that fit."""
    values = _values(g)
    for point in product(*values.values()):
        tile = PlanesTile(g, Config(tuple(zip(values, point, strict=True))), target)
        if tile.fits:
            yield tile


@lru_cache(maxsize=256)
def _ranked(g: ConvGeometry, target: CudaTarget) -> tuple[Config, ...]:
    fit = fit_of(target).depthwise
    return tuple(tile.config for tile in sorted(_tiles(g, target), key=lambda t: planes_seconds(t, fit)))
