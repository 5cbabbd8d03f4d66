"""Estimated seconds of the slices kernel: products, what a block waits for itself, and memory."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.slices.tile import SlicesTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import SlicesFit


def slices_seconds(t: SlicesTile, fit: SlicesFit) -> float:
    """Estimated seconds. Of a ring of two stages, one is refilled while a block waits for the other."""
    form, target, units = t.form, t.target, t.value["units"]
    busy = min(t.value["blocks_per_sm"], ceil(t.grid / target.cores))
    # An SM's units: products, what they read (rows of a line once, columns each time), and the copies of a window.
    taps = form.taps[1]
    tensor = units * taps * max(fit.product, t.block_n / 2)
    shared = (t.lines_read * 2048 + units * taps * t.block_n * 32) / fit.shared
    moved = t.copies * 128 * fit.load * (8 if form.in_vector == 1 else 1) / t.steps  # or single elements
    # A warpgroup waits for the rows of each line, and for its own products.
    own = ((t.most_units - 1) * t.lines + taps) * fit.line + t.most_units * taps * t.block_n / 2
    step = sum((busy * part) ** fit.overlap for part in (tensor, shared, moved))
    slice_ = (step + own**fit.overlap) ** (1 / fit.overlap) * t.steps * t.chunks + fit.chunk * t.chunks
    cycles = ceil(t.tiles / t.grid) * t.slices * (slice_ + fit.slice) + fit.start + t.filter_bytes / fit.filter
    pair = fit.pair / busy if t.value["stages"] == 2 else 0.0
    computing = cycles * (1 + pair) / (fit.clock * target.clock_hz)
    cached = (t.tiles * t.slices * t.chunks * t.stage_bytes + t.grid * t.filter_bytes + form.result_bytes) / fit.l2
    memory = form.moved_bytes / (fit.bandwidth * target.bytes_per_s)
    return float(max(computing, cached, memory) + fit.latency)
