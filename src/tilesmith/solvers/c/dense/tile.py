"""From a dense form and a config to every number that the generated text holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilesmith.problems.geometry import Triple
from tilesmith.solvers.c.common.dense_form import Phase, tap_lines, uses_dot
from tilesmith.solvers.c.common.dense_items import NOTE_BYTES, DenseItems
from tilesmith.solvers.c.common.text import CACHE_LINE
from tilesmith.solvers.solver import cached_property

DIRECT, STRIP = 0, 1  # how x is read: as it lies, or from a packed strip


@dataclass(frozen=True)
class Segment:
    """Taps whose channels follow each other in the strip: ``taps[first : first + length]`` of the phase."""

    offset: int
    first: int
    length: int


@dataclass(frozen=True)
class DenseTile(DenseItems):
    """A config applied to a form. Lengths are in elements of the compute type unless they say bytes.

    A tile is ``tile_h x tile_w`` pixels times ``vectors`` vectors of channels. An item is ``item_rows`` x
    ``item_columns`` output indices of each phase, times one of ``channel_groups`` groups of channel blocks.
    """

    # --- sizes of a tile ------------------------------------------------------------------------------------------

    @cached_property
    def dot(self) -> bool:
        return uses_dot(self.form, self.target)

    @cached_property
    def element(self) -> int:
        """Bytes of one element of the strip and of the packed filter."""
        return 2 if self.dot else 4

    @cached_property
    def per_step(self) -> int:
        """Products per lane and instruction: a bf16 dot takes a pair."""
        return 2 if self.dot else 1

    @cached_property
    def lanes(self) -> int:
        return self.target.lanes(4)

    @cached_property
    def nr(self) -> int:
        return self.lanes * self.value["vectors"]

    @cached_property
    def full_blocks(self) -> int:
        """Channel blocks of ``nr``; a narrower one may follow."""
        return self.form.k // self.nr

    @cached_property
    def tail_vectors(self) -> int:
        return -(-(self.form.k % self.nr) // self.lanes)

    @cached_property
    def tail_lanes(self) -> int:
        """Lanes used in the last vector of the narrower block."""
        return self.form.k % self.nr - (self.tail_vectors - 1) * self.lanes if self.tail_vectors else 0

    def vectors(self, tail: bool) -> int:
        """Vectors of a full or of the narrower block."""
        return self.tail_vectors if tail else self.value["vectors"]

    @cached_property
    def tails(self) -> tuple[bool, ...]:
        """Which blocks there are: full ones (False), the narrower one (True)."""
        return (False,) * (self.full_blocks > 0) + (True,) * (self.tail_vectors > 0)

    @cached_property
    def blocks(self) -> int:
        return self.full_blocks + (self.tail_vectors > 0)

    @cached_property
    def padded_k(self) -> int:
        return self.full_blocks * self.nr + self.tail_vectors * self.lanes

    @cached_property
    def cb(self) -> int:
        """Channels reduced at a time."""
        return self.value["block_c"] or self.form.c

    @cached_property
    def c_blocks(self) -> int:
        return self.form.c // self.cb

    # --- items ----------------------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> int:
        return min(self.value["item_rows"], self.form.count[1])

    @cached_property
    def cols(self) -> int:
        """Whole tiles, but for the last item of a row."""
        width = self.form.count[2]
        wanted = min(self.value["item_columns"] or width, width)
        return wanted if wanted == width else max(1, wanted // self.mw) * self.mw

    @cached_property
    def mh(self) -> int:
        return min(self.value["tile_h"], self.rows)

    @cached_property
    def mw(self) -> int:
        return min(self.value["tile_w"], self.form.count[2])

    @cached_property
    def one_line(self) -> bool:
        """Whether the rows of an item are one line of pixels, in the strip and in the result: tiles then go on from
        one row to the next, and only the item's last one is narrow."""
        form = self.form
        single = len(form.phases) == 1 and len(form.taps) == 1 and form.step == form.spacing and not form.has_halo
        whole = self.cols == form.count[2] and form.y_strides[4] == form.count[2] * form.y_strides[5]
        return self.pack == STRIP and single and whole and form.out_step == (1, 1, 1) and form.count[1] > 1

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Heights of tiles, largest first; taking the largest that fits covers every item."""
        if self.one_line:
            return (1,)
        counts = {phase.count[1] for phase, _ in self.form.kinds}
        return _tile_sizes(self.mh, {n for count in counts for n in _lengths(count, self.rows)})

    @cached_property
    def widths(self) -> tuple[int, ...]:
        if self.one_line:
            _, height, width = self.form.count
            return _tile_sizes(self.mw, {rows * width for rows in _lengths(height, self.rows)})
        counts = {phase.count[2] for phase, _ in self.form.kinds}
        return _tile_sizes(self.mw, {n for count in counts for n in _lengths(count, self.cols)})

    # --- where x is read ------------------------------------------------------------------------------------------

    @cached_property
    def pack(self) -> int:
        return self.value["pack"]

    @cached_property
    def skips(self) -> bool:
        """Whether whole lines of taps lie above or below the input for some outputs: nothing but zeros to add."""
        return self.form.overhangs(0) or self.form.overhangs(1)

    @cached_property
    def listed(self) -> bool:
        """Whether lines are left out of several planes of taps: what is left is then no row of segments but a list."""
        lines = (tap_lines(phase) for phase, _ in self.form.kinds)
        return self.form.overhangs(1) and any(deep[0] > 1 and high[0] > 1 for deep, high in lines)

    @cached_property
    def strip_size(self) -> Triple:
        """Depth, rows and columns of the strip of one item."""
        form, g = self.form, self.form.spacing
        span = [(form.last_tap[i] - form.first_tap[i]) // g[i] + 1 for i in range(3)]
        rows, cols = ((n - 1) * form.step[1 + i] // g[1 + i] for i, n in enumerate((self.rows, self.cols)))
        return (span[0], rows + span[1], cols + span[2])

    @cached_property
    def pixel(self) -> int:
        """From one pixel of the strip to the next."""
        return self.cb + self.value["strip_pad"]

    @cached_property
    def x_pitch(self) -> Triple:
        """Steps in depth, row and column through whatever the tiles read."""
        if self.pack == DIRECT:
            d, h, w = self.form.x_strides[3:]
            return (d, h, w)
        _, h, w = self.strip_size
        return (h * w * self.pixel, w * self.pixel, self.pixel)

    @cached_property
    def tile_step(self) -> tuple[int, int]:
        """From one output row or column to the next, in what the tiles read."""
        g = (1, 1, 1) if self.pack == DIRECT else self.form.spacing
        return (self.form.step[1] // g[1] * self.x_pitch[1], self.form.step[2] // g[2] * self.x_pitch[2])

    @cached_property
    def result_step(self) -> tuple[int, int]:
        """From one output row or column of a phase to the next, in the result."""
        form = self.form
        return (form.y_strides[4] * form.out_step[1], form.y_strides[5] * form.out_step[2])

    @cached_property
    def strip_bytes(self) -> int:
        if self.pack == DIRECT:
            return 0
        d, h, w = self.strip_size
        return (d * h * w * self.pixel * self.element + 127) // 64 * 64

    @cached_property
    def tiles_a_walk(self) -> int:
        """Tiles of one phase and channel block of a whole item."""
        return -(-self.rows // self.mh) * -(-self.cols // self.mw)

    @cached_property
    def walks_a_strip(self) -> int:
        """Phases and channel blocks that read the same input before the next."""
        blocks = -(-self.blocks // self.block_groups) if self.value["groups_outer"] else self.blocks
        return blocks * len(self.form.phases)

    @cached_property
    def lines_ahead(self) -> int:
        """Cache lines of the next item's input that each tile asks for, 0 where that does not pay: see notes.md."""
        form = self.form
        in_order = form.flat or (self.cols == form.count[2] and form.count[0] == 1)
        plain = form.groups == self.c_blocks == 1 and form.spacing == form.step == (1, 1, 1)
        nbytes = self.element * form.images * math.prod(form.x_size) * form.c
        if self.pack != DIRECT or not (in_order and plain) or nbytes <= self.target.l3_bytes // 2:
            return 0
        strip = form.x_strides[5] * self.cols if form.flat else form.x_strides[4] * self.rows
        return -(-strip * self.element // (CACHE_LINE * self.walks_a_strip * self.tiles_a_walk))

    def merged(self, phase: Phase) -> bool:
        """Whether the channels of a row's taps follow each other, so that the row is one run."""
        spacing = 1 if self.pack == DIRECT else self.form.spacing[2]
        return phase.tap_spacing == 0 or phase.tap_spacing * self.x_pitch[2] == self.cb * spacing

    def taps_in_run(self, phase: Phase) -> int:
        return phase.taps_in_row if self.merged(phase) else 1

    def segment_count(self, phase: Phase) -> int:
        return len(phase.taps) // self.taps_in_run(phase)

    def segments(self, phase: Phase) -> tuple[Segment, ...]:
        """The runs of one phase; all have the same length."""
        first = self.form.first_tap
        length = self.taps_in_run(phase)
        found = []
        for number in range(0, len(phase.taps), length):
            at = phase.taps[number].at
            if self.pack != DIRECT:
                at = tuple((at[i] - first[i]) // self.form.spacing[i] for i in range(3))  # type: ignore[assignment]
            offset = sum(a * pitch for a, pitch in zip(at, self.x_pitch, strict=True))
            found.append(Segment(offset, number, length))
        return tuple(found)

    def run(self, phase: Phase) -> int:
        """Products of one segment."""
        return self.taps_in_run(phase) * self.cb if phase.taps else 0

    @cached_property
    def odd(self) -> bool:
        """Whether pairs leave one element of some run over."""
        return self.dot and any(self.run(phase) % 2 for phase, _ in self.form.kinds)

    def padded_run(self, run: int) -> int:
        return -(-run // self.per_step) * self.per_step

    @cached_property
    def unroll(self) -> int:
        """Steps of the reduction in one turn of the loop; divides every run."""
        runs = {self.run(phase) // self.per_step for phase, _ in self.form.kinds} - {0}
        return math.gcd(self.value["unroll"], *runs)

    # --- the packed filter ----------------------------------------------------------------------------------------

    def reduction(self, phase: Phase) -> int:
        """Rows of the packed filter of one phase and channel block."""
        return self.segment_count(phase) * self.padded_run(self.run(phase))

    @cached_property
    def phase_starts(self) -> tuple[int, ...]:
        """Where each phase begins in the packed filter of one group and block of reduced channels."""
        starts, at = [], 0
        for phase in self.form.phases:
            starts.append(at)
            at += self.reduction(phase) * self.padded_k
        return (*starts, at)

    @cached_property
    def filter_bytes(self) -> int:
        """The packed filter without its note."""
        elements = sum(times * self.reduction(phase) for phase, times in self.form.kinds) * self.padded_k
        return self.form.groups * self.c_blocks * elements * self.element

    @cached_property
    def packed_bytes(self) -> int:
        return NOTE_BYTES + self.filter_bytes


def _lengths(count: int, block: int) -> set[int]:
    """Lengths of the blocks that cover ``count``."""
    return {min(count, block), count % block or block} if count > block else {count}


def _tile_sizes(size: int, lengths: set[int]) -> tuple[int, ...]:
    tails = {length % size for length in lengths if length > 0} - {0}
    full = {size} if any(length >= size for length in lengths) else set()
    return tuple(sorted(full | tails, reverse=True))
