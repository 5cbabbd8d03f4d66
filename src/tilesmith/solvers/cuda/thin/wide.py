"""The numbers that a config gives for a product with few channels on both sides whose filter warpgroups multiply."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.thin.reading import padding
from tilesmith.solvers.cuda.thin.tile import ThinTile
from tilesmith.solvers.solver import cached_property, steady

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import WideThinFit

_AT_ONCE = 8  # steps whose operands are in registers together
_LEAST_BYTES = 256  # of a slab: smaller bulk copies were not timed


def _turns(words: list[int]) -> int:
    """Turns of shared memory for the words that a warp's lanes ask for at once: the most that lie in one bank."""
    return max(Counter(word % 32 for word in set(words)).values())


@lru_cache(maxsize=256)
def _reading(width: int, step: int, steps: int) -> tuple[int, float]:
    """Products of ``steps`` along k that share a run, and the turns of each to read 16 rows of ``width`` elements.

    Neighbouring lanes are ``step`` rows apart. Of the runs there can be, those that take the fewest turns.
    """
    pitch, found = step * width // 2, []
    for spread in (4, 2, 1):
        run = 2 * min(spread, steps)
        if width % 4 == 0:  # 8 bytes a lane, half a warp at a time
            words = [g * pitch + p * run + e for g in range(4) for p in range(4) for e in range(2)]
            found.append((4.0 * _turns(words), spread))
        else:  # an odd row has a word more
            each = _turns([g * pitch + p * run for g in range(8) for p in range(4)])
            found.append(((4 + width % 2 / min(spread, steps)) * each, spread))
    turns, spread = min(found, key=lambda one: one[0])
    return spread, turns


@lru_cache(maxsize=256)
def _writing(width: int, size: int, step: int, across: int) -> tuple[int, float]:
    """Products of 8 columns that share a run, and the turns of each to write 16 rows of ``width`` results.

    There are ``across`` such products; a result has ``size`` bytes. Otherwise as ``_reading``.
    """
    pitch, found = step * width * size // 4, []
    for spread in (8, 4, 2, 1):
        run = min(spread, across) * size // 2
        if size == 4 or (run % 2 == 0 and width % 4 == 0):
            words = [g * pitch + p * run + e for g in range(4) for p in range(4) for e in range(2)]
            found.append((size * _turns(words), spread))  # of two products at once where they have 2 bytes
        else:
            found.append((2 * _turns([g * pitch + p * run for g in range(8) for p in range(4)]), spread))
    turns, spread = min(found, key=lambda one: one[0])
    return spread, turns


@dataclass(frozen=True)
class WideTile(ThinTile):
    """``form``, of rows, computed as ``config`` says; see the axes in ``solver``."""

    @steady
    def row_step(self) -> int:
        """The step from a lane's row to its neighbour's: where a width is odd, a lane has an even row and the next."""
        return 2 if self.form.first % 2 or self.form.second % 2 else 1

    @steady
    def pads(self) -> tuple[int, int]:
        form, unit = self.form, 32 // self.row_step
        return padding(form.first, 2, unit), padding(form.second, dtype(form.out_dtype).nbytes, unit)

    @steady
    def _reads(self) -> tuple[int, float]:
        return _reading(self.form.first + self.pads[0], self.row_step, self.products[0])

    @steady
    def _writes(self) -> tuple[int, float]:
        size = dtype(self.form.out_dtype).nbytes
        return _writing(self.form.second + self.pads[1], size, self.row_step, self.products[1])

    @property
    def spreads(self) -> tuple[int, int]:
        """Products along k, and of 8 columns, whose elements lanes have in runs: those that take the fewest turns."""
        return self._reads[0], self._writes[0]

    @steady
    def turns(self) -> float:
        """Turns of shared memory for 16 rows: copies in and out, operands, results, and the filter of a product.

        A residual is copied and read as results are written and copied.
        """
        form, (along, across), of_results = self.form, self.products, 1 + self.form.epilogue.residual
        copied = 16 * (form.first * 2 + form.second * dtype(form.out_dtype).nbytes * of_results) / 128
        return copied + along * self._reads[1] + across * self._writes[1] * of_results + along * across / 2

    @steady
    def stage_bytes(self) -> int:
        """Results lie where the residual was, or else the rows that they come from."""
        return sum(self.widths) if self.form.epilogue.residual else max(self.widths)

    @property
    def held(self) -> bool:
        return False

    @steady
    def shared_bytes(self) -> int:
        along, across = self.products
        filter_, biases = -(-along * (across * 256 + 16) // 128) * 128, -(-across * 32 // 128) * 128
        barriers = -(-self.warps * self.stages * 8 // 128) * 128
        return filter_ + biases + barriers + self.warps * (self.stages * self.stage_bytes + 64)

    @steady
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        parts, (along, across) = self.slab // 16, self.products
        rounds = parts * ceil(along / _AT_ONCE)
        runs = min(self.spreads[1], across) * dtype(self.form.out_dtype).nbytes  # of a residual: two of a lane's
        added = runs if self.form.epilogue.residual else 0
        return parts * across * 4 + min(along, _AT_ONCE) * 4 * min(rounds, 2) + added + 44

    @cached_property
    def fits(self) -> bool:
        many = min(self.widths) >= _LEAST_BYTES
        return not self.weights and many and self.target.has_wgmma and self.warps % 4 == 0 and self._has_room

    def seconds(self, fit: WideThinFit) -> float:
        """Estimated seconds: a stream of memory, the work of an SM's units, and what a warp waits for itself."""
        form, target, (along, across) = self.form, self.target, self.products
        slabs = ceil(ceil(form.length / self.slab) / (self.blocks * self.warps))
        high = self.slab / 16
        busy = (fit.turn * self.turns + fit.product * along * across + fit.column * across) * high + fit.slab
        wait = (fit.wait[0] * along + fit.wait[1] * across) * high + fit.wait_slab
        moving = form.moved_bytes / (fit.bandwidth * target.bytes_per_s)
        computing = busy * slabs * self.warps * ceil(self.blocks / target.cores) / target.clock_hz
        waiting = wait * slabs / target.clock_hz
        overlapped = float((moving**fit.norm + computing**fit.norm + waiting**fit.norm) ** (1 / fit.norm))
        return fit.start + overlapped + fit.filter * along * across * 128 / self.threads / target.clock_hz
