"""Estimated seconds of products with few channels."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.thin.tile import ThinTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import ThinFit


def thin_seconds(t: ThinTile, fit: ThinFit) -> float:
    """Estimated seconds: a stream of memory, the work of an SM's units, and what a warp waits for itself."""
    form, target, kind = t.form, t.target, int(t.weights)
    turns = ceil(ceil(form.length / t.slab) / (t.blocks * t.rings))
    high = t.slab / 16
    if t.weights:
        products = t.tile[0] * t.tile[1]
        busy = (fit.weights_busy[0] * t.reading.reads + fit.weights_busy[1] * products) * t.team * high
        wait = (fit.weights_wait[0] * t.reading.reads + fit.weights_wait[1] * products) * high
    else:
        along, across = t.products
        busy = (fit.rows_busy[0] * along + fit.rows_busy[1] * across) * high
        busy += 0 if t.held else fit.rows_fetch * along * across
        wait = (fit.rows_wait[0] * along + fit.rows_wait[1] * across) * high
    moving = form.moved_bytes / (fit.bandwidth[kind] * target.bytes_per_s)
    computing = (busy + fit.slab_busy[kind]) * turns * t.rings * ceil(t.blocks / target.cores) / target.clock_hz
    waiting = (wait + fit.slab_wait[kind]) * turns / target.clock_hz
    norm = fit.norm[kind]
    overlapped = float((moving**norm + computing**norm + waiting**norm) ** (1 / norm))
    return fit.start[kind] + overlapped + t.partial_bytes / fit.partial_bytes + _filter_seconds(t, fit)


def _filter_seconds(t: ThinTile, fit: ThinFit) -> float:
    """Seconds until blocks of few threads have the filter."""
    if t.weights:
        return 0.0
    along, across = t.products
    elements = along * 16 * across * 8
    return fit.filter * elements * max(0.0, 1 / t.threads - 1 / 256) / t.target.clock_hz
