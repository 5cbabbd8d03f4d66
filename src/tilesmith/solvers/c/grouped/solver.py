"""Grouped and depthwise convolution and their data gradients, from channels-last tensors, for groups of any width.

Narrow groups share vectors (``common/lanes.py``); nothing is copied or padded. The filter is packed once (``prepare``).
"""

from __future__ import annotations

from math import ceil

from tilesmith.plan.records import Draft
from tilesmith.plan.slots import slot_names
from tilesmith.problems.features import EPILOGUE, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.cost import view_bytes
from tilesmith.solvers.c.common.family import (
    PACKED,
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
from tilesmith.solvers.c.common.lanes import MAX_STATEMENTS, lane_map
from tilesmith.solvers.c.grouped.cost import predicted_seconds
from tilesmith.solvers.c.grouped.size import MOST
from tilesmith.solvers.c.grouped.text import pack_body, run_body
from tilesmith.solvers.c.grouped.tile import GroupedTile, grouped_tile
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import cpu_fit_of
from tilesmith.targets.target import CpuTarget

# Results of a tile that writes half lines past the caches: see notes.md.
_COLLECTED = 6

AXES = (
    Axis("tile_h", (1, 2, 3, 4, 5, 6, 7, 8), "Rows of pixels of a tile."),
    Axis("tile_w", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), "Pixels of each of its rows."),
    Axis("vectors", (1, 2, 3, 4), "Vectors of output channels of a tile, where a group fills some."),
    Axis("item_blocks", (), "Blocks of channels of an item, which one thread computes."),
    Axis("stream_stores", (0, 1), "1: stores pass the caches by."),
    Axis("prefetch", (0, 1), "1: the next strip's inputs are fetched early."),
)
_SMALLEST = Config(
    (("tile_h", 1), ("tile_w", 1), ("vectors", 1), ("item_blocks", 1), ("stream_stores", 0), ("prefetch", 0))
)


class GroupedSolver(Family[GroupedTile]):
    """``fwd`` and ``bwd`` with more than one group, neither depthwise nor of one channel a side."""

    name = "c_grouped"
    op = "grouped"
    revision = 6
    features = USUAL | EPILOGUE | WINDOW | {"fwd", "bwd", "groups"}
    axes = AXES
    directions = ("fwd", "bwd")

    def covers(self, problem: ConvGeometry) -> bool:
        """Which group widths are this solver's."""
        return problem.groups > 1 and problem.groups not in (problem.c, problem.k)

    @remembered
    def refusal(self, problem: ConvGeometry, target: CpuTarget) -> Rejected | None:
        if not self.covers(problem):
            return Rejected(reasons.GROUPS, f"{problem.c}->{problem.k} in {problem.groups} groups")
        return (
            not_channels_last_floats(problem)
            or rows_too_long(problem, self.tile(problem, _SMALLEST, target).zero_row)
            or too_many_tiles(problem, self.search_space(problem, target), _SMALLEST)
        )

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        narrowest = lane_map(convolution(problem), target, 1)
        wide, most = narrowest.splat, ceil(narrowest.outer / narrowest.width)

        def allowed(config: Config) -> bool:
            t = self.tile(problem, config, target)
            cells, vectors = t.rows * t.columns, t.lanes.vectors
            return (
                cells * vectors + (2 + vectors if wide else 3) <= target.vector_registers
                and (not t.stream or cells <= _open_lines(target))
                and config["vectors"] <= (most if wide else 1)
                and (t.stored_bytes <= MOST or (cells == 1 and t.products <= MAX_STATEMENTS))
            )

        axes = values_of(AXES) | {
            "vectors": (1, 2, 3, 4) if wide else (1,), "item_blocks": narrowest.chunks,
            "prefetch": (0,) if wide else (0, 1),
        }  # fmt: skip
        return SearchSpace(axes, allowed)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        """The best prediction among tiles of all shapes, with the chunk and stores that the sizes call for."""
        space = self.search_space(problem, target)
        # A large result would be gone from the caches before anybody reads it, and a large input is not in them.
        plain = self.tile(problem, _SMALLEST, target)
        large = view_bytes(plain.x) + view_bytes(plain.y) > target.l3_bytes // 8
        ahead = int(large and 1 in space.axes["prefetch"])
        found = []
        for nv in space.axes["vectors"]:
            t = self.tile(problem, _SMALLEST.replace(vectors=nv), target)
            chunk = _chunk(t, space.axes["item_blocks"])
            stream = int(large and _worth_streaming(t))
            for rows in (1, 2, 3, 4, 6):
                for cols in (1, 2, 3, 4, 5, 6, 7, 8, 12, 14):
                    config = _SMALLEST.replace(
                        tile_h=rows, tile_w=cols, vectors=nv, item_blocks=chunk, stream_stores=stream, prefetch=ahead
                    )
                    if space.allowed(config):
                        found.append(config)
        return min(found, key=lambda config: self.predict(problem, config, target), default=_SMALLEST)

    def tile(self, problem: Geometry, config: Config, target: CpuTarget) -> GroupedTile:
        return grouped_tile(convolution(problem), config, target)

    def seconds(self, tile: GroupedTile) -> float:
        return predicted_seconds(tile, cpu_fit_of(tile.target).grouped)

    def kernels(self, tile: GroupedTile, tag: str) -> Draft:
        t, problem, x = tile, tile.problem, tile.x.dtype
        items = problem.n * t.items_per_image
        others = (slot(i) for i in range(2, len(slot_names(problem))))
        turn = items_a_turn(items, t.target)
        run = Kernel(self.op + problem.direction, x, run_body(t), items, (slot(0), PACKED, *others), turn)
        pack = Kernel(self.op + "pack", x, pack_body(t), t.lanes.blocks, (slot(1), PACKED))
        return assembled(t.target, tag, [run], [pack], packed=t.packed_bytes, in_place=True)


class DepthwiseSolver(GroupedSolver):
    """``groups`` equals the input or the output channels: any channel multiplier. Only the best tiles differ."""

    name = "c_depthwise"
    op = "depthwise"

    def covers(self, problem: ConvGeometry) -> bool:
        return problem.groups > 1 and problem.groups in (problem.c, problem.k)


def _open_lines(target: CpuTarget) -> int:
    """Results of a tile that streaming stores may write; 0 where there are none."""
    if target.vector_bytes < 32:
        return 0
    return _COLLECTED if target.vector_bytes < 64 else target.vector_registers


def _worth_streaming(t: GroupedTile) -> bool:
    """Whether stores that pass the caches by fill their lines soon: at once, or within a depthwise sum."""
    return t.target.vector_bytes >= 64 or (t.target.vector_bytes >= 32 and t.lanes.steps == 1)


def _chunk(t: GroupedTile, values: tuple[int, ...]) -> int:
    """As many channel blocks an item as their weights fit the first-level cache, and threads find enough items."""
    blocks, cores = t.lanes.blocks, t.target.cores
    fit = [value for value in values if value == 1 or value * t.block_bytes <= t.target.l1_bytes // 2]
    fit = [value for value in fit if value <= blocks] or [1]
    strips = t.problem.n * -(-t.y.shape[3] // 4)
    while len(fit) > 1 and cores > 1 and strips * -(-blocks // fit[-1]) < 4 * cores:
        fit.pop()
    return fit[-1]
