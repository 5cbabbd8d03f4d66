"""From a weight gradient of narrow groups and a config to every number that the text holds."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.c.common.axis import AxisPhase, axis_phases, column_tiles, zero_row
from tilesmith.solvers.c.common.lanes import LaneMap, groups_per_vector
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CpuTarget

Cell = tuple[int, int, int]  # filter row t * R + r, filter column s, step (channel of the group)


@dataclass(frozen=True)
class WrwGroupedTile:
    """``passes`` are the taps summed at once; an item is a share of the rows and ``chunk`` blocks of channels."""

    problem: ConvGeometry
    target: CpuTarget
    lanes: LaneMap
    cols: int
    passes: tuple[tuple[Cell, ...], ...]
    chunk: int
    splits: int

    @cached_property
    def cells(self) -> int:
        """Sums of one lane."""
        return sum(len(cells) for cells in self.passes)

    @property
    def rows(self) -> int:
        """Output rows of all images."""
        return self.problem.n * self.problem.output[0] * self.problem.output[1]

    @property
    def chunks(self) -> int:
        return -(-self.lanes.blocks // self.chunk)

    @property
    def block(self) -> int:
        """Sums of one block of channels."""
        return self.cells * self.lanes.width

    @property
    def partial_bytes(self) -> int:
        return 4 * self.splits * self.lanes.blocks * self.block

    @cached_property
    def width(self) -> AxisPhase:
        return axis_phases(self.problem, 2)[0]

    @property
    def statements(self) -> int:
        """Multiply-adds in the kernel's text."""
        columns = sum(tile.width for tile in column_tiles(self.width, self.cols))
        return columns * self.cells * (2 if self.lanes.tail else 1)

    @cached_property
    def zero_row(self) -> int:
        return zero_row(self.problem)


def narrow_lanes(problem: ConvGeometry, target: CpuTarget) -> LaneMap:
    """The lanes of ``wrw``: result channels of the filter, everything in fp32."""
    inner, outer, width = problem.c // problem.groups, problem.k // problem.groups, target.lanes(4)
    share = groups_per_vector(problem.groups, inner, outer, width, False)
    return LaneMap(problem.groups, inner, outer, width, share, 1, False)


def wrw_grouped_tile(problem: ConvGeometry, config: Config, target: CpuTarget) -> WrwGroupedTile:
    lanes = narrow_lanes(problem, target)
    parts = passes(problem.filter, lanes.steps, config["sums"])
    return WrwGroupedTile(
        problem, target, lanes, config["tile_w"], parts, config["item_blocks"], config["split_n"]
    )  # fmt: skip


def passes(filter_: tuple[int, int, int], steps: int, budget: int) -> tuple[tuple[Cell, ...], ...]:
    """The taps in parts of at most ``budget`` sums, whole filter rows where they fit."""
    depth, height, width = filter_
    rows = range(depth * height)
    one_row = width * steps
    if one_row <= budget:
        many = budget // one_row
        parts = [rows[i : i + many] for i in range(0, len(rows), many)]
        return tuple(tuple((r, s, c) for r in part for s in range(width) for c in range(steps)) for part in parts)
    cells = [(s, c) for s in range(width) for c in range(steps)]
    return tuple(tuple((r, s, c) for s, c in cells[i : i + budget]) for r in rows for i in range(0, one_row, budget))
