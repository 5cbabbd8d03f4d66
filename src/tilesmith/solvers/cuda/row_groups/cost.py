"""Estimated seconds of groups of rows: the slowest of tensor cores, L2 and DRAM. Groups are taken as about even."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.row_groups.tile import BLOCK_K, GroupsTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import TileFit


def predicted_seconds(t: GroupsTile, fit: TileFit) -> float:
    g, rows, columns = t.form.g, t.block_rows, t.block_columns
    # A group's last tile is half empty.
    tiles = g.groups * max(1.0, g.m / g.groups / rows + 0.5) * t.tiles_n
    waves = ceil(tiles / t.target.cores)
    tensor = rows * columns * BLOCK_K / fit.macs + (fit.step_alone if t.pingpong else fit.step)
    moved = (rows + columns) * BLOCK_K * 2 / fit.l2
    epilogue = (fit.epilogue + rows * columns / fit.stored) * (fit.hidden if t.pingpong else 1.0)
    cycles = waves * (t.steps * max(tensor, moved) + epilogue) + fit.latency
    nbytes = 2 * (g.groups * g.k * g.n + g.m * g.k + g.m * g.n)
    computing, moving = (cycles + fit.start) / fit.clock, nbytes / t.target.bytes_per_s
    return max(computing, moving) + fit.overlap * min(computing, moving)
