"""How long a config of a narrow weight gradient takes: a model for ranking."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.c.common.axis import Columns, column_tiles
from tilesmith.solvers.c.common.cost import gradient_seconds, level, step_cycles, view_bytes
from tilesmith.solvers.c.wrw_grouped.tile import Cell, WrwGroupedTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import WrwFit


def predicted_seconds(t: WrwGroupedTile, fit: WrwFit) -> float:
    """Estimated seconds of ``run`` on ``t.target.cores`` threads."""
    pr, m, target = t.problem, t.lanes, t.target
    row, tiles = 0.0, column_tiles(t.width, t.cols)
    for cells in t.passes:
        for columns in tiles:
            row += columns.repeat * _tile_cycles(t, cells, columns, fit)
        row += 30 + 2 * len(cells)
    compute = t.rows * m.blocks * row
    whole = view_bytes(pr.x) + view_bytes(pr.y)
    memory = whole / level(whole / target.cores, target, fit)
    # One block of channels at a time keeps its rows in the first-level cache; more fetch them for each filter row.
    taps = pr.filter[0] * pr.filter[1]
    held = (taps + 1) * pr.input[2] * min(t.chunk, m.blocks) * m.width * 4
    if held > target.l1_bytes // 2 and t.chunk > 1:
        memory += t.rows * pr.input[2] * pr.c * dtype(pr.x.dtype).nbytes * taps / 20.0
    fold = t.cells * m.blocks * (m.width * 1.5 + t.splits)
    cycles = max(compute, memory) + 0.4 * min(compute, memory)
    return gradient_seconds(cycles, t.splits * t.chunks, fold, target, fit)


def _tile_cycles(t: WrwGroupedTile, cells: tuple[Cell, ...], columns: Columns, fit: WrwFit) -> float:
    """One tile of output columns of one row, for the taps of one pass."""
    pr, m, wide = t.problem, t.lanes, columns.width
    lines, taps, steps = (len({cell[i] for cell in cells}) for i in range(3))
    share = taps / pr.filter[2]
    read = lines * len(t.width.positions(wide)) * (share if share < 1 else 1)
    shuffles = 0 if m.inner == m.outer == 1 else read * steps
    sources = read * ceil(m.units(False) / m.width)
    converted = (2 * sources if pr.x.dtype != "fp32" else 0) + (2 * wide if pr.y.dtype != "fp32" else 0)
    others = shuffles + converted + 4
    cycles = step_cycles(len(cells) * wide, sources + wide, others, wide * fit.latency, t.target, fit)
    spilled = max(0, len(cells) + wide + 3 - t.target.vector_registers)
    return cycles * (1 + 0.05 * spilled) + 0.25 * (shuffles + converted) + 3
