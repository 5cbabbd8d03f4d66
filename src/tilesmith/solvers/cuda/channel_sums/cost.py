"""Estimated seconds of the channel sums: the time of memory, or of threads that wait for it."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.channel_sums.tile import SumsTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import SumsFit


def sums_seconds(t: SumsTile, fit: SumsFit) -> float:
    """Blocks run in waves, in each of which a thread takes its items one after the other."""
    target = t.target
    waves = ceil(t.blocks_wide * t.splits / (target.cores * t.resident))
    waiting = waves * t.each / t.step * fit.load / target.clock_hz
    moving = t.form.nbytes / (fit.bandwidth * target.bytes_per_s)
    seconds = fit.start + float((moving**fit.norm + waiting**fit.norm) ** (1 / fit.norm))
    seconds += (waves - 1) * fit.wave / target.clock_hz
    if not t.is_whole:
        seconds += fit.second_kernel + t.parts / t.last_shares * fit.part / target.clock_hz
    return seconds
