"""Estimated seconds of groups of rows: the slowest of tensor cores, L2 and DRAM."""

from __future__ import annotations

from math import ceil, exp
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.row_groups.tile import BLOCK_K, GroupsTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import RowGroupsFit


def predicted_seconds(t: GroupsTile, fit: RowGroupsFit) -> float:
    g, rows, columns = t.form.g, t.block_rows, t.block_columns
    # Nobody knows the sizes of the groups: the mean of even ones, and of sizes that are distributed exponentially.
    of_group = g.m / g.groups
    tiles = g.groups * (ceil(of_group / rows) + 1 / (1 - exp(-rows / of_group))) / 2 * t.tiles_n
    tensor = rows * columns * BLOCK_K / fit.macs + (fit.step_alone if t.pingpong else fit.step)
    loaded = t.stage_bytes / fit.l2
    epilogue = 0.0 if t.pingpong else fit.epilogue + rows * columns / fit.stored
    cycles = ceil(tiles / t.target.cores) * (t.steps * max(tensor, loaded) + epilogue) + fit.start
    moved = 2 * (g.groups * g.k * g.n + g.m * g.k + g.m * g.n)
    computing, moving = cycles / fit.clock, moved / (fit.bandwidth * t.target.bytes_per_s)
    return max(computing, moving) + fit.overlap * min(computing, moving)
