"""int8 depthwise convolution by ``dp4a``, the instruction that adds four products of bytes to an int32."""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.plan.slots import span_bytes
from tilesmith.problems.features import SCALED, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import widest
from tilesmith.solvers.cuda.dp4a.cost import predicted_seconds
from tilesmith.solvers.cuda.dp4a.draft import dp4a_draft
from tilesmith.solvers.cuda.dp4a.tile import Dp4aTile
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
from tilesmith.targets.target import CudaTarget

_MAX_TAPS = 128
_MAX_INDEX = 2**31 - 1


class Dp4aSolver(Unranked):
    """Forward depthwise convolution, int8 by int8: int32 results, or int8 ones by a scale.

    Channels are contiguous and a multiple of 4, and every other stride of x and y is a multiple of 4 too.
    """

    name = "cuda_dp4a_depthwise"
    revision = 1
    features = SCALED | (WINDOW - {"depth"}) | {
        "fwd", "groups", "deterministic", "pitch", "acc=int32", "bias", "relu", "clamp",
    }  # fmt: skip
    axes = (
        Axis("channels_per_thread", (4, 8, 16), "Channels of a thread, which move at once."),
        Axis("rows_per_thread", (1, 2, 4), "Rows of the results of a thread."),
        Axis("columns_per_thread", (1, 2, 4, 8), "Results of each of its rows."),
        Axis("threads", (64, 128, 256), "Threads of a block."),
    )

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        g = problem
        if not isinstance(g, ConvGeometry) or g.groups != g.c or g.groups != g.k:
            return Rejected(reasons.GROUPS, "not depthwise")
        if (g.x.dtype, g.w.dtype) != ("int8", "int8"):
            return Rejected(reasons.DTYPE, f"{g.x.dtype} x {g.w.dtype}")
        if g.y.dtype not in ("int32", "int8") or (g.y.dtype == "int8") != g.epilogue.is_scaled:
            return Rejected(reasons.DTYPE, f"{g.y.dtype} results, scale {g.epilogue.scale}")
        if not g.epilogue.is_scaled and not g.epilogue.is_identity:
            return Rejected(reasons.EPILOGUE, "int32 results have none")
        # Elements: those of int8 are bytes.
        spans = (span_bytes("int8", view.shape, view.strides) for view in (g.x, g.y))
        if g.filter[1] * g.filter[2] > _MAX_TAPS or max(spans) > _MAX_INDEX:
            return Rejected(reasons.SIZE)
        if vector_of(g) < 4:
            return Rejected(reasons.LAYOUT, "channels are not contiguous by fours")
        return Accepted()

    @remembered
    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        assert isinstance(problem, ConvGeometry)
        g = problem
        return SearchSpace(values_of(self.axes), lambda config: Dp4aTile(g, config, target).fits(vector_of(g)))

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        """The config that is predicted fastest."""
        space = self.search_space(problem, target)
        points = [Config(())]
        for name, values in space.axes.items():
            points = [Config((*point.values, (name, value))) for point in points for value in values]
        return min(filter(space.allowed, points), key=lambda config: self.predict(problem, config, target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        assert isinstance(problem, ConvGeometry)
        return predicted_seconds(Dp4aTile(problem, config, target))

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        assert isinstance(problem, ConvGeometry)
        return dp4a_draft(Dp4aTile(problem, config, target))


def vector_of(g: ConvGeometry) -> int:
    """The most channels that x and y can move at once, up to 16; fewer than 4 where the kernel cannot read them."""
    strides = [g.c]
    for view in (g.x, g.y):
        if view.strides[1] != 1:
            return 1
        sizes, steps = (view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:])
        strides += [step for size, step in zip(sizes, steps, strict=True) if size > 1]
    return widest(16, strides)
