"""From a grouped problem and a config to every number that the kernels' text holds.

An item is one strip of result rows and one chunk of channel blocks in one image; it runs over all columns. The batch
size is the number of items alone, so one kernel serves every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.c.common.axis import AxisPhase, Columns, axis_phases, column_tiles, zero_row
from tilesmith.solvers.c.common.lanes import LaneMap, lane_map, source_and_result
from tilesmith.solvers.c.grouped.size import MOST, TextSize, rounding, sharing, stored_bytes, text_size
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CpuTarget


@dataclass(frozen=True)
class Row:
    """An input row that a tile reads: its place relative to the tile, and the (result row, filter row) it meets."""

    depth: int
    height: int
    users: tuple[tuple[int, int], ...]  # filter row = t * R + r


@dataclass(frozen=True)
class Run:
    """``count`` input rows from row ``first`` on: row ``first + i`` meets ``users``, ``step * i`` filter rows on."""

    first: int
    users: tuple[tuple[int, int], ...]
    count: int
    step: int


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

    def runs(self, filter_height: int) -> tuple[Run, ...]:
        """The input rows of the first depth; those of depth ``i`` meet ``depth_step(filter_height) * i`` rows on."""
        rows = self.input_rows(filter_height)
        found: list[Run] = []
        for at, row in enumerate(rows[: len(rows) // max(1, len(self.depth.taps))]):
            last = found[-1] if found else None
            step = _step(rows[at - 1].users, row.users) if last else None
            if last and step is not None and step == (last.step or step):
                found[-1] = Run(last.first, last.users, last.count + 1, step)
            else:
                found.append(Run(at, row.users, 1, 0))
        return tuple(found)

    def in_text(self, filter_height: int, looped: bool) -> tuple[int, int]:
        """Pairs of a result row and a filter row in the text of a tile, and input rows in it."""
        if looped:
            runs = self.runs(filter_height)
            return sum(len(run.users) for run in runs), len(runs)
        depths = len(self.depth.taps)
        return depths * len(self.height.taps) * self.rows, depths * len(self.height.positions(self.rows))

    def depth_step(self, filter_height: int) -> int:
        """Filter rows from one depth of the filter that takes part to the next: they are evenly spaced."""
        taps = self.depth.taps
        return (taps[1].index - taps[0].index) * filter_height if len(taps) > 1 else 0


def _step(before: tuple[tuple[int, int], ...], after: tuple[tuple[int, int], ...]) -> int | None:
    """By how many filter rows the second row's users are ahead of the first's; None where they are others, or by 0."""
    steps = {b - a for (_, a), (_, b) in zip(before, after, strict=False)}
    same = [i for i, _ in before] == [i for i, _ in after]
    return steps.pop() or None if same and len(steps) == 1 else None


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
        """Elements of the zeros that are read in place of rows outside the image, and in compact texts of columns."""
        if not self.zero_products:
            return 0
        return max(zero_row(self.problem), self.problem.c if self.compact else 0)

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

    @cached_property
    def compact(self) -> bool:
        """Whether the text loops over input rows, and over column tiles at the image's borders."""
        return self._stored_bytes(compact=False, looped=False) > MOST

    @cached_property
    def results_looped(self) -> bool:
        """Whether the text loops over results as well, which makes tiles of small filters slower.

        The estimate of texts that do not is furthest off, hence the margin.
        """
        return self.compact and self._stored_bytes(compact=True, looped=False) > 0.93 * MOST

    @property
    def stored_bytes(self) -> float:
        """About what the kernel adds to a package."""
        return self._stored_bytes(self.compact, self.results_looped)

    @property
    def products(self) -> int:
        """Multiply-adds in the kernel's text."""
        return self._size(self.compact).products

    def column_tiles(self, width: AxisPhase) -> list[list[Columns]]:
        """The column tiles of each text."""
        return sharing(column_tiles(width, self.columns, self.compact), self.compact)

    def _size(self, compact: bool) -> TextSize:
        return text_size(self.lanes, self.strips, self.widths, self.columns, self.problem.filter[1], compact)

    def _stored_bytes(self, compact: bool, looped: bool) -> float:
        rounded, activation = rounding(self.y.dtype, self.target), self.problem.epilogue.activation
        return stored_bytes(self._size(compact), self.lanes, rounded, activation, compact, looped)


def grouped_tile(problem: ConvGeometry, config: Config, target: CpuTarget) -> GroupedTile:
    value = dict(config.values)
    return GroupedTile(
        problem, target, lane_map(problem, target, value["vectors"]), value["tile_h"], value["tile_w"],
        value["item_blocks"], bool(value["stream_stores"]), bool(value["prefetch"]),
    )  # fmt: skip
