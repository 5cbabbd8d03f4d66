"""Depthwise convolution on tensor cores: a product's columns are neighbouring results of four channels.

Rows of inputs stream through shared memory, each is read once, and adds to all rows of results that it touches.
"""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.features import EPILOGUE, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX
from tilesmith.solvers.cuda.common.depthwise import RankedDepthwise, refused_depthwise
from tilesmith.solvers.cuda.depthwise_mma.cost import depthwise_mma_seconds
from tilesmith.solvers.cuda.depthwise_mma.draft import depthwise_mma_draft
from tilesmith.solvers.cuda.depthwise_mma.tile import PLANE_CHANNELS, DepthwiseMmaTile, row_counts, upright
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

AXES = (
    Axis("block_c", (16, 32, 48, 64), "Channels of a block, four for each warp."),
    Axis("block_w", (16, 32, 48, 64), "Neighbouring results of a row."),
    Axis("products_m", (1, 2, 3, 4), "Products of a warp that share an operand of the filter."),
    Axis("strips", (1, 2, 3, 4, 6, 8, 12, 16), "Parts of the height of an image."),
    Axis("group_rows", (1, 2, 4), "Rows of results of a stage."),
    Axis("stages", (2, 3, 4), "Stages of the ring of inputs."),
    Axis("filter_rows", (), "Rows of the filter that a block of backward weights sums; 0 for the others."),
)


class DepthwiseMmaSolver(RankedDepthwise[DepthwiseMmaTile]):
    """One input and one output channel a group, channels-last and a multiple of 4, 16-bit operands, sums in fp32."""

    name = "mma_depthwise"
    revision = 1
    features = USUAL | EPILOGUE | WINDOW | {"fwd", "bwd", "wrw", "groups"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        refused = refused_depthwise(problem)
        if refused is not None:
            return refused
        g = _conv(problem)
        operand = g.y if g.direction == "bwd" else g.x
        if operand.dtype not in HALVES:
            return Rejected(reasons.DTYPE, operand.dtype)
        if not target.has_cp_async or (operand.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "cp.async")
        if not (g.x.channels_last and g.y.channels_last):
            return Rejected(reasons.LAYOUT, "channels are not contiguous")
        if g.c % PLANE_CHANNELS or not (_even(g.x) and _even(g.y)):
            return Rejected(reasons.LAYOUT, f"steps between pixels are no multiples of {PLANE_CHANNELS} channels")
        if g.direction == "bwd" and max(g.stride) > 1:
            return Rejected(reasons.STRIDE, f"{g.stride}")
        if max(abs(view.strides[0]) for view in (g.x, g.y)) > MAX_INDEX:
            return Rejected(reasons.SIZE)
        if next(self.tiles(problem, target), None) is None:
            return Rejected(reasons.FILTER, f"filter {g.filter}, stride {g.stride}, dilation {g.dilation}")
        return Accepted()

    def axis_values(self, problem: Geometry) -> dict[str, tuple[int, ...]]:
        return _values(_conv(problem))

    def ranked_values(self, problem: Geometry) -> dict[str, tuple[int, ...]]:
        g = _conv(problem)
        large = g.filter[1] * g.filter[2] > 100  # its table leaves little memory
        values = {"stages": (2,) if large else (3,), "strips": (1, 2, 4, 8, 16)}
        return values if g.direction != "wrw" else values | {"filter_rows": row_counts(g)[:2]}

    def seconds(self, tile: DepthwiseMmaTile, target: CudaTarget) -> float:
        return depthwise_mma_seconds(tile, fit_of(target).depthwise_mma)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> DepthwiseMmaTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return DepthwiseMmaTile(_conv(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return depthwise_mma_draft(self.tile(problem, config, target))


def _conv(problem: Geometry) -> ConvGeometry:
    assert isinstance(problem, ConvGeometry)
    return upright(problem)


def _even(view: TensorView) -> bool:
    """Whether four channels of any pixel move at once; of fp32 two are enough."""
    unit = min(PLANE_CHANNELS, 8 // dtype(view.dtype).nbytes)
    sizes, strides = (view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:])
    return all(stride % unit == 0 for size, stride in zip(sizes, strides, strict=True) if size > 1)


def _values(g: ConvGeometry) -> dict[str, tuple[int, ...]]:
    return values_of(AXES) | {"filter_rows": row_counts(g) if g.direction == "wrw" else (0,)}
