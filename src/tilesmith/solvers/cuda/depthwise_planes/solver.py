"""Channels-first depthwise convolution: a thread computes neighbouring results of a channel's rows."""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, USUAL
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.depthwise import RankedDepthwise, refused_depthwise
from tilesmith.solvers.cuda.depthwise_planes.cost import planes_seconds
from tilesmith.solvers.cuda.depthwise_planes.draft import planes_draft
from tilesmith.solvers.cuda.depthwise_planes.tile import PlanesTile
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

AXES = (
    Axis("columns_per_thread", (1, 2, 4, 8), "Neighbours of a row that move at once."),
    Axis("rows_per_thread", (1, 2, 4, 7, 8), "Rows of the results of a thread; 1 for backward weights."),
    Axis("threads", (64, 128, 256), "Threads of a block."),
    Axis("blocks_per_sm", (0, 2, 4, 8), "Blocks of backward weights on each SM, at least; 0 for the others."),
)


class DepthwisePlanesSolver(RankedDepthwise[PlanesTile]):
    """One input and one output channel a group, rows contiguous, stride 1, in one or two dimensions, sums in fp32."""

    name = "cuda_depthwise_planes"
    revision = 1
    features = USUAL | EPILOGUE | {"fwd", "bwd", "wrw", "groups", "padding", "padding_high", "dilation"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        refused = refused_depthwise(problem)
        if refused is not None:
            return refused
        g = _conv(problem)
        if not (_by_rows(g.x) and _by_rows(g.y)):
            return Rejected(reasons.LAYOUT, "rows are not contiguous")
        if next(self.tiles(problem, target), None) is None:
            return Rejected(reasons.FILTER, f"filter {g.filter}")
        return Accepted()

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> PlanesTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return PlanesTile(_conv(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return planes_draft(self.tile(problem, config, target))

    def axis_values(self, problem: Geometry) -> dict[str, tuple[int, ...]]:
        return _values(_conv(problem))

    def seconds(self, tile: PlanesTile, target: CudaTarget) -> float:
        return planes_seconds(tile, fit_of(target).depthwise)


def _conv(problem: Geometry) -> ConvGeometry:
    assert isinstance(problem, ConvGeometry)
    return problem


def _by_rows(view: TensorView) -> bool:
    return view.vector == 1 and (view.strides[4] == 1 or view.shape[4] == 1)


def _values(g: ConvGeometry) -> dict[str, tuple[int, ...]]:
    if g.direction == "wrw":
        return values_of(AXES) | {"rows_per_thread": (1,), "blocks_per_sm": (2, 4, 8)}
    return values_of(AXES) | {"blocks_per_sm": (0,)}
