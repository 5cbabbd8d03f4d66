"""Estimated seconds of depthwise convolution on tensor cores."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.depthwise_mma.tile import DepthwiseMmaTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import DepthwiseMmaFit


def depthwise_mma_seconds(t: DepthwiseMmaTile, fit: DepthwiseMmaFit) -> float:
    """What an SM starts in a stage, its waits for the next one, DRAM: by turns of blocks."""
    g, target = t.g, t.target
    turns = max(1.0, ceil(t.teams * t.strips * t.channel_blocks * t.passes / (target.cores * t.resident)))
    if t.weights:
        turns = ceil(t.teams * t.strips / t.parts)
    groups = t.strip_rows + t.live - 1
    stages = ceil(groups / t.groups)
    products = t.taps * t.products
    loaded = t.rows_in * t.row_bytes / 256  # instructions of a warp
    group = products * fit.product + t.rows_in * t.steps * t.products * fit.operand
    group += (loaded + t.result_bytes / 256) * fit.copy / t.planes + t.sums * fit.move / t.groups
    busy = group * t.planes * t.resident * stages * t.groups / 4
    wait = stages * fit.stage + fit.block
    cycles = turns * (busy**fit.norm + (wait + group * stages * t.groups) ** fit.norm) ** (1 / fit.norm)
    size, out = dtype(t.source.dtype).nbytes, dtype(t.result.dtype).nbytes
    pixels = g.n * (size * g.input[0] * g.input[1] * g.input[2] + out * g.output[0] * g.output[1] * g.output[2])
    halo = t.pixels * t.column_blocks * groups * t.strips * t.rows_in
    reads = g.n * t.image[0] * halo * t.channel_blocks * t.value["block_c"] * size
    moving = pixels * g.c / (fit.bandwidth * target.bytes_per_s) + reads / (fit.l2 * target.bytes_per_s)
    computing = cycles / target.clock_hz
    seconds = fit.start + float((moving**fit.norm + computing**fit.norm) ** (1 / fit.norm))
    if t.weights:
        seconds += fit.second_kernel + 2 * t.partial_bytes / (fit.bandwidth * target.bytes_per_s)
    return seconds
