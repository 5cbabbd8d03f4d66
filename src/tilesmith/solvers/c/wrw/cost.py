"""How long a config of a dense weight gradient takes: a model for ranking."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.c.common.cost import gradient_seconds, level, step_cycles
from tilesmith.solvers.c.wrw.tile import WrwTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import WrwFit


def predicted_seconds(t: WrwTile, fit: WrwFit) -> float:
    """Estimated seconds of ``run`` on ``t.target.cores`` threads."""
    pr, target = t.problem, t.target
    # Partial sums go to memory and back for every strip.
    sums = t.tiles * t.tile_elements * 4
    traffic = pr.groups * t.units * sums * 2 / level(sums / t.parts, target, fit)
    if t.direct:
        nbytes = dtype(pr.x.dtype).nbytes
        strip = t.planes * t.rows * t.cols * pr.stride[1] * pr.stride[2] * pr.c * nbytes
        copies = 0.0
    else:
        strip = 4 * t.x_elements
        copies = t.units * pr.groups * t.parts * strip / fit.copied
        pixels = pr.n * pr.output[0] * pr.output[1] * pr.output[2]
        copies += pixels * min(t.k_blocks * t.nr, t.packed_blocks * t.nr * t.parts) * pr.groups * 4 / fit.copied
    # Every block of k reads the strip again.
    blocks = min(t.k_blocks, ceil(t.k_blocks / t.parts) + 1)
    near = level(strip + t.rows * t.cols * t.planes * t.nr * 4, target, fit)
    reread = pr.groups * t.parts * t.units * strip * blocks / near
    fold = pr.groups * t.tiles * t.tile_elements * (t.splits * 4 / level(t.partial_bytes, target, fit) + 0.6)
    cycles = _compute_cycles(t, fit) + 0.5 * traffic + copies + 0.4 * reread
    return gradient_seconds(cycles, pr.groups * t.parts * t.splits, fold, target, fit)


def _compute_cycles(t: WrwTile, fit: WrwFit) -> float:
    """All register tiles over all strips."""
    pr, target, steps_x = t.problem, t.target, 2 if t.pairs else 1
    rows = ceil(pr.output[1] / t.rows)
    steps = pr.n * pr.output[0] * pr.output[2] * (pr.output[1] // steps_x + rows * (t.rows % steps_x))
    segments = steps / t.cols
    compute = 0.0
    full, rest = divmod(t.run, t.mr)
    for mr, count in ((t.mr, full), (rest, 1 if rest else 0)):
        products = mr * t.nv
        step = step_cycles(products / (fit.dots if t.pairs else 1.0), mr + t.nv, 3, fit.latency, target, fit)
        spilled = max(0, products + t.nv + 1 - target.vector_registers)
        tile = steps * (step * (1 + 0.03 * spilled) + 0.2) + segments * fit.row
        tile += t.units * (fit.tile + products * 1.5)
        compute += count * tile
    return compute * (len(t.lines) * t.k_blocks * pr.groups)
