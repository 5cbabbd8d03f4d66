"""Estimated seconds of the portable kernel: waves of blocks, each the slowest of tensor cores, shared memory, loads."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.common.dense import DenseForm, Lines
from tilesmith.solvers.cuda.common.listed import ROUNDED
from tilesmith.solvers.cuda.mma.tile import MAX_STAGES, MmaTile
from tilesmith.solvers.solver import steady_part

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import MmaFit

_CONVERTED = {"tf32": 1, "fp8e4m3": 2, "fp8e5m2": 2}


def predicted_seconds(t: MmaTile, fit: MmaFit) -> float:
    resident, cores = t.blocks_per_sm, t.target.cores
    steps = ceil(t.steps / t.split)
    waves = ceil(t.grid / (cores * resident))
    busy = min(resident, ceil(t.grid / cores))
    per_step = max(_work(t, fit, busy), _latency(t, fit) / (t.value["stages"] - 1)) + fit.step
    return _seconds(t, fit, waves * (steps * per_step + _epilogue(t, fit, busy)), t.split)


def least_seconds(t: MmaTile, fit: MmaFit) -> float:
    """No more than the estimate of ``t``, of two stages and whole sums, nor of any tile that it is changed to.

    No more blocks than those of ``t`` share an SM, and all SMs have as much to do.
    """
    resident, cores = t.blocks_per_sm, t.target.cores
    work, waited = _work(t, fit, resident) / resident, _latency(t, fit) / (MAX_STAGES - 1)

    def least(split: int) -> float:
        each = ceil(t.tiles * split / cores)  # blocks of an SM
        steps, waves = ceil(t.steps / split), ceil(each / resident)
        cycles = steps * (max(each * work, waves * waited) + waves * fit.step)
        return _seconds(t, fit, (cycles + waves * _epilogue(t, fit, each / waves)) * ROUNDED, split)

    return min(map(least, t.splits))


def _epilogue(t: MmaTile, fit: MmaFit, busy: float) -> float:
    """Cycles in which ``busy`` blocks of an SM store their results."""
    form, results = t.form, busy * t.block_m * t.block_n
    stored = fit.stored_wide if form.out_vector > 1 else fit.stored if form.out.channel == 1 else fit.scattered_store
    epilogue = fit.epilogue + results / stored
    return epilogue + (fit.result_gemm * results if form.kind == "gemm" else fit.result_conv * results + fit.tile)


def _seconds(t: MmaTile, fit: MmaFit, cycles: float, split: int) -> float:
    """Seconds of ``cycles`` of an SM, of memory, and of the kernel that adds ``split`` parts."""
    target = t.target
    computing = (fit.start + cycles) / (target.clock_hz * fit.clock)
    seconds = max(computing, t.form.moved_bytes / (fit.bandwidth * target.bytes_per_s))
    if split > 1:
        moved = (split * t.sum_bytes * 2) / (fit.partial_bandwidth * target.bytes_per_s)
        seconds += fit.second_kernel + moved + split * fit.partial
    return seconds


@steady_part
def _work(t: MmaTile, fit: MmaFit, busy: int) -> float:
    """Cycles that ``busy`` blocks, which share an SM's units, work on a step, and hide each other's waits."""
    power = 4.0 if busy == 1 else 6.0  # a block alone overlaps less
    work = busy * float(sum(each**power for each in _step_cycles(t, busy, fit)) ** (1 / power))
    return work * (max(1.0, 4 / (busy * t.warps)) * (1.0 if t.form.kind == "gemm" else fit.gather))


def _latency(t: MmaTile, fit: MmaFit) -> float:
    """Cycles until a stage's bytes are there; loads without asynchronous copies wait in order."""
    return fit.latency if min(t.form.a.vector, t.form.b.vector) * t.element_bytes >= 4 else fit.latency_in_order


def _step_cycles(t: MmaTile, busy: int, fit: MmaFit) -> tuple[float, float, float, float]:
    """Cycles that one step of one block occupies the multipliers, shared memory, the L2 cache, the issue slots.

    ``busy`` blocks share an SM.
    """
    form, v, size = t.form, t.value, t.form.element_bytes
    bm, bn, bk = t.block_m, t.block_n, t.block_k
    target = t.target
    peaks = {"fp32": target.fp32_flops, "tf32": target.tf32_flops, "int8": target.int8_flops}
    peak = peaks.get(form.dtype, target.bf16_flops) * (fit.exact if t.exact else fit.mma)
    tensor = 2.0 * bm * bn * bk / (peak / (target.clock_hz * target.cores))
    # Each warp reads its rows and columns; the copies write them.
    read = 1.0 * (bm * v["warps_n"] + bn * v["warps_m"]) * bk * size
    if t.exact:  # a thread's rows and columns, 16 bytes for each 4 of k; lanes share most of them
        wide = bm // v["warps_m"] // 4 + bn // v["warps_n"] // 8
        read = t.warps * wide * bk / 4 * 2.5 * fit.shared
    shared = (read + (bm + bn) * bk * size) / fit.shared
    for operand, extent in ((form.a, bm), (form.b, bn)):
        if _scattered(form, operand):
            shared += fit.scattered_load * extent * bk
        elif operand.vector * size < 4:
            waits = max(1.0, fit.held_warps / (busy * t.warps)) ** 2
            shared += fit.held_load * extent * bk / operand.vector * min(8.0, waits)
        elif operand.vector * size < 16:
            shared += fit.narrow_load * extent * bk / operand.vector
    loads = (bm + bn) * bk * size / fit.l2
    copies = sum(extent * bk / operand.vector for operand, extent in ((form.a, bm), (form.b, bn)))
    products = {"fp32": 32, "tf32": 1024, "int8": 4096}.get(form.dtype, 2048)
    issue = copies / 32 * fit.load_slots / 4 + bm * bn * bk / (products * 4)
    if form.dtype in _CONVERTED:  # an instruction for each four bytes, two for fp8
        issue += read / 128 * _CONVERTED[form.dtype] / 4
    return tensor, shared, loads, issue


def _scattered(form: DenseForm, operand: Lines) -> bool:
    """Whether neighbouring lanes load from far apart (channels of ``NCHW``)."""
    channels = operand.by_k or (form.kind == "wrw" and operand is form.b)
    return operand.vector == 1 and (operand.channel if channels else operand.line) > 1
