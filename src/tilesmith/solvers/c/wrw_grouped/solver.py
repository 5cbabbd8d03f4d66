"""Weight gradient of depthwise convolutions and of narrow groups."""

from __future__ import annotations

from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Space
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.features import USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.schedule import items_a_turn
from tilesmith.solvers.c.grouped.lanes import LaneMap, groups_per_vector
from tilesmith.solvers.c.wrw.cost import grouped_seconds
from tilesmith.solvers.c.wrw_grouped import text
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
from tilesmith.targets.fits.choose import cpu_fit_of
from tilesmith.targets.target import CpuTarget

_DTYPES = ("fp32", "bf16", "fp16")
_MAX_STATEMENTS = 12_000
_MAX_ZERO_ROW = 4 * 1024 * 1024
_MAX_PARTIAL = 64 * 1024 * 1024

AXES = (
    Axis("sums", (4, 6, 9, 12, 16, 20, 25, 27), "Taps that are summed at once."),
    Axis("tile_w", (1, 2, 3, 4, 5, 6, 7, 8), "Pixels of dy that are held at once."),
    Axis("item_blocks", (), "Blocks of channels of an item, which one thread computes."),
    Axis("split_n", (1, 2, 4, 8, 16, 32, 64), "Shares of the rows, whose sums a second kernel adds."),
)


class WrwGroupedSolver(Unranked):
    """``wrw`` with several groups in a vector, from channels-last tensors to a filter of any layout."""

    name = "c_wrw_grouped"
    revision = 1
    features = USUAL | WINDOW | {"wrw", "groups"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if problem.direction != "wrw":
            return Rejected(reasons.DIRECTION, problem.direction)
        if problem.groups == 1 or _lanes(problem, target).splat:
            return Rejected(reasons.GROUPS, f"{problem.c}->{problem.k} in {problem.groups} groups")
        names = (problem.x.dtype, problem.w.dtype, problem.y.dtype)
        if problem.acc_dtype != "fp32" or any(name not in _DTYPES for name in names):
            return Rejected(reasons.DTYPE, " ".join((*names, problem.acc_dtype)))
        if not (problem.x.channels_last and problem.y.channels_last):
            return Rejected(reasons.LAYOUT, "channels are not contiguous")
        if problem.w.vector > 1:
            return Rejected(reasons.LAYOUT, "vector filter layout")
        least = Config((("sums", 4), ("tile_w", 1), ("item_blocks", 1), ("split_n", 1)))
        tiling = _tiling(problem, least, target)
        if tiling.zero_row * dtype(problem.x.dtype).nbytes > _MAX_ZERO_ROW:
            return Rejected(reasons.SIZE, f"rows of {problem.input[2]} x {problem.c}")
        if not self.search_space(problem, target).allowed(least):
            return Rejected(reasons.FILTER, f"{problem.filter} with stride {problem.stride}: too many different tiles")
        return Accepted()

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        assert isinstance(problem, ConvGeometry)
        blocks = _lanes(problem, target).blocks
        chunks = sorted({1, *(n for n in (2, 4, 8, 16, 32, 64) if n < blocks), blocks})

        def allowed(config: Config) -> bool:
            tiling = _tiling(problem, config, target)
            return (
                config["sums"] + config["tile_w"] + 3 <= target.vector_registers + 1
                and config["split_n"] <= max(1, problem.n * problem.output[0] * problem.output[1])
                and tiling.statements <= _MAX_STATEMENTS
                and tiling.partial_bytes <= _MAX_PARTIAL
            )

        return SearchSpace(values_of(AXES) | {"item_blocks": tuple(chunks)}, allowed)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        assert isinstance(problem, ConvGeometry)
        space = self.search_space(problem, target)
        rows = problem.n * problem.output[0] * problem.output[1]
        splits = 1
        while target.cores > 1 and splits < 8 * target.cores and splits * 2 <= min(64, rows):
            splits *= 2
        least = Config((("sums", 4), ("tile_w", 1), ("item_blocks", 1), ("split_n", splits)))
        candidates = [
            least.replace(sums=a, tile_w=b, item_blocks=c)
            for a in space.axes["sums"]
            for b in space.axes["tile_w"][:6]
            for c in (1, space.axes["item_blocks"][-1])
        ]
        allowed = [config for config in candidates if space.allowed(config)]
        return min(allowed, key=lambda config: self.predict(problem, config, target), default=least)

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        assert isinstance(problem, ConvGeometry)
        return grouped_seconds(_tiling(problem, config, target), target, cpu_fit_of(target).wrw)

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        assert isinstance(problem, ConvGeometry)
        t = _tiling(problem, config, target)
        prelude = c_prelude(target)
        tile = "x".join(str(value) for _, value in config.values)
        run = make_source("c", "wrwgrouped", problem.x.dtype, tile, target.arch, prelude, text.run_body(t))
        fold = make_source("c", "wrwgroupedsum", problem.w.dtype, tile, target.arch, prelude, text.reduce_body(t))
        sums = Pointer(Space.WORKSPACE)
        rows = problem.n * problem.output[0] * problem.output[1]
        return Draft(
            sources=(run, fold),
            run=(
                Launch(
                    0, run.symbol, (t.splits * t.chunks, 1, 1),
                    (Pointer(Space.SLOT, 0), Pointer(Space.SLOT, 1), sums, Integer(rows), Integer(t.splits)),
                ),
                Launch(
                    1, fold.symbol, (t.lanes.blocks, 1, 1), (sums, Pointer(Space.SLOT, 2), Integer(t.splits)),
                    block=(items_a_turn(t.lanes.blocks, target), 1, 1),
                ),
            ),
            workspace_bytes=t.partial_bytes,
        )  # fmt: skip


def _lanes(problem: ConvGeometry, target: CpuTarget) -> LaneMap:
    inner, outer, width = problem.c // problem.groups, problem.k // problem.groups, target.lanes(4)
    share = groups_per_vector(problem.groups, inner, outer, width, False)
    return LaneMap(problem.groups, inner, outer, width, share, 1, False)


def _tiling(problem: ConvGeometry, config: Config, target: CpuTarget) -> text.WrwGroupedTiling:
    lanes = _lanes(problem, target)
    parts = text.passes(problem.filter, lanes.steps, config["sums"])
    return text.WrwGroupedTiling(problem, lanes, config["tile_w"], parts, config["item_blocks"], config["split_n"])
