"""Estimated seconds of channels-first depthwise convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.depthwise_planes.tile import PlanesTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import DepthwiseFit


def planes_seconds(t: PlanesTile, fit: DepthwiseFit) -> float:
    """A soft maximum of issue, L1 cache and memory, which overlap, with the constants of channels-last tensors."""
    g, v, target = t.g, t.value, t.target
    size, columns = dtype(t.source.dtype).nbytes, v["columns_per_thread"]
    rows = g.filter[1] if t.weights else v["rows_per_thread"] + (g.filter[1] - 1) * g.dilation[1]
    window = columns + (g.filter[2] - 1) * g.dilation[2]
    loads = rows * (1 + window / columns)
    # A thread finds its place and its filter; each value is widened.
    starts = t.work * fit.issue + loads * (fit.load + columns) + (20 if t.weights else fit.thread + 3 * t.taps)
    warps = t.items * (g.c if t.weights else 1) / 32 / target.cores
    started, loaded = warps * starts / 4, warps * loads * max(128, columns * size * 32) / fit.l1
    pixels = g.n * g.c * (t.source.shape[3] * t.source.shape[4] + t.image[0] * t.image[1])
    moving = pixels * size / (fit.bandwidth * target.bytes_per_s)
    computing = (started**fit.norm + loaded**fit.norm) ** (1 / fit.norm) / target.clock_hz
    seconds = (
        fit.start + fit.block / target.clock_hz + float((computing**fit.norm + moving**fit.norm) ** (1 / fit.norm))
    )
    if t.weights and t.parts > 1:
        seconds += fit.second_kernel + 2 * t.parts * t.taps * g.c * 4 / (fit.bandwidth * target.bytes_per_s)
    return seconds
