"""The numbers that a config gives for a product with few channels on both sides whose filter warpgroups multiply."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.thin.tile import ThinTile, padding
from tilesmith.solvers.solver import cached_property

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import WideThinFit

_AT_ONCE = 8  # steps whose operands are in registers together
_SPREADS = (8, 4, 2, 1)


def turns(words: list[int]) -> int:
    """Turns of shared memory for the words that a warp's lanes ask for at once: the most that lie in one bank."""
    return max(sum(word % 32 == bank for word in set(words)) for bank in range(32))


@dataclass(frozen=True)
class WideTile(ThinTile):
    """``form``, of rows, computed as ``config`` says; see the axes in ``solver``."""

    @cached_property
    def row_step(self) -> int:
        """The step from a lane's row to its neighbour's: where a width is odd, a lane has an even row and the next."""
        return 2 if self.form.first % 2 or self.form.second % 2 else 1

    @cached_property
    def pads(self) -> tuple[int, int]:
        form, unit = self.form, 32 // self.row_step
        return padding(form.first, 2, unit), padding(form.second, dtype(form.out_dtype).nbytes, unit)

    @cached_property
    def _pitches(self) -> tuple[int, int]:
        """Words between the rows of neighbouring lanes, of operands and of results."""
        size = dtype(self.form.out_dtype).nbytes
        first, second = self.form.first + self.pads[0], self.form.second + self.pads[1]
        return self.row_step * first * 2 // 4, self.row_step * second * size // 4

    def _reading(self, spread: int) -> float:
        """Turns that a product's 16 rows take to read where runs have those of ``spread`` products."""
        pitch, run = self._pitches[0], 2 * min(spread, self.products[0])
        if (self.form.first + self.pads[0]) % 4 == 0:  # 8 bytes a lane, half a warp at a time
            return 4 * turns([g * pitch + p * run + e for g in range(4) for p in range(4) for e in range(2)])
        at_once = turns([g * pitch + p * run for g in range(8) for p in range(4)])
        words = 4 + (1 / min(spread, self.products[0]) if self.form.first % 2 else 0)
        return words * at_once

    def _writing(self, spread: int) -> int:
        """The same of a product's 8 columns of results."""
        pitch, size = self._pitches[1], dtype(self.form.out_dtype).nbytes
        run = min(spread, self.products[1]) * size // 2
        if size == 4 or (run % 2 == 0 and (self.form.second + self.pads[1]) % 4 == 0):
            each = 2 if size == 4 else 1  # turns of both halves of a warp, for one product or for two
            return 2 * each * turns([g * pitch + p * run + e for g in range(4) for p in range(4) for e in range(2)])
        return 2 * turns([g * pitch + p * run for g in range(8) for p in range(4)])

    @cached_property
    def spreads(self) -> tuple[int, int]:
        """Products along k, and of 8 columns, whose elements lanes have in runs: those that take the fewest turns."""
        return min(_SPREADS[1:], key=self._reading), min(_SPREADS, key=self._writing)

    @cached_property
    def turns(self) -> float:
        """Turns of shared memory for 16 rows: copies in and out, operands, results, and the filter of a product."""
        form, (along, across) = self.form, self.products
        copied = 16 * (form.first * 2 + form.second * dtype(form.out_dtype).nbytes) / 128
        own = along * self._reading(self.spreads[0]) + across * self._writing(self.spreads[1])
        return own + copied + along * across / 2

    @property
    def held(self) -> bool:
        return False

    @cached_property
    def shared_bytes(self) -> int:
        along, across = self.products
        filter_, biases = along * across * 256, -(-across * 32 // 128) * 128
        return filter_ + biases + self.warps * (self.stages * self.stage_bytes + self.widths[1]) + 128

    @cached_property
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        parts, (along, across) = self.slab // 16, self.products
        rounds = parts * ceil(along / _AT_ONCE)
        return parts * across * 4 + min(along, _AT_ONCE) * 4 * min(rounds, 2) + 44

    @cached_property
    def fits(self) -> bool:
        return not self.weights and self.target.has_wgmma and self.warps % 4 == 0 and self._has_room

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
