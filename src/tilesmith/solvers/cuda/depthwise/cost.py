"""Estimated seconds of depthwise convolution."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.depthwise.tile import DepthwiseTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import DepthwiseFit


def depthwise_seconds(t: DepthwiseTile, fit: DepthwiseFit) -> float:
    """A soft maximum of issue, waiting, L1 cache and memory, which overlap, plus the launches."""
    target, warps = t.target, ceil(t.lanes * t.slots / 32)
    planes = t.planes * (fit.plane + (1.0 - fit.plane) / t.filter_planes)
    tiles = planes * -(-t.tiles // (t.slots * t.parts))  # of a thread, one after the other
    starts, loads, waits = (tiles * cycles for cycles in _tile(t, fit))
    taps = prod(t.g.filter)
    starts, waits = starts + fit.thread, waits + fit.block
    if not t.weights:
        # All threads bring the filter to shared memory; each takes its own from there, now or with every multiply-add.
        vector = t.value["channels_per_thread"]
        fills = ceil(taps * vector / t.slots)
        waits += fills * fit.tap
        starts += fills * fit.load + (0 if t.in_shared else taps * vector / 2)
    blocks, slots = t.parts * t.channel_blocks * t.row_blocks, target.cores * t.resident
    cycles = 0.0
    for times, together in ((blocks // slots, t.resident), (1, ceil(blocks % slots / target.cores))):
        if together:
            started = starts * ceil(warps * together / 4)
            loaded = loads * warps * together
            norms = started**fit.norm + loaded**fit.norm + (waits + starts) ** fit.norm
            cycles += times * norms ** (1 / fit.norm)
    cycles *= fit.weights if t.weights else 1.0
    # NOTE: in bf16 and fp16 the estimate stays too long, so that it takes no filter from tensor cores by mistake.
    if t.many_taps and t.multiplier == 1 and not t.halves:
        cycles *= fit.many_taps
    computing, moving = cycles / target.clock_hz, _moved(t) / (fit.bandwidth * target.bytes_per_s)
    seconds = fit.start + float((moving**fit.norm + computing**fit.norm) ** (1 / fit.norm))
    if t.weights:
        partial = t.parts * taps * t.g.k * 4
        seconds += fit.second_kernel + 2 * partial / (fit.bandwidth * target.bytes_per_s)
    return seconds * (fit.several[t.weights] if t.multiplier > 1 else 1.0)


def _tile(t: DepthwiseTile, fit: DepthwiseFit) -> tuple[float, float, float]:
    """Cycles of a warp for a tile: in which it starts something, of the L1 cache, in which it waits."""
    v = t.value
    rows, columns = t.window
    outputs = v["rows_per_thread"] * v["columns_per_thread"] * (2 if t.g.epilogue.residual else 1)
    vector, size = v["channels_per_thread"], dtype(t.g.x.dtype).nbytes
    moved = rows * columns + outputs
    starts = t.work * fit.issue + moved * (fit.load + vector) + (t.work / v["columns_per_thread"] if t.in_shared else 0)
    lines = max(32 / min(32, t.lanes), vector * size * 32 / 128)
    return starts, moved * lines * 128 / fit.l1, rows / max(1, v["rows_ahead"]) * fit.wait


def _moved(t: DepthwiseTile) -> float:
    g, size = t.g, dtype(t.g.x.dtype).nbytes
    return float(g.n * (prod(g.input) * g.c + prod(g.output) * g.k) * size)
