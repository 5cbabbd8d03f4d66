"""Weight gradient of depthwise convolutions and of narrow groups."""

from __future__ import annotations

from tilesmith.plan.records import Draft, Integer
from tilesmith.problems.features import USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.family import (
    WORKSPACE,
    Family,
    Kernel,
    assembled,
    convolution,
    items_a_turn,
    not_channels_last_floats,
    rows_too_long,
    slot,
    too_many_tiles,
)
from tilesmith.solvers.c.common.lanes import MAX_STATEMENTS
from tilesmith.solvers.c.wrw_grouped.cost import predicted_seconds
from tilesmith.solvers.c.wrw_grouped.text import reduce_body, run_body
from tilesmith.solvers.c.wrw_grouped.tile import WrwGroupedTile, narrow_lanes, wrw_grouped_tile
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import cpu_fit_of
from tilesmith.targets.target import CpuTarget

_MAX_PARTIAL = 64 * 1024 * 1024

AXES = (
    Axis("sums", (4, 6, 9, 12, 16, 20, 25, 27), "Taps that are summed at once."),
    Axis("tile_w", (1, 2, 3, 4, 5, 6, 7, 8), "Pixels of dy that are held at once."),
    Axis("item_blocks", (), "Blocks of channels of an item, which one thread computes."),
    Axis("split_n", (1, 2, 4, 8, 16, 32, 64), "Shares of the rows, whose sums a second kernel adds."),
)
_SMALLEST = Config((("sums", 4), ("tile_w", 1), ("item_blocks", 1), ("split_n", 1)))


class WrwGroupedSolver(Family[WrwGroupedTile]):
    """``wrw`` with several groups in a vector, from channels-last tensors to a filter of any layout."""

    name = "c_wrw_grouped"
    revision = 2
    features = USUAL | WINDOW | {"wrw", "groups"}
    axes = AXES
    directions = ("wrw",)

    @remembered
    def refusal(self, problem: ConvGeometry, target: CpuTarget) -> Rejected | None:
        if problem.groups == 1 or narrow_lanes(problem, target).splat:
            return Rejected(reasons.GROUPS, f"{problem.c}->{problem.k} in {problem.groups} groups")
        return (
            not_channels_last_floats(problem)
            or rows_too_long(problem, self.tile(problem, _SMALLEST, target).zero_row)
            or too_many_tiles(problem, self.search_space(problem, target), _SMALLEST)
        )

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        def allowed(config: Config) -> bool:
            t = self.tile(problem, config, target)
            return (
                config["sums"] + config["tile_w"] + 3 <= target.vector_registers + 1
                and config["split_n"] <= max(1, t.rows)
                and t.statements <= MAX_STATEMENTS
                and t.partial_bytes <= _MAX_PARTIAL
            )

        chunks = narrow_lanes(convolution(problem), target).chunks
        return SearchSpace(values_of(AXES) | {"item_blocks": chunks}, allowed)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        space = self.search_space(problem, target)
        rows = self.tile(problem, _SMALLEST, target).rows
        splits = 1
        while target.cores > 1 and splits < 8 * target.cores and splits * 2 <= min(64, rows):
            splits *= 2
        least = _SMALLEST.replace(split_n=splits)
        candidates = [
            least.replace(sums=a, tile_w=b, item_blocks=c)
            for a in space.axes["sums"]
            for b in space.axes["tile_w"][:6]
            for c in (1, space.axes["item_blocks"][-1])
        ]
        allowed = [config for config in candidates if space.allowed(config)]
        return min(allowed, key=lambda config: self.predict(problem, config, target), default=least)

    def tile(self, problem: Geometry, config: Config, target: CpuTarget) -> WrwGroupedTile:
        return wrw_grouped_tile(convolution(problem), config, target)

    def seconds(self, tile: WrwGroupedTile) -> float:
        return predicted_seconds(tile, cpu_fit_of(tile.target).wrw)

    def kernels(self, tile: WrwGroupedTile, tag: str) -> Draft:
        problem, blocks, splits = tile.problem, tile.lanes.blocks, Integer(tile.splits)
        arguments = (slot(0), slot(1), WORKSPACE, Integer(tile.rows), splits)
        run = Kernel("wrwgrouped", problem.x.dtype, run_body(tile), tile.splits * tile.chunks, arguments)
        fold = Kernel(
            "wrwgroupedsum", problem.w.dtype, reduce_body(tile), blocks, (WORKSPACE, slot(2), splits),
            items_a_turn(blocks, tile.target),
        )  # fmt: skip
        return assembled(tile.target, tag, [run, fold], workspace=tile.partial_bytes)
