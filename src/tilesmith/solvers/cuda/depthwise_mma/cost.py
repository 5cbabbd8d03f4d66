"""Estimated seconds of depthwise convolution on tensor cores."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.depthwise_mma.tile import DepthwiseMmaTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import DepthwiseMmaFit

_BURST = 64  # bytes that memory sends at once
_STEEP = 8


def depthwise_mma_seconds(t: DepthwiseMmaTile, fit: DepthwiseMmaFit) -> float:
    """A soft maximum of issue, waiting and memory, which overlap, plus the launches."""
    target = t.target
    strips = ceil(t.teams * t.strips / t.parts) if t.weights else 1  # of a block, one after the other
    starts, waits = (strips * cycles for cycles in _strip(t, fit))
    waits += t.taps * fit.tap
    blocks, slots = t.parts * t.channel_blocks * t.passes, target.cores * t.resident
    cycles = 0.0
    for times, resident in ((blocks // slots, t.resident), (1, ceil(blocks % slots / target.cores))):
        started = starts * ceil(t.planes * resident / 4) if resident else 0.0
        cycles += times * (started**fit.norm + (waits + starts if resident else 0.0) ** fit.norm) ** (1 / fit.norm)
    computing, moving = cycles / target.clock_hz, _moved(t, fit) / target.bytes_per_s
    seconds = fit.start + float((moving**fit.norm + computing**fit.norm) ** (1 / fit.norm))
    if t.weights:
        seconds += fit.second_kernel + 2 * t.partial_bytes / (fit.bandwidth * target.bytes_per_s)
    return seconds


def _strip(t: DepthwiseMmaTile, fit: DepthwiseMmaFit) -> tuple[float, float]:
    """Cycles of a warp for a strip of one set of units: those in which it starts something, those in which it waits."""
    g, groups = t.g, t.strip_rows + t.live - 1
    copied = t.rows_in * ceil(t.units * t.pixels / 32) * fit.copy
    operands = t.rows_in * t.steps * t.products * fit.operand
    products = t.taps * t.products * fit.product
    if t.weights:
        row, computed = copied + 2 * t.products * fit.copy + fit.group, groups
    else:
        row, computed = copied + fit.group, min(groups, ceil(t.source.shape[3] / g.stride[1]))
        # Of a filter in shared memory eight rows at a time are left out, if their results are another block's.
        products *= 1.0 if t.held else fit.table * min(1.0, (t.strip_rows + 8) / groups)
    starts = groups * row + computed * (operands + products)
    starts += 0.0 if t.weights else t.strip_rows * t.products * fit.result
    return starts, ceil(groups / t.groups) * fit.stage + fit.block


def _moved(t: DepthwiseMmaTile, fit: DepthwiseMmaFit) -> float:
    """Bytes of memory, at its bandwidth, and of all that blocks read through L2."""
    g, size, out = t.g, dtype(t.source.dtype).nbytes, dtype(t.result.dtype).nbytes
    once = size * g.input[0] * g.input[1] * g.input[2] + out * g.output[0] * g.output[1] * g.output[2]
    rows = (t.strip_rows * g.stride[1] + (t.live - 1) * g.stride[1]) * t.strips * g.filter[0]
    again = size * t.image[0] * min(rows, t.source.shape[3] * t.strips * g.filter[0]) * t.pixels * t.column_blocks
    return g.n * g.c * (once * _split(t, fit) / fit.bandwidth + again * t.passes / fit.l2)


def _split(t: DepthwiseMmaTile, fit: DepthwiseMmaFit) -> float:
    """How often memory is read for a pixel's channels, of which blocks take fewer than memory sends at once.

    Their neighbours find the others in L2, unless all that is on its way at once is more than that keeps. It is seen as
    a cliff: near one share of L2, whatever stages and rows make up the bytes.
    """
    if t.channel_blocks == 1 or t.value["block_c"] * dtype(t.source.dtype).nbytes >= _BURST:
        return 1.0
    blocks = min(t.resident, ceil(t.parts * t.channel_blocks * t.passes / t.target.cores))
    full = blocks * t.shared_bytes * t.target.cores / (fit.kept * t.target.l2_bytes)
    return 1.0 + fit.split * full**_STEEP / (1.0 + full**_STEEP)
