"""Estimated seconds: cycles of the blocks of an SM in turn, or memory."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.first_rows.tile import RowsTile

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
    moved = prod(g.x.shape) * 2 + prod(g.y.shape) * dtype(g.y.dtype).nbytes
    memory, busy = moved / (fit.bandwidth * t.target.bytes_per_s), cycles / (fit.clock * t.target.clock_hz)
    return max(memory, busy) + fit.overlap * min(memory, busy) + fit.start
