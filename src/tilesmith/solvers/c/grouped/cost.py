"""How long a config of a grouped kernel takes: a model for ranking, from the facts of a target.

A tile costs the slowest of its multiply-adds, its loads and its instructions; a problem the slower of its tiles and its
memory.
"""

from __future__ import annotations

from itertools import product
from math import ceil
from typing import TYPE_CHECKING

from tilesmith.solvers.c.common.axis import column_tiles
from tilesmith.solvers.c.common.cost import step_cycles, view_bytes
from tilesmith.solvers.c.grouped.tile import GroupedTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import GroupedFit


def predicted_seconds(t: GroupedTile, fit: GroupedFit) -> float:
    """Estimated seconds of ``run`` on ``t.target.cores`` threads."""
    cores = t.target.cores
    items = t.problem.n * t.items_per_image
    compute = t.problem.n * _image_cycles(t, fit) + items * fit.strip
    compute *= 1.06 if t.ahead else 1.0
    memory = _memory_cycles(t, fit)
    rounds = ceil(items / cores) * cores / items
    return (max(compute, memory) + 0.4 * min(compute, memory)) * rounds / cores / fit.clock


def _image_cycles(t: GroupedTile, fit: GroupedFit) -> float:
    total, lanes = 0.0, t.lanes
    blocks = lanes.blocks - (0.45 if lanes.tail and lanes.twin and not lanes.twin_in(True) else 0.0)
    for kind, width in product(t.strips, t.widths):
        read_rows = len(kind.depth.taps) * len(kind.height.positions(kind.rows))
        taps = len(kind.depth.taps) * len(kind.height.taps) * len(width.taps)
        for columns in column_tiles(width, t.columns):
            if lanes.splat:
                tile = kind.rows * _splat_cycles(t, fit, columns.width, taps)
            else:
                read = read_rows * len(width.positions(columns.width))
                tile = _lanes_cycles(t, fit, kind.rows * columns.width, taps, read)
            total += kind.count * columns.repeat * blocks * tile
    return total


def _lanes_cycles(t: GroupedTile, fit: GroupedFit, cells: int, taps: int, read: int) -> float:
    lanes, target = t.lanes, t.target
    weights = taps * lanes.steps * lanes.vectors
    products = cells * weights
    sources = read * ceil(lanes.units(False) / lanes.width)
    shuffles = 0 if lanes.inner == lanes.outer == 1 else read * lanes.steps
    narrow = _narrow(t)
    issued = products + weights + sources * (3 if narrow else 1) + shuffles + cells * (4 if narrow else 1)
    cycles = max(
        products / target.fma_per_cycle * 1.04,
        (weights + sources) / fit.loads,
        issued / fit.issued,
        taps * lanes.steps * fit.latency * 0.5,
    )
    # Compilers keep weights and inputs in registers, and spill sums where those are scarce.
    spilled = max(0, cells * lanes.vectors + target.vector_registers // 2 - target.vector_registers)
    return cycles * (1 + 0.04 * spilled) + (shuffles + (2 * sources if narrow else 0)) * 0.25 + fit.tile


def _splat_cycles(t: GroupedTile, fit: GroupedFit, columns: int, taps: int) -> float:
    """One result row of a tile: its rows take turns, so only one row's sums are in flight."""
    vectors = t.lanes.vectors
    others = 3 + (3 * columns if _narrow(t) else 0)
    products = columns * vectors / (fit.dots if t.lanes.pairs else 1.0)
    step = step_cycles(products, columns + vectors, others, fit.latency, t.target, fit)
    return taps * (t.lanes.steps * (step + 0.3) + 6.0) + fit.tile


def _narrow(t: GroupedTile) -> bool:
    """Whether every input is converted."""
    return t.x.dtype != "fp32" and not t.lanes.pairs


def _memory_cycles(t: GroupedTile, fit: GroupedFit) -> float:
    """Tensors come from and go to the level that holds them; a strip's rows are read again from nearer."""
    target = t.target
    read, written = view_bytes(t.x), view_bytes(t.y)
    whole = read + written
    again = sum(ceil(h.count / t.rows) * len(h.positions(min(t.rows, h.count))) for h in t.heights)
    near = read * max(0.0, again / t.problem.input[1] - 1) / fit.l2
    weights = t.chunk * t.block_bytes
    if weights > target.l1_bytes // 2:
        # Every tile walks through the weights of its chunk.
        tiles = sum(ceil(h.count / t.rows) for h in t.heights) * sum(ceil(w.count / t.columns) for w in t.widths)
        near += t.problem.n * tiles * t.lanes.blocks / t.chunk * weights / fit.l2
    if whole <= 0.7 * target.l2_bytes * target.cores:
        return near + whole / fit.l2 + (written / fit.dram if t.stream else 0.0)
    # A line is fetched before it is written, but for stores that pass the caches by.
    traffic = read + written * (1 if t.stream else 2)
    split = 1.0 if t.chunk >= t.lanes.blocks else 1.15
    in_l3 = whole <= 0.5 * target.l3_bytes
    rate = (fit.l3 if in_l3 else fit.dram) * (fit.ahead if t.ahead else 1.0)
    return near + traffic * split / rate + (written / fit.l3 if t.stream and in_l3 else 0.0)
