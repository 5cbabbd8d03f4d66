"""How warps read both operands of sums of weights from shared memory, and the turns that this takes."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.solvers.solver import cached_property


def padding(width: int, size: int, unit: int) -> int:
    """Elements between rows of whole chunks, so that rows that are read together differ in their banks.

    ``unit`` is the distance in bytes that rows shall have at least modulo the 128 of all banks.
    """
    chunk = 16 // size
    if width % chunk:
        return 0
    return next(pad for pad in range(0, 128 // size, chunk) if (width + pad) * size % 128 in (unit, 128 - unit))


def _turns(words: list[int], each: int = 1) -> int:
    """Turns of shared memory in which lanes reach ``each`` neighbouring words, of which the first are ``words``."""
    turns = 0
    for at in range(0, len(words), 32 // each):
        reached = {first + e for first in words[at : at + 32 // each] for e in range(each)}
        turns += max(sum(word % 32 == bank for word in reached) for bank in range(32))
    return turns


@dataclass(frozen=True)
class Reading:
    """By runs of a lane's neighbouring columns, in words; else by elements of odd rows, by pairs of even ones.

    ``widths`` are the elements of a row of each operand; ``tile`` the products of 16 rows and of 8 columns of each of
    the ``team`` warps that share a slab.
    """

    widths: tuple[int, int]
    tile: tuple[int, int]
    team: int
    runs: bool

    @cached_property
    def pads(self) -> tuple[int, int]:
        """Elements between rows in shared memory."""
        unit = 16 if self.runs else 32
        return padding(self.widths[0], 2, unit), padding(self.widths[1], 2, unit)

    @cached_property
    def steps(self) -> tuple[int, int, int]:
        """Rows between a lane's two, between neighbouring lanes, and to its other two: what meets in fewer banks.

        Where runs are read lanes begin at even rows, where a run begins a word.
        """
        among = ((1, 2, 8), (1, 4, 2)) if self.runs else ((1, 4, 2), (4, 1, 8))
        count = self._read if self.runs else self._meeting
        return min(among, key=lambda steps: count(0, steps[1]) + count(1, steps[1]))

    @cached_property
    def reads(self) -> int:
        """Turns in which a warp reads its operands of 16 rows."""
        return self._read(0, self.steps[1]) + self._read(1, self.steps[1])

    @cached_property
    def turns(self) -> int:
        """Turns for 16 rows: copies that write them, and all warps' reads."""
        return self._copied(0) + self._copied(1) + self.team * self.reads

    def _copied(self, operand: int) -> int:
        width, pad = self.widths[operand], self.pads[operand]
        chunks = [chunk * 8 + (chunk * 8 // width * pad if pad else 0) for chunk in range(width * 2)]
        return _turns([at // 2 for at in chunks], 4)

    def _pitch(self, operand: int) -> int:
        return self.widths[operand] + self.pads[operand]

    def _words(self, operand: int, step: int, apart: int) -> list[int]:
        """What lanes ask for first that are ``step`` rows and ``apart`` columns from their neighbours."""
        pitch = self._pitch(operand)
        return [(place * step * pitch + group * apart) // 2 for group in range(8) for place in range(4)]

    def _meeting(self, operand: int, step: int) -> int:
        """Turns of one load: of pairs where rows are even, else of elements."""
        return _turns(self._words(operand, step, 1 if self._pitch(operand) % 2 else 2))

    def _read(self, operand: int, step: int) -> int:
        """Turns in which a warp reads 16 rows of one operand."""
        pitch, columns = self._pitch(operand), (self.tile[0] * 2, self.tile[1])[operand]
        elements = 4 * _turns(self._words(operand, step, 1))
        if not self.runs:
            pairs = pitch % 2 == 0 and columns % 2 == 0
            return columns * 2 * self._meeting(operand, step) if pairs else columns * elements
        run = columns // 2 * 2
        turns = elements if columns % 2 else 0  # of the last tile
        if run:
            each = next(n for n in (4, 2, 1) if n == 1 or (pitch % (2 * n) == 0 and run % (2 * n) == 0))
            turns += (2 * run + 2 * (pitch % 2)) // each * _turns(self._words(operand, step, run), each)
        return turns
