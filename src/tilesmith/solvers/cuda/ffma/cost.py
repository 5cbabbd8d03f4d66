"""Estimated seconds of the exact fp32 kernel: what its warps issue, beside what shared memory and the L2 cache move."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.ffma.tile import FfmaTile
from tilesmith.solvers.solver import steady_part

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import FfmaFit

_PARTS = 4  # of an SM, each of which issues an instruction of a warp a cycle


def predicted_seconds(t: FfmaTile, fit: FfmaFit) -> float:
    target, v, stages = t.target, t.value, t.value["stages"]
    clock = target.clock_hz * fit.clock
    resident = t.blocks_per_sm
    if t.stream:
        shares = t.tiles * t.steps / t.grid
        rounds, steps, tiles = 1.0, shares, shares / t.steps + 1.0
        busy = resident
    else:
        busy = min(resident, ceil(t.grid / target.cores))
        rounds, steps, tiles = float(ceil(t.grid / (target.cores * resident))), ceil(t.steps / v["split_k"]), 1.0
        # The last round has fewer blocks on an SM, which are faster each.
        left = t.grid - (rounds - 1) * target.cores * resident
        alone = ceil(left / target.cores)
        if alone < busy:
            rounds += _step_cycles(t, fit, alone, stages) / _step_cycles(t, fit, busy, stages) - 1
    step = _step_cycles(t, fit, busy, stages)
    epilogue = fit.tile + busy * t.block_m * t.block_n * (2 if v["warps_k"] > 1 else 1) / fit.stored
    cycles = fit.start + rounds * (steps * step + tiles * epilogue)
    seconds = max(cycles / clock, _moved(t) / (fit.bandwidth * target.bytes_per_s))
    if t.partial:
        seconds += fit.second_kernel + 2 * t.partial_bytes / (fit.partial_bandwidth * target.bytes_per_s)
    return seconds


@steady_part
def _step_cycles(t: FfmaTile, fit: FfmaFit, busy: int, stages: int) -> float:
    """Cycles of a step of each of ``busy`` blocks that share an SM."""
    rows, columns = t.thread_m, t.thread_n
    depth = t.block_k // t.value["warps_k"]
    warps = busy * t.warps / _PARTS  # of a part
    fetches = (rows + columns) / 4
    own, copies = depth * (rows * columns + fit.fetch * fetches) + fit.step, fit.copy * sum(t.copies)
    # Few warps do not hide one another's waits.
    if t.producers:  # of which each part of an SM has one warp
        issue = (max(warps, 1.0) * own + busy * copies) * (1.0 + fit.fed / max(warps, 0.5))
    else:
        issue = max(warps, 1.0) * (own + copies) * (1.0 + fit.alone / max(warps, 0.5))
    copiers = _PARTS if t.producers else t.warps
    shared = busy * (t.warps * depth * fetches * fit.passes + copiers * sum(t.copies) * fit.copy_passes)
    moved = busy * (t.block_m + t.block_n) * t.block_k * 4 / fit.l2
    busiest = float(sum(each**fit.overlap for each in (issue, shared, moved)) ** (1 / fit.overlap))
    return max(busiest, fit.latency / (stages - 1))


def _moved(t: FfmaTile) -> float:
    """Bytes that must come from memory or go there."""
    form = t.form
    results = form.rows * form.cols * dtype(form.out_dtype).nbytes
    reads = 1 + (form.residual is not None) + (form.beta != 0.0)
    return form.layers * ((form.rows + form.cols) * form.channels * 4.0 + results * reads)
