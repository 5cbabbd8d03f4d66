"""How long a config of a weight gradient takes: models for ranking, from the facts of a target."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.c.grouped.axis import column_tiles
from tilesmith.solvers.c.wrw.tiling import WrwTiling
from tilesmith.solvers.c.wrw_grouped.text import WrwGroupedTiling
from tilesmith.targets.target import CpuTarget

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import WrwFit


def _level(nbytes: float, target: CpuTarget, fit: WrwFit) -> float:
    """Bytes a cycle from where ``nbytes`` stay."""
    if nbytes <= 0.6 * target.l2_bytes:
        return fit.l2
    return fit.l3 if nbytes <= 0.5 * target.l3_bytes else fit.dram


def _shared(cycles: float, items: int, target: CpuTarget, fit: WrwFit) -> float:
    """Seconds when ``items`` equal items are shared by the target's threads."""
    return cycles * ceil(items / target.cores) / items / fit.clock


def dense_seconds(t: WrwTiling, target: CpuTarget, fit: WrwFit) -> float:
    """Estimated seconds of ``c_wrw``."""
    pr = t.problem
    steps_x = 2 if t.pairs else 1
    rows = ceil(pr.output[1] / t.rows)
    steps = pr.n * pr.output[0] * pr.output[2] * (pr.output[1] // steps_x + rows * (t.rows % steps_x))
    segments = steps / t.cols
    units = t.units
    compute = 0.0
    full, rest = divmod(t.run, t.mr)
    for mr, count in ((t.mr, full), (rest, 1 if rest else 0)):
        products = mr * t.nv
        loads = mr + t.nv
        step = max(
            products / target.fma_per_cycle,
            fit.latency,
            loads / fit.loads,
            (products + loads + 3) / fit.issued,
        )
        spilled = max(0, products + t.nv + 1 - target.vector_registers)
        tile = steps * (step * (1 + 0.03 * spilled) + 0.2) + segments * fit.row
        tile += units * (fit.tile + products * 1.5)
        compute += count * tile
    compute *= len(t.lines) * t.k_blocks * pr.groups
    # Partial sums go to memory and back for every strip.
    sums = t.tiles * t.tile_elements * 4
    part = sums / t.parts
    traffic = pr.groups * units * sums * 2 / _level(part, target, fit)
    nbytes = dtype(pr.x.dtype).nbytes
    pixels = pr.n * pr.output[0] * pr.output[1] * pr.output[2]
    if t.direct:
        strip = t.planes * t.rows * t.cols * pr.stride[1] * pr.stride[2] * pr.c * nbytes
        copies = 0.0
    else:
        strip = 4 * t.x_elements
        copies = units * pr.groups * t.parts * strip / fit.copied
        copies += pixels * min(t.k_blocks * t.nr, t.packed_blocks * t.nr * t.parts) * pr.groups * 4 / fit.copied
    # Every block of k reads the strip again.
    blocks = min(t.k_blocks, ceil(t.k_blocks / t.parts) + 1)
    reread = (
        pr.groups
        * t.parts
        * units
        * strip
        * blocks
        / _level(strip + t.rows * t.cols * t.planes * t.nr * 4, target, fit)
    )
    fold = pr.groups * t.tiles * t.tile_elements * (t.splits * 4 / _level(t.partial_bytes, target, fit) + 0.6)
    items = pr.groups * t.parts * t.splits
    return (
        _shared(compute + 0.5 * traffic + copies + 0.4 * reread, items, target, fit) + fold / target.cores / fit.clock
    )


def grouped_seconds(t: WrwGroupedTiling, target: CpuTarget, fit: WrwFit) -> float:
    """Estimated seconds of ``c_wrw_grouped``."""
    pr, m = t.problem, t.lanes
    rows = pr.n * pr.output[0] * pr.output[1]
    x_narrow, y_narrow = pr.x.dtype != "fp32", pr.y.dtype != "fp32"
    sources = ceil(m.units(False) / m.width)
    plain = m.inner == m.outer == 1
    row = 0.0
    for cells in t.passes:
        lines = {r for r, _, _ in cells}
        steps = {c for _, _, c in cells}
        taps = {s for _, s, _ in cells}
        share = len(taps) / pr.filter[2]
        for columns in column_tiles(t.width, t.cols):
            read = len(lines) * len(t.width.positions(columns.width)) * (share if share < 1 else 1)
            shuffles = 0 if plain else read * len(steps)
            products = len(cells) * columns.width
            converted = (2 * read * sources if x_narrow else 0) + (2 * columns.width if y_narrow else 0)
            loads = read * sources + columns.width
            cycles = max(
                products / target.fma_per_cycle,
                loads / fit.loads,
                (products + loads + shuffles + converted + 4) / fit.issued,
                columns.width * fit.latency,
            )
            spilled = max(0, len(cells) + columns.width + 3 - target.vector_registers)
            row += columns.repeat * (cycles * (1 + 0.05 * spilled) + 0.25 * (shuffles + converted) + 3)
        row += 30 + 2 * len(cells)
    compute = rows * m.blocks * row
    whole = sum(
        view.shape[0] * view.shape[1] * view.shape[2] * view.shape[3] * view.shape[4] * dtype(view.dtype).nbytes
        for view in (pr.x, pr.y)
    )
    memory = whole / _level(whole / target.cores, target, fit)
    # One block of channels at a time keeps its rows in the first-level cache; more fetch them for each filter row.
    held = (pr.filter[0] * pr.filter[1] + 1) * pr.input[2] * min(t.chunk, m.blocks) * m.width * 4
    if held > target.l1_bytes // 2 and t.chunk > 1:
        memory += rows * pr.input[2] * pr.c * dtype(pr.x.dtype).nbytes * pr.filter[0] * pr.filter[1] / 20.0
    fold = t.cells * m.blocks * (m.width * 1.5 + t.splits)
    items = t.splits * t.chunks
    return (
        _shared(max(compute, memory) + 0.4 * min(compute, memory), items, target, fit) + fold / target.cores / fit.clock
    )
