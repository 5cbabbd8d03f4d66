"""Estimated seconds of channels-first depthwise convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.depthwise_planes.tile import PlanesTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import DepthwiseFit


def planes_seconds(t: PlanesTile, fit: DepthwiseFit) -> float:
    """Instructions of all threads, or DRAM: the slower, and a part of the other."""
    g, v, target = t.g, t.value, t.target
    size = dtype(t.source.dtype).nbytes
    rows = v["rows_per_thread"] + (g.filter[1] - 1) * g.dilation[1] if not t.weights else g.filter[1]
    window = v["columns_per_thread"] + (g.filter[2] - 1) * g.dilation[2]
    threads = t.items * (g.c if t.weights else 1)
    # Each value is widened; a thread finds its place and its filter.
    issue = t.work * fit.issue + rows * window * 1.5 + (20 if t.weights else 60 + 3 * t.taps)
    loads = rows * (2 + window / v["columns_per_thread"]) * max(4.0, v["columns_per_thread"] * size * 32 / fit.l1)
    cycles = threads / 32 / target.cores * max(issue / 4, loads) + fit.start
    moved = size * (
        t.source.shape[0] * g.c * t.source.shape[3] * t.source.shape[4] + g.n * g.c * t.image[0] * t.image[1]
    )
    busy, moving = cycles / (fit.clock * target.clock_hz), moved / (fit.bandwidth * target.bytes_per_s)
    seconds = max(busy, moving) + fit.overlap * min(busy, moving)
    if t.weights and t.parts > 1:
        seconds += fit.second_kernel + 2 * t.parts * t.taps * g.c * 4 / (fit.partial_bandwidth * target.bytes_per_s)
    return seconds
