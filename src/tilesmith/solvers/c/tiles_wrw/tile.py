"""From a problem and a config to every number that the generated text holds.

Results of one image and plane of depth are one line of pixels: rows of dy with zeros behind them, as long as rows of a
plane of x. x, with zeros around it, has a plane for each residue of rows and columns modulo the stride, so that every
tap of every result lies a constant number of pixels from it. dy is turned, its pixels contiguous for each channel; x
has pairs of neighbouring pixels, once for even and once for odd distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.c.common.tile_registers import DEEP, REGISTER, WIDE
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CpuTarget

NOTE_BYTES = 64  # the workspace begins with a note: int32 1 if an element of x or dy is not finite


@dataclass(frozen=True)
class Shift:
    """Where a tap of the window's plane lies: its plane of x, by residues; even or odd; and its distance in pixels."""

    plane: int
    odd: int
    pixels: int


@dataclass(frozen=True)
class WrwTiles:
    """A config applied to a problem. A tile is ``tiles_m`` x 16 channels of dy times ``tiles_n`` x 16 of x."""

    problem: ConvGeometry
    config: Config
    target: CpuTarget

    @cached_property
    def tiles_m(self) -> int:
        return self.config["tiles_m"]

    @cached_property
    def tiles_n(self) -> int:
        return self.config["tiles_n"]

    @cached_property
    def channels(self) -> tuple[int, int]:
        """Of one group: dy's and x's."""
        g = self.problem
        return g.k // g.groups, g.c // g.groups

    @cached_property
    def planes(self) -> tuple[int, int]:
        """Residues of rows and of columns that some tap reads."""
        return self.problem.stride[1], self.problem.stride[2]

    @cached_property
    def plane_size(self) -> tuple[int, int]:
        """Rows and columns of a plane of x; an even number of columns, so that rows begin with whole pairs."""
        g = self.problem
        rows, cols = (
            -(-((g.output[i] - 1) * g.stride[i] + (g.filter[i] - 1) * g.dilation[i] + 1) // g.stride[i]) for i in (1, 2)
        )
        return rows, cols + cols % 2

    @cached_property
    def shifts(self) -> tuple[Shift, ...]:
        """Of the taps of a plane of the window, row by row."""
        g, (_, cols) = self.problem, self.plane_size
        found = []
        for r in range(g.filter[1]):
            for s in range(g.filter[2]):
                (down, ry), (right, rx) = (divmod(t * g.dilation[i], g.stride[i]) for i, t in ((1, r), (2, s)))
                found.append(Shift(ry * g.stride[2] + rx, right % 2, down * cols + right))
        return tuple(found)

    @cached_property
    def sets(self) -> tuple[tuple[int, int], ...]:
        """The pairs of pixels that are made: of which plane, and whether from odd ones on."""
        return tuple(sorted({(shift.plane, shift.odd) for shift in self.shifts}))

    @cached_property
    def line(self) -> int:
        """Pixels of dy's line, in whole instructions."""
        return -(-self.problem.output[1] * self.plane_size[1] // DEEP) * DEEP

    @cached_property
    def pairs(self) -> int:
        """Pairs of a set: those that the last tap of the last results reads are there."""
        return (self.line + max(shift.pixels for shift in self.shifts)) // 2 + 1

    @cached_property
    def x_channels(self) -> int:
        """Of all groups, in whole registers beyond the last group's first."""
        return self.problem.c + WIDE * self.tiles_n

    @cached_property
    def dy_channels(self) -> int:
        return self.problem.k + WIDE * self.tiles_m

    @cached_property
    def dy_bytes(self) -> int:
        """Of dy's lines, for all images and planes of depth."""
        g = self.problem
        return 2 * g.n * g.output[0] * self.dy_channels * self.line

    @cached_property
    def x_bytes(self) -> int:
        g = self.problem
        return 4 * g.n * g.input[0] * len(self.sets) * self.pairs * self.x_channels

    @cached_property
    def workspace_bytes(self) -> int:
        return self.x_offset + self.x_bytes

    @cached_property
    def x_offset(self) -> int:
        """Where the pairs lie in the workspace, behind the note and dy's lines."""
        return NOTE_BYTES + -(-self.dy_bytes // 64) * 64

    @cached_property
    def blocks(self) -> tuple[int, int]:
        """Of one group: tiles of dy's and of x's channels."""
        k, c = self.channels
        return -(-k // (WIDE * self.tiles_m)), -(-c // (WIDE * self.tiles_n))

    @cached_property
    def taps(self) -> int:
        return prod(self.problem.filter)

    @cached_property
    def line_steps(self) -> int:
        """Instructions of a part of a line, which all taps go through; 0: each tap is an item, and has all of it."""
        return min(self.config["line_steps"], self.steps)

    @cached_property
    def items(self) -> int:
        return self.problem.groups * prod(self.blocks) * (1 if self.line_steps else self.taps)

    @cached_property
    def scratch_bytes(self) -> int:
        """The sums, and the tile registers where C stands for them."""
        waiting = self.taps if self.line_steps else 1
        return (self.tiles_m * self.tiles_n * waiting + 8) * REGISTER + 64

    @cached_property
    def steps(self) -> int:
        """Instructions of a register of sums for each image and plane of depth."""
        return self.line // DEEP
