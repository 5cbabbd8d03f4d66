"""From a dense form and a config to every number that the generated text holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilesmith.problems.geometry import Triple
from tilesmith.solvers.c.common.dense_form import Phase, Tap
from tilesmith.solvers.c.common.dense_items import NOTE_BYTES, DenseItems
from tilesmith.solvers.c.common.tile_registers import DEEP, PIXELS, REGISTER, REGISTERS, WIDE
from tilesmith.solvers.solver import cached_property

DIRECT, STRIP, ROWS = 0, 1, 2  # how x is read: as it lies, from a packed strip, or from one of the taps of each row


@dataclass(frozen=True)
class MatrixTile(DenseItems):
    """A config applied to a form. Lengths are in elements of bf16 unless they say bytes.

    A tile is ``tiles_m`` times ``tile_rows`` pixels by ``tiles_n`` times 16 channels. An item is ``item_rows`` x
    ``item_columns`` output indices of each phase, times one of ``channel_groups`` groups of channel blocks. The strip
    of an item has a plane for each residue of its rows and columns modulo the step, so that neighbouring results read
    neighbouring pixels of a plane.
    """

    # --- channels of results --------------------------------------------------------------------------------------

    @cached_property
    def nr(self) -> int:
        return WIDE * self.value["tiles_n"]

    @cached_property
    def full_blocks(self) -> int:
        """Channel blocks of ``nr``; a narrower one may follow."""
        return self.form.k // self.nr

    @cached_property
    def tail_tiles(self) -> int:
        return -(-(self.form.k % self.nr) // WIDE)

    @cached_property
    def tail_lanes(self) -> int:
        """Channels in the last tile of the narrower block."""
        return self.form.k % self.nr - (self.tail_tiles - 1) * WIDE if self.tail_tiles else 0

    def tiles_n(self, tail: bool) -> int:
        return self.tail_tiles if tail else self.value["tiles_n"]

    @cached_property
    def tails(self) -> tuple[bool, ...]:
        """Which blocks there are: full ones (False), the narrower one (True)."""
        return (False,) * (self.full_blocks > 0) + (True,) * (self.tail_tiles > 0)

    @cached_property
    def blocks(self) -> int:
        return self.full_blocks + (self.tail_tiles > 0)

    @cached_property
    def padded_k(self) -> int:
        return self.full_blocks * self.nr + self.tail_tiles * WIDE

    @cached_property
    def first_registers(self) -> tuple[int, int]:
        """The first register of pixels, and of the filter, behind those of sums: all tiles of one of the two kinds fit,
        and of the other as many as are left."""
        tiles_m, tiles_n = self.value["tiles_m"], self.value["tiles_n"]
        left = REGISTERS - tiles_m * tiles_n
        pixels = tiles_m if tiles_m <= tiles_n else min(tiles_m, left - tiles_n)
        return tiles_m * tiles_n, tiles_m * tiles_n + pixels

    # --- items ----------------------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> int:
        return min(self.value["item_rows"], self.form.count[1])

    @cached_property
    def cols(self) -> int:
        return min(self.value["item_columns"] or self.form.count[2], self.form.count[2])

    # --- where x is read ------------------------------------------------------------------------------------------

    @cached_property
    def pack(self) -> int:
        return self.value["pack"]

    @cached_property
    def taps_in_run(self) -> int:
        """Taps whose channels follow one another in a pixel of the strip."""
        return self.form.phases[0].taps_in_row if self.pack == ROWS else 1

    @cached_property
    def run(self) -> int:
        """Products of a segment that count."""
        return self.taps_in_run * self.form.c

    @cached_property
    def steps(self) -> int:
        """Instructions that reduce a segment; the strip's and the filter's last elements are zeros."""
        return -(-self.run // DEEP)

    @cached_property
    def pixel(self) -> int:
        """From one pixel of the strip to the next."""
        return self.steps * DEEP + self.value["strip_pad"]

    @cached_property
    def planes(self) -> tuple[int, int]:
        """Planes of the strip by residues of its rows, and of its columns."""
        form = self.form
        across = 1 if self.pack == ROWS else form.step[2] // form.spacing[2]
        return (form.step[1] // form.spacing[1], across)

    @cached_property
    def strip_size(self) -> Triple:
        """Depth, rows and columns of what an item reads, in positions that are read at all."""
        form, g = self.form, self.form.spacing
        span = [(form.last_tap[i] - form.first_tap[i]) // g[i] + 1 for i in range(3)]
        rows, cols = ((n - 1) * form.step[1 + i] // g[1 + i] for i, n in enumerate((self.rows, self.cols)))
        return (span[0], rows + span[1], self.cols if self.pack == ROWS else cols + span[2])

    @cached_property
    def plane_size(self) -> tuple[int, int]:
        """Rows and columns of each plane."""
        _, rows, cols = self.strip_size
        return (-(-rows // self.planes[0]), -(-cols // self.planes[1]))

    @cached_property
    def strip_bytes(self) -> int:
        if self.pack == DIRECT:
            return 0
        rows, cols = self.plane_size
        pixels = self.strip_size[0] * self.planes[0] * self.planes[1] * rows * cols
        return 2 * self.pixel * (pixels + PIXELS)  # the last tile's rows behind the last pixel are read

    def offset(self, tap: Tap) -> int:
        """Where a tap of the first result lies in what the tiles read."""
        if self.pack == DIRECT:
            return sum(a * stride for a, stride in zip(tap.at, self.form.x_strides[3:], strict=True))
        form, (down, across) = self.form, self.planes
        z, y, x = ((tap.at[i] - form.first_tap[i]) // form.spacing[i] for i in range(3))
        if self.pack == ROWS:
            x = 0
        rows, cols = self.plane_size
        plane = (z * down + y % down) * across + x % across
        return ((plane * rows + y // down) * cols + x // across) * self.pixel

    @cached_property
    def tile_step(self) -> tuple[int, int]:
        """From one output row or column to the next, in what the tiles read."""
        form = self.form
        if self.pack == DIRECT:
            return (form.step[1] * form.x_strides[4], form.step[2] * form.x_strides[5])
        return (self.plane_size[1] * self.pixel, self.pixel)

    @cached_property
    def result_step(self) -> tuple[int, int]:
        """From one output row or column of a phase to the next, in the result."""
        form = self.form
        return (form.y_strides[4] * form.out_step[1], form.y_strides[5] * form.out_step[2])

    # --- the walk over an item's pixels ---------------------------------------------------------------------------

    @cached_property
    def line(self) -> int:
        """Pixels from one output row to the next where tiles walk all rows of an item as one line, else 0."""
        return self.tile_step[0] // self.tile_step[1] if self.value["line"] else 0

    @cached_property
    def gaps(self) -> bool:
        """Whether a line's pixels are no line of results: some are none, or rows of results lie apart."""
        (down, right), width = self.result_step, self.line
        return bool(width) and (width != self.form.count[2] or down != width * right or self.cols != width)

    @cached_property
    def far(self) -> bool:
        """Whether a group of tiles asks for the next one's pixels: they lie as they are beyond the second level, in the
        order of the walk, and prefetchers do not follow tiles."""
        form = self.form
        nbytes = 2 * form.images * math.prod(form.x_size) * form.c
        in_order = form.flat or self.line > 0 or form.count[1] == 1
        return self.pack == DIRECT and in_order and nbytes > self.target.l2_bytes

    def tiles(self, rows: int, cols: int) -> int:
        """Tiles of ``rows`` x ``cols`` results."""
        if not self.line:
            return rows * -(-cols // self.value["tile_rows"])
        return -(-((rows - 1) * self.line + cols) // self.value["tile_rows"])

    # --- the packed filter ----------------------------------------------------------------------------------------

    def segments(self, phase: Phase) -> tuple[int, ...]:
        """The numbers of the taps that begin the segments of a phase."""
        return tuple(range(0, len(phase.taps), self.taps_in_run))

    def reduction(self, phase: Phase) -> int:
        """Rows of the packed filter of one phase and channel block."""
        return len(self.segments(phase)) * self.steps * DEEP

    @cached_property
    def phase_starts(self) -> tuple[int, ...]:
        """Where each phase begins in the packed filter of one group."""
        starts, at = [], 0
        for phase in self.form.phases:
            starts.append(at)
            at += self.reduction(phase) * self.padded_k
        return (*starts, at)

    @cached_property
    def filter_bytes(self) -> int:
        """The packed filter without its note."""
        return 2 * self.form.groups * self.phase_starts[-1]

    @cached_property
    def packed_bytes(self) -> int:
        return NOTE_BYTES + self.filter_bytes

    # --- scratch memory -------------------------------------------------------------------------------------------

    @cached_property
    def sum_bytes(self) -> int:
        """The sums of a tile on their way to the result, and the tile registers where C stands for them."""
        return (self.value["tiles_m"] * self.value["tiles_n"] + REGISTERS) * REGISTER + 64

    @cached_property
    def scratch_bytes(self) -> int:
        return self.sum_bytes + self.strip_bytes
