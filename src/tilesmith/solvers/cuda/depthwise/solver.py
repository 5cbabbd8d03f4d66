"""Depthwise convolution: a thread gathers a small tile of results for a few channels, all of it unrolled.

Backward data is the same gather with another map from results to inputs; backward weights walks over tiles of dy and
adds up its threads and blocks in a fixed order. In three dimensions a tile lies in one plane, and a loop goes over the
filter's planes; blocks of backward weights have one plane of it each.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, USUAL
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import MAX_INDEX
from tilesmith.solvers.cuda.common.depthwise import refused_depthwise
from tilesmith.solvers.cuda.depthwise.cost import depthwise_seconds
from tilesmith.solvers.cuda.depthwise.draft import depthwise_draft
from tilesmith.solvers.cuda.depthwise.tile import MAX_SUMS, DepthwiseTile, vector_of
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    Unranked,
    remembered,
    values_of,
)
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

AXES = (
    Axis("channels_per_thread", (1, 2, 4, 8), "Channels of a thread, which move at once."),
    Axis("rows_per_thread", (1, 2, 3, 4, 6, 7, 8, 12, 14), "Rows of the results of a thread."),
    Axis("columns_per_thread", (1, 2, 3, 4, 6, 7, 8, 12), "Results of each of its rows."),
    Axis("threads", (64, 128, 256), "Threads of a block."),
    Axis("rows_ahead", (0, 1, 2), "Rows that are fetched before they are needed; 0 for backward weights."),
    Axis("filter_rows", (), "Rows of the filter that a thread of backward weights sums; 0 for the others."),
    Axis("blocks_per_sm", (0, 2, 4, 8, 16), "Blocks of backward weights on each SM, about; 0 for the others."),
)


class DepthwiseCudaSolver(Unranked):
    """One input channel a group, and one result or, but for backward data, several; channels-last, images in up to
    three dimensions, sums in fp32.
    """

    name = "cuda_depthwise"
    revision = 1
    features = (
        USUAL | EPILOGUE | {"fwd", "bwd", "wrw", "groups", "stride", "padding", "padding_high", "dilation", "depth"}
    )
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        refused = refused_depthwise(problem, multiplied=True)
        if refused is not None:
            return refused
        g = _conv(problem)
        if max(g.x.vector, g.w.vector, g.y.vector) > 1 or not (g.x.channels_last and g.y.channels_last):
            return Rejected(reasons.LAYOUT, "channels are not contiguous")
        if max(abs(view.strides[0]) for view in (g.x, g.y)) > MAX_INDEX:
            return Rejected(reasons.SIZE)
        if next(_candidates(g, target), None) is None:
            return Rejected(reasons.FILTER, f"filter {g.filter}, stride {g.stride}, dilation {g.dilation}")
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        g = _conv(problem)
        weights = g.direction == "wrw"
        axes = values_of(AXES) | {
            "channels_per_thread": tuple(v for v in (1, 2, 4, 8) if v <= vector_of(g)),
            "rows_ahead": (0,) if weights else (1, 2),
            "filter_rows": tuple(range(1, g.filter[1] + 1)) if weights else (0,),
            "blocks_per_sm": (2, 4, 8, 16) if weights else (0,),
        }
        return SearchSpace(axes, lambda config: DepthwiseTile(g, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return _default(_conv(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return depthwise_seconds(self.tile(problem, config, target), fit_of(target).depthwise)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> DepthwiseTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return DepthwiseTile(_conv(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return depthwise_draft(self.tile(problem, config, target))


def _conv(problem: Geometry) -> ConvGeometry:
    assert isinstance(problem, ConvGeometry)
    return problem


def _candidates(g: ConvGeometry, target: CudaTarget) -> Iterator[DepthwiseTile]:
    weights, stride = g.direction == "wrw", (g.stride[1], g.stride[2]) if g.direction == "bwd" else (1, 1)
    heights = sorted({h for h in (1, 2, 3, 4, 6, 7, 8, 12, 14) if h % stride[0] == 0})
    widths = sorted({w for w in (1, 2, 3, 4, 6, 7, 8, 12) if w % stride[1] == 0})
    # NOTE: with 8 channels a thread holds so much that few share an SM: up to 2.6 times slower, and hardly ever faster,
    # on 20 of 90 random problems (H200).
    for vec in (v for v in (1, 2, 4) if v <= vector_of(g)):
        most_rows = max(1, min(g.filter[1], MAX_SUMS // (g.filter[2] * vec)))
        filter_rows = {g.filter[1], (g.filter[1] + 1) // 2, most_rows, 1} if weights else {0}
        for th in heights:
            for tw in widths:
                for threads in (128, 256):
                    for rows in filter_rows:
                        config = Config(
                            (("channels_per_thread", vec), ("rows_per_thread", th), ("columns_per_thread", tw),
                             ("threads", threads), ("rows_ahead", 0 if weights else 1), ("filter_rows", rows),
                             ("blocks_per_sm", 4 if weights else 0))
                        )  # fmt: skip
                        t = DepthwiseTile(g, config, target)
                        # With two paths, for whole tiles and for others, the estimate is low for wide filters.
                        if t.fits and (not weights or g.filter[2] < 7 or t.registers <= 124):
                            yield t


def _default(g: ConvGeometry, target: CudaTarget) -> Config:
    fit = fit_of(target).depthwise
    return min(_candidates(g, target), key=lambda tile: depthwise_seconds(tile, fit)).config
