"""Estimated seconds of depthwise convolution."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.depthwise.tile import DepthwiseTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import DepthwiseFit


def depthwise_seconds(t: DepthwiseTile, fit: DepthwiseFit) -> float:
    """Loads through the L1 cache, multiply-adds, DRAM: the slowest, by waves of blocks."""
    g, v, target = t.g, t.value, t.target
    size = dtype(g.x.dtype).nbytes
    step = (1, 1) if t.back else (g.stride[1], g.stride[2])
    taps = v["filter_rows"] if t.weights else g.filter[1]
    reach = (1 / g.stride[1], 1 / g.stride[2]) if t.back else (1.0, 1.0)
    rows = (v["rows_per_thread"] * reach[0] - 1) * step[0] + (taps - 1) * g.dilation[1] * reach[0] + 1
    columns = (v["columns_per_thread"] * reach[1] - 1) * step[1] + (g.filter[2] - 1) * g.dilation[2] * reach[1] + 1
    vectors = rows * columns + v["rows_per_thread"] * v["columns_per_thread"] * (2 if g.epilogue.residual else 1)
    warps = t.tiles * t.channel_blocks * t.row_blocks * t.lanes / 32
    per_thread = min(255, t.registers)
    resident = min(target.registers_per_sm // (per_thread * 32), target.threads_per_sm // 32)
    # A load instruction moves vec * size * 32 bytes.
    loads = vectors * max(4.0, v["channels_per_thread"] * size * 32 / fit.l1)
    issue = (t.work * fit.issue + vectors * (6 + v["channels_per_thread"]) + 60) / 4
    if t.in_shared:
        issue += t.work / v["columns_per_thread"] / v["channels_per_thread"] / 4
    hidden = float(min(1.0, resident / fit.hiding) ** 0.5)
    cycles = warps / target.cores * max(loads, issue) / hidden + fit.start
    waves = warps / target.cores / resident
    if not t.weights and waves > 1:
        cycles *= ceil(waves) / waves if waves < 4 else 1.0
    idle = (t.tiles_h * v["rows_per_thread"] * t.tiles_w * v["columns_per_thread"]) / (t.image[0] * t.image[1])
    pixels = g.n * (g.input[1] * g.input[2] + g.output[1] * g.output[2])
    moved = pixels * g.c * size * (1.0 if idle < 2 else 1.1)
    busy, moving = cycles / (fit.clock * target.clock_hz), moved / (fit.bandwidth * target.bytes_per_s)
    seconds = max(busy, moving) + fit.overlap * min(busy, moving)  # the two overlap, but not quite
    if t.weights:
        partial = t.parts * g.filter[1] * g.filter[2] * g.c * 4
        seconds += fit.second_kernel + 2 * partial / (fit.partial_bandwidth * target.bytes_per_s)
    return seconds
