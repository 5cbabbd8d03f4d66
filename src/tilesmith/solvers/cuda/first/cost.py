"""Estimated seconds of convolutions of few input channels: cycles of tiles in turn, or memory."""

from __future__ import annotations

from math import ceil, prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.first.tile import FirstTile
from tilesmith.solvers.cuda.first.weights import WeightsTile
from tilesmith.solvers.cuda.first.window import Window

# NOTE: cycles of an H200, from its times of about 40 configs of 7 problems; see notes.md. Cycles scale with the clock.
_START_S, _SECOND_S = 4e-6, 2.5e-6
_CLOCK = 1.02  # of the boost clock, under load
_BANDWIDTH = 0.8
# Of a tile of the forward kernel: waits, which other blocks of the SM hide; waits by steps; and for 128 pixels work by
# columns and by products of 16 x 16 (wgmma, mma.sync) with one column.
_WAIT, _STEP_WAIT, _COLUMN, _PRODUCT = 1000, 115, 12, (0.54, 1.27)
_UNIT, _ELEMENT = 0.2, 0.07  # of a unit that is moved, and of each load of it
# Of a tile of backward weights: waits, products of 16 x 8 x 16, 128 bytes of shared memory, bytes of dy.
_WRW_WAIT, _WRW_PRODUCT, _WRW_SHARED, _WRW_BYTE = 1500, 1.3, 0.4, 1 / 28
_PARTIAL_BYTES_S = 1.5e12


def first_seconds(t: FirstTile) -> float:
    """Blocks of an SM take turns; what they wait for overlaps with the others' work."""
    g, each = t.g, t.value["blocks_per_sm"]
    column = _COLUMN + _PRODUCT[not t.wgmma] * t.steps
    work = t.pixels / 128 * t.block_n * column + _moving(t)
    turns = ceil(t.all_tiles / (t.blocks // t.blocks_n)) * min(each, ceil(t.blocks / t.target.cores))
    cycles = turns * ((_WAIT + _STEP_WAIT * t.steps) / min(each, ceil(t.blocks / t.target.cores)) + work)
    cycles += t.block_n * len(t.units) / (32 * t.warps) * 60 + 2500
    return _overlapped(t, cycles, prod(g.y.shape) * dtype(g.y.dtype).nbytes) + _START_S


def weights_seconds(t: WeightsTile) -> float:
    """The same for backward weights, and the sum of the blocks' sums."""
    each = min(t.value["blocks_per_sm"], ceil(t.slices * t.blocks_m / t.target.cores))
    products = t.pixels / 16 * t.unit_warps * t.groups * t.elements * t.parts
    # Few warps leave tensor cores idle.
    work = products * _WRW_PRODUCT * (1 + 2 / (t.warps * each)) * (1.2 if t.ragged else 1.0)
    work += (
        t.pixels / 16 * t.unit_warps * (t.parts * 4 + t.groups * 8) * _WRW_SHARED
        + _moving(t)
        + t.pixels * t.parts * 32 * _WRW_BYTE
    )
    cycles = ceil(t.all_tiles / t.slices) * each * (_WRW_WAIT / each + work) + 3000
    moved = prod(t.g.y.shape) * 2
    return _overlapped(t, cycles, moved) + 2 * t.partial_bytes / _PARTIAL_BYTES_S + _START_S + _SECOND_S


def _moving(t: Window) -> float:
    """Cycles of a tile of x on its way to shared memory."""
    loads = 1 if t.vector == 4 else min(4, t.g.c * t.taps)
    return prod(t.window) * t.per_pixel * (_UNIT + _ELEMENT * loads)


def _overlapped(t: Window, cycles: float, moved: int) -> float:
    """Seconds of ``cycles``, beside those of reading x and ``moved`` other bytes."""
    memory = (prod(t.g.x.shape) * 2 + moved) / (_BANDWIDTH * t.target.bytes_per_s)
    busy = cycles / (_CLOCK * t.target.clock_hz)
    return max(memory, busy) + 0.2 * min(memory, busy)
