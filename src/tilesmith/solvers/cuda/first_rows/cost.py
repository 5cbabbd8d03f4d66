"""Estimated seconds: cycles of the blocks of an SM in turn, or memory."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.first_rows.tile import RowsTile
from tilesmith.solvers.cuda.first_rows.weights import RowsWeightsTile
from tilesmith.solvers.cuda.first_rows.window import RowsWindow

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import FirstFit


def rows_seconds(t: RowsTile, fit: FirstFit) -> float:
    """Blocks of an SM take turns; what they wait for overlaps with the others' work."""
    g, v = t.g, t.value
    each = min(v["blocks_per_sm"], ceil(t.blocks / t.target.cores))
    rounds = ceil(t.tasks / t.warps)
    pixels = rounds * t.warps * 16 * t.parts
    work = pixels / 128 * t.block_n * (fit.column + fit.product[0] * t.steps)
    work += (prod(t.window) + t.filter_bytes / 16) * fit.unit
    turns = ceil(t.blocks / (t.target.cores * each)) * each
    cycles = turns * ((fit.wait[0] + rounds * fit.step_wait * t.steps) / each + work) + fit.wait[0]
    return _overlapped(t, cycles, prod(g.y.shape) * dtype(g.y.dtype).nbytes, fit)


def rows_weights_seconds(t: RowsWeightsTile, fit: FirstFit) -> float:
    """The same for backward weights, and the sum of the blocks' sums."""
    each = min(t.value["blocks_per_sm"], ceil(t.slices * t.blocks_m / t.target.cores))
    steps = prod(t.tile) / 16 / t.variants
    matrices = t.unit_warps * t.group
    # Few warps leave tensor cores idle.
    work = steps * matrices * t.tiles_n * fit.sum * (1 + fit.alone / (t.warps * each)) * (fit.ragged if t.ragged else 1)
    work += steps * (t.unit_warps * t.tiles_n * 2 + matrices * 4) * fit.shared
    work += (prod(t.window) + prod(t.tile) * t.tiles_n) * fit.unit
    cycles = ceil(t.all_tiles / t.slices) * each * (fit.wait[1] / each + work) + fit.block[1]
    partial = 2 * t.partial_bytes / fit.partial_bytes
    return _overlapped(t, cycles, prod(t.g.y.shape) * 2, fit) + partial + fit.second_kernel


def _overlapped(t: RowsWindow, cycles: float, moved: int, fit: FirstFit) -> float:
    """Seconds of a launch of ``cycles``, beside those of reading x and ``moved`` other bytes."""
    memory = (prod(t.g.x.shape) * 2 + moved) / (fit.bandwidth * t.target.bytes_per_s)
    busy = cycles / (fit.clock * t.target.clock_hz)
    return max(memory, busy) + fit.overlap * min(memory, busy) + fit.start
