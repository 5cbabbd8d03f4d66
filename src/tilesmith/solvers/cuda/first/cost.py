"""Estimated seconds of convolutions of few input channels: cycles of tiles in turn, or memory."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.first.tile import FirstTile
from tilesmith.solvers.cuda.first.weights import WeightsTile
from tilesmith.solvers.cuda.first.window import Window

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import FirstFit


def first_seconds(t: FirstTile, fit: FirstFit) -> float:
    """Blocks of an SM take turns; what they wait for overlaps with the others' work."""
    g, each = t.g, min(t.value["blocks_per_sm"], ceil(t.blocks / t.target.cores))
    column = fit.column + fit.product[not t.wgmma] * t.steps
    work = t.pixels / 128 * t.block_n * column + _moving(t, fit)
    work += more_stores(t.pixels, min(g.k, t.block_n), t.out_vector, g.y.dtype) * fit.store
    turns = ceil(t.all_tiles / (t.blocks // t.blocks_n)) * each
    cycles = turns * ((fit.wait[0] + fit.step_wait * t.steps) / each + work)
    cycles += t.block_n * len(t.units) / (32 * t.warps) * fit.filter + fit.block[0]
    return _overlapped(t, cycles, prod(g.y.shape) * dtype(g.y.dtype).nbytes, fit) + fit.start


def weights_seconds(t: WeightsTile, fit: FirstFit) -> float:
    """The same for backward weights, and the sum of the blocks' sums."""
    each = min(t.value["blocks_per_sm"], ceil(t.slices * t.blocks_m / t.target.cores))
    products = t.pixels / 16 * t.unit_warps * t.groups * t.elements * t.parts
    # Few warps leave tensor cores idle.
    work = products * fit.sum * (1 + fit.alone / (t.warps * each)) * (fit.ragged if t.ragged else 1.0)
    work += t.pixels / 16 * t.unit_warps * (t.parts * 4 + t.groups * 8) * fit.shared
    work += _moving(t, fit) + t.pixels * t.parts * 32 / fit.gradient
    cycles = ceil(t.all_tiles / t.slices) * each * (fit.wait[1] / each + work) + fit.block[1]
    partial = 2 * t.partial_bytes / fit.partial_bytes
    return _overlapped(t, cycles, prod(t.g.y.shape) * 2, fit) + partial + fit.start + fit.second_kernel


def more_stores(pixels: int, columns: int, vector: int, result: str) -> float:
    """Stores of a warp for the results of ``pixels``, ``vector`` at once, beyond those that take 16 bytes."""
    return pixels * columns / 32 * (1 / vector - dtype(result).nbytes / 16)


def _moving(t: Window, fit: FirstFit) -> float:
    """Cycles of a tile of x on its way to shared memory."""
    loads = 1 if t.vector == 4 else min(4, t.g.c * t.taps)
    return prod(t.window) * t.per_pixel * (fit.unit + fit.element * loads)


def _overlapped(t: Window, cycles: float, moved: int, fit: FirstFit) -> float:
    """Seconds of ``cycles``, beside those of reading x and ``moved`` other bytes."""
    memory = (prod(t.g.x.shape) * 2 + moved) / (fit.bandwidth * t.target.bytes_per_s)
    busy = cycles / (fit.clock * t.target.clock_hz)
    return max(memory, busy) + fit.overlap * min(memory, busy)
