"""How long a config of a grouped kernel takes: a model for ranking, from the facts of a target.

A tile costs the slowest of its multiply-adds, its loads and its instructions; a problem the slower of its tiles and its
memory.
"""

from __future__ import annotations

from itertools import product
from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.c.grouped.axis import axis_phases, column_tiles
from tilesmith.solvers.c.grouped.kernel import Schedule, items_per_image, source_and_result, strips
from tilesmith.solvers.c.grouped.lanes import LaneMap
from tilesmith.targets.target import CpuTarget

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import GroupedFit


def predicted_seconds(
    problem: ConvGeometry, lanes: LaneMap, schedule: Schedule, target: CpuTarget, fit: GroupedFit
) -> float:
    """Estimated seconds of ``run`` on ``target.cores`` threads."""
    items = problem.n * items_per_image(problem, lanes, schedule)
    compute = problem.n * _image_cycles(problem, lanes, schedule, target, fit) + items * fit.strip
    compute *= 1.06 if schedule.ahead else 1.0
    memory = _memory_cycles(problem, lanes, schedule, target, fit)
    rounds = ceil(items / target.cores) * target.cores / items
    return (max(compute, memory) + 0.4 * min(compute, memory)) * rounds / target.cores / fit.clock


def _image_cycles(
    problem: ConvGeometry, lanes: LaneMap, schedule: Schedule, target: CpuTarget, fit: GroupedFit
) -> float:
    total = 0.0
    blocks = lanes.blocks - (0.45 if lanes.tail and lanes.twin and not lanes.twin_in(True) else 0.0)
    for kind, width in product(strips(problem, schedule.rows), axis_phases(problem, 2)):
        depth, height = kind.depth, kind.height
        read_rows = len(depth.taps) * len(height.positions(kind.rows))
        taps = len(depth.taps) * len(height.taps) * len(width.taps)
        for columns in column_tiles(width, schedule.columns):
            read = read_rows * len(width.positions(columns.width))
            if lanes.splat:
                tile = kind.rows * _splat_cycles(problem, lanes, target, fit, columns.width, taps)
            else:
                tile = _lanes_cycles(problem, lanes, target, fit, kind.rows * columns.width, taps, read)
            total += kind.count * columns.repeat * blocks * tile
    return total


def _lanes_cycles(
    problem: ConvGeometry, lanes: LaneMap, target: CpuTarget, fit: GroupedFit, cells: int, taps: int, read: int
) -> float:
    products = cells * taps * lanes.steps * lanes.vectors
    weights = taps * lanes.steps * lanes.vectors
    sources = read * ceil(lanes.units(False) / lanes.width)
    plain = lanes.inner == lanes.outer == 1
    shuffles = 0 if plain else read * lanes.steps
    narrow = source_and_result(problem)[0].dtype != "fp32" and not lanes.pairs
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


def _splat_cycles(
    problem: ConvGeometry, lanes: LaneMap, target: CpuTarget, fit: GroupedFit, columns: int, taps: int
) -> float:
    """One result row of a tile: its rows take turns, so only one row's sums are in flight."""
    products, loads = columns * lanes.vectors, columns + lanes.vectors
    narrow = source_and_result(problem)[0].dtype != "fp32" and not lanes.pairs
    step = max(
        products / target.fma_per_cycle,
        loads / fit.loads,
        (products + loads + 3 + (3 * columns if narrow else 0)) / fit.issued,
        fit.latency,
    )
    return taps * (lanes.steps * (step + 0.3) + 6.0) + fit.tile


def _memory_cycles(
    problem: ConvGeometry, lanes: LaneMap, schedule: Schedule, target: CpuTarget, fit: GroupedFit
) -> float:
    """Tensors come from and go to the level that holds them; a strip's rows are read again from nearer."""
    x, y = source_and_result(problem)

    def size(shape: tuple[int, ...], name: str) -> int:
        n, c, d, h, w = shape
        return n * c * d * h * w * dtype(name).nbytes

    read, written = size(x.shape, x.dtype), size(y.shape, y.dtype)
    whole = read + written
    heights = axis_phases(problem, 1)
    again = sum(ceil(h.count / schedule.rows) * len(h.positions(min(schedule.rows, h.count))) for h in heights)
    near = read * max(0.0, again / problem.input[1] - 1) / fit.l2
    taps = problem.filter[0] * problem.filter[1] * problem.filter[2]
    weights = schedule.chunk * taps * lanes.steps * lanes.vectors * lanes.width * 4
    if weights > target.l1_bytes // 2:
        # Every tile walks through the weights of its chunk.
        tiles = sum(ceil(h.count / schedule.rows) for h in heights) * sum(
            ceil(w.count / schedule.columns) for w in axis_phases(problem, 2)
        )
        near += problem.n * tiles * lanes.blocks / schedule.chunk * weights / fit.l2
    if whole <= 0.7 * target.l2_bytes * target.cores:
        return near + whole / fit.l2 + (written / fit.dram if schedule.stream else 0.0)
    # A line is fetched before it is written, but for stores that pass the caches by.
    traffic = read + written * (1 if schedule.stream else 2)
    split = 1.0 if schedule.chunk >= lanes.blocks else 1.15
    rate = (fit.l3 if whole <= 0.5 * target.l3_bytes else fit.dram) * (fit.ahead if schedule.ahead else 1.0)
    extra = written / fit.l3 if schedule.stream and whole <= 0.5 * target.l3_bytes else 0.0
    return near + traffic * split / rate + extra
