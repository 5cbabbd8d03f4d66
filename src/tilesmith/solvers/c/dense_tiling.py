"""From a dense form and a config to every number that the generated text holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tilesmith.problems.geometry import Triple
from tilesmith.solvers.c.dense_form import DenseForm, Phase, uses_dot
from tilesmith.solvers.solver import Config
from tilesmith.targets.target import Target

DIRECT, STRIP, PANEL = 0, 1, 2  # how x is read: as it lies, from a packed strip, from a packed panel (channel-major)
NOTE_BYTES = 64  # the packed filter begins with a note: int32 1 if an element is not finite


@dataclass(frozen=True)
class Segment:
    """Taps whose channels follow each other in the strip: ``taps[first : first + length]`` of the phase."""

    offset: int
    first: int
    length: int


@dataclass(frozen=True)
class Tiling:
    """A config applied to a form. Lengths are in elements of the compute type unless they say bytes.

    A tile is ``mh x mw`` pixels times ``nv`` vectors of channels. An item is ``rows`` x ``cols`` output indices of each
    phase, times one of ``kg`` groups of channel blocks.
    """

    form: DenseForm
    config: Config
    target: Target

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
        return self.lanes * self.config["nv"]

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

    @cached_property
    def blocks(self) -> int:
        return self.full_blocks + (self.tail_vectors > 0)

    @cached_property
    def padded_k(self) -> int:
        return self.full_blocks * self.nr + self.tail_vectors * self.lanes

    @cached_property
    def block_groups(self) -> int:
        return min(self.config["kg"], self.blocks)

    @cached_property
    def cb(self) -> int:
        """Channels reduced at a time."""
        return self.config["cb"] or self.form.c

    @cached_property
    def c_blocks(self) -> int:
        return self.form.c // self.cb

    # --- items ----------------------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> int:
        return min(self.config["rows"], self.form.count[1])

    @cached_property
    def cols(self) -> int:
        return min(self.config["cols"] or self.form.count[2], self.form.count[2])

    @cached_property
    def row_blocks(self) -> int:
        return -(-self.form.count[1] // self.rows)

    @cached_property
    def col_blocks(self) -> int:
        """For this number of columns (of a flat form: rows of the matrix)."""
        return -(-self.form.count[2] // self.cols)

    @cached_property
    def places(self) -> int:
        """Strips of one image and group."""
        return self.form.count[0] * self.row_blocks * self.col_blocks

    @cached_property
    def items(self) -> int:
        return self.form.images * self.form.groups * self.places * self.block_groups

    @cached_property
    def items_at_once(self) -> int:
        """Items handed out together: as many as leave each thread several turns, whole strips where they are shared."""
        turns = 1 if self.target.cores == 1 else 8 * self.target.cores
        together = max(1, self.items // turns)
        if self.block_groups > 1 and not self.config["kout"] and together >= self.block_groups:
            together = together // self.block_groups * self.block_groups
        return together

    @cached_property
    def mh(self) -> int:
        return min(self.config["mh"], self.rows)

    @cached_property
    def mw(self) -> int:
        return min(self.config["mw"], self.cols)

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Heights of tiles, largest first; taking the largest that fits covers every item."""
        lengths = {min(self.rows, p.count[1] - at) for p in self.form.phases for at in range(0, p.count[1], self.rows)}
        return _tile_sizes(self.mh, lengths)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        if self.form.flat:  # the length is known at run time only
            sizes = [self.mw]
            while sizes[-1] > 1:
                sizes.append((sizes[-1] + 1) // 2)
            return tuple(sizes)
        lengths = {min(self.cols, p.count[2] - at) for p in self.form.phases for at in range(0, p.count[2], self.cols)}
        return _tile_sizes(self.mw, lengths)

    # --- where x is read ------------------------------------------------------------------------------------------

    @cached_property
    def pack(self) -> int:
        return self.config["pack"]

    @cached_property
    def spacing(self) -> Triple:
        """Only every ``spacing``-th position of the input is read, in each dimension, counted from the first tap."""
        first = self.form.first_tap
        found = []
        for i in range(3):
            away = [tap.at[i] - first[i] for tap in self.form.taps]
            found.append(math.gcd(0 if i == 0 else self.form.step[i], *away) or 1)
        return (found[0], found[1], found[2])

    @cached_property
    def strip_size(self) -> Triple:
        """Depth, rows and columns of the strip of one item."""
        form, g = self.form, self.spacing
        span = [(form.last_tap[i] - form.first_tap[i]) // g[i] + 1 for i in range(3)]
        rows, cols = ((n - 1) * form.step[1 + i] // g[1 + i] for i, n in enumerate((self.rows, self.cols)))
        return (span[0], rows + span[1], cols + span[2])

    @cached_property
    def pixel(self) -> int:
        """From one pixel of the strip to the next."""
        return self.cb + self.config["cpad"]

    @cached_property
    def x_pitch(self) -> Triple:
        """Steps in depth, row and column through whatever the tiles read."""
        if self.pack == DIRECT:
            d, h, w = self.form.x_strides[3:]
            return (d, h, w)
        if self.pack == PANEL:
            return (0, 0, 1)
        _, h, w = self.strip_size
        return (h * w * self.pixel, w * self.pixel, self.pixel)

    @cached_property
    def tile_step(self) -> tuple[int, int]:
        """From one output row or column to the next, in what the tiles read."""
        g = (1, 1, 1) if self.pack == DIRECT else self.spacing
        return (self.form.step[1] // g[1] * self.x_pitch[1], self.form.step[2] // g[2] * self.x_pitch[2])

    @cached_property
    def strip_bytes(self) -> int:
        if self.pack == DIRECT:
            return 0
        if self.pack == PANEL:
            return (self.cols * self.padded_run(self.cb) * self.element + 127) // 64 * 64
        d, h, w = self.strip_size
        return (d * h * w * self.pixel * self.element + 127) // 64 * 64

    def segments(self, phase: Phase) -> tuple[Segment, ...]:
        """The runs of one phase; all have the same length."""
        first = self.form.first_tap
        g = (1, 1, 1) if self.pack == DIRECT else self.spacing
        places = []
        for tap in phase.taps:
            at = tap.at if self.pack == DIRECT else tuple((tap.at[i] - first[i]) // g[i] for i in range(3))
            places.append(sum(a * pitch for a, pitch in zip(at, self.x_pitch, strict=True)))
        per_row = _taps_in_a_row(phase)
        merged = all(
            places[i + 1] - places[i] == self.cb for i in range(len(places) - 1) if (i + 1) % per_row != 0
        )  # fmt: skip
        length = per_row if merged and self.pack != PANEL else 1
        return tuple(Segment(places[i], i, length) for i in range(0, len(places), length))

    def run(self, phase: Phase) -> int:
        """Products of one segment."""
        segments = self.segments(phase)
        return segments[0].length * self.cb if segments else 0

    def padded_run(self, run: int) -> int:
        return -(-run // self.per_step) * self.per_step

    @cached_property
    def unroll(self) -> int:
        """Steps of the reduction in one turn of the loop; divides every run."""
        runs = {self.run(phase) // self.per_step for phase in self.form.phases} - {0}
        if self.pack == PANEL:
            runs = {self.padded_run(run * self.per_step) // self.per_step for run in runs}
        return math.gcd(self.config["unroll"], *runs)

    # --- the packed filter ----------------------------------------------------------------------------------------

    def reduction(self, phase: Phase) -> int:
        """Rows of the packed filter of one phase and channel block."""
        return len(self.segments(phase)) * self.padded_run(self.run(phase))

    @cached_property
    def phase_starts(self) -> tuple[int, ...]:
        """Where each phase begins in the packed filter of one group and block of reduced channels."""
        starts, at = [], 0
        for phase in self.form.phases:
            starts.append(at)
            at += self.reduction(phase) * self.padded_k
        return (*starts, at)

    @cached_property
    def packed_bytes(self) -> int:
        return NOTE_BYTES + self.form.groups * self.c_blocks * self.phase_starts[-1] * self.element


def _taps_in_a_row(phase: Phase) -> int:
    count = 0
    for tap in phase.taps:
        if tap.at[:2] != phase.taps[0].at[:2]:
            break
        count += 1
    return max(count, 1)


def _tile_sizes(size: int, lengths: set[int]) -> tuple[int, ...]:
    tails = {length % size for length in lengths if length > 0} - {0}
    full = {size} if any(length >= size for length in lengths) else set()
    return tuple(sorted(full | tails, reverse=True))
