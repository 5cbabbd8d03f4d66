"""From a grouped problem and a config to every number that the kernels' text holds.

An item is one strip of result rows and one chunk of channel blocks in one image; it runs over all columns. The batch
size is the number of items alone, so one kernel serves every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.c.common.axis import AxisPhase, axis_phases, column_tiles, zero_row
from tilesmith.solvers.c.common.lanes import LaneMap, lane_map, source_and_result
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CpuTarget

# Statements above which the rows of a tile become a loop.
UNROLLED = 400


@dataclass(frozen=True)
class Row:
    """An input row that a tile reads: its place relative to the tile, and the (result row, filter row) it meets."""

    depth: int
    height: int
    users: tuple[tuple[int, int], ...]  # filter row = t * R + r


@dataclass(frozen=True)
class Strips:
    """``repeat`` strips of ``rows`` result rows from row ``first`` of a phase on, for every depth of the phase."""

    depth: AxisPhase
    height: AxisPhase
    first: int
    rows: int
    repeat: int

    @property
    def count(self) -> int:
        return self.depth.count * self.repeat

    def input_rows(self, filter_height: int) -> tuple[Row, ...]:
        """The input rows of one strip, each once."""
        height = self.height
        return tuple(
            Row(t.offset, position, tuple(
                (i, t.index * filter_height + r.index)
                for i in range(self.rows)
                for r in height.taps
                if i * height.in_step + r.offset == position
            ))
            for t in self.depth.taps
            for position in height.positions(self.rows)
        )  # fmt: skip


@dataclass(frozen=True)
class GroupedTile:
    """A config applied to a problem: a tile is ``rows`` x ``columns`` results, an item has ``chunk`` channel blocks.

    ``stream``: stores pass the caches by. ``ahead``: the next strip's inputs are fetched early.
    """

    problem: ConvGeometry
    target: CpuTarget
    lanes: LaneMap
    rows: int
    columns: int
    chunk: int
    stream: bool
    ahead: bool

    @cached_property
    def x(self) -> TensorView:
        """The tensor view that the kernel reads."""
        return source_and_result(self.problem)[0]

    @cached_property
    def y(self) -> TensorView:
        return source_and_result(self.problem)[1]

    @property
    def zero_products(self) -> bool:
        """Whether padding takes part in products, as the definition of ``fwd`` says."""
        return self.problem.direction == "fwd"

    @cached_property
    def zero_row(self) -> int:
        return zero_row(self.problem) if self.zero_products else 0

    @cached_property
    def heights(self) -> tuple[AxisPhase, ...]:
        return axis_phases(self.problem, 1)

    @cached_property
    def widths(self) -> tuple[AxisPhase, ...]:
        return axis_phases(self.problem, 2)

    @cached_property
    def strips(self) -> tuple[Strips, ...]:
        """The strips of one image: whole ones, and one of the rows that are left, for each phase."""
        found = []
        for depth, height in product(axis_phases(self.problem, 0), self.heights):
            whole = height.count // self.rows * self.rows
            if whole:
                found.append(Strips(depth, height, 0, self.rows, height.count // self.rows))
            if whole < height.count:
                found.append(Strips(depth, height, whole, height.count - whole, 1))
        return tuple(found)

    @property
    def chunks(self) -> int:
        return -(-self.lanes.blocks // self.chunk)

    @cached_property
    def items_per_image(self) -> int:
        return sum(s.count for s in self.strips) * self.chunks

    @property
    def taps(self) -> int:
        return prod(self.problem.filter)

    @property
    def block_vectors(self) -> int:
        """Vectors of the packed filter of one block."""
        return self.taps * self.lanes.steps * self.lanes.vectors

    @property
    def block_bytes(self) -> int:
        return self.block_vectors * self.lanes.width * 4

    @property
    def packed_bytes(self) -> int:
        return self.lanes.blocks * self.block_bytes

    @property
    def statements(self) -> int:
        """Multiply-adds in the kernel's text, counting rows that become a loop once."""
        lanes, total = self.lanes, 0
        steps = (2 if lanes.pairs and lanes.inner % 2 else 1) if lanes.splat else lanes.steps
        for p in self.widths:
            column = len(p.taps) * steps * lanes.vectors
            columns = sum(tile.width for tile in column_tiles(p, self.columns)) * column
            for kind in self.strips:
                rows = len(kind.depth.taps) * len(kind.height.taps) * kind.rows
                looped = kind.rows == 1 and rows * min(self.columns, p.count) * column > UNROLLED
                total += columns * (1 if looped else rows)
        return total * (2 if lanes.tail else 1)


def grouped_tile(problem: ConvGeometry, config: Config, target: CpuTarget) -> GroupedTile:
    value = dict(config.values)
    return GroupedTile(
        problem, target, lane_map(problem, target, value["vectors"]), value["tile_h"], value["tile_w"],
        value["item_blocks"], bool(value["stream_stores"]), bool(value["prefetch"]),
    )  # fmt: skip
