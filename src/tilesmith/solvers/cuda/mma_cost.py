"""Estimated seconds of the portable kernel: waves of blocks, each the slowest of tensor cores, shared memory, loads."""

from __future__ import annotations

from math import ceil, prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.mma_form import Lines, MmaForm
from tilesmith.solvers.cuda.mma_tile import MmaTile

_SHARED, _L2 = 128, 36  # bytes a cycle and SM
# Fitted to an H200.
_MMA_SHARE = 0.63  # of the peak, which newer archs reach with other instructions only
_STEP = 60  # cycles that a step of the ring costs beside its work
_START = 6000  # cycles of launch, tables, cold loads
_GATHER = 1.25  # what a step of a convolution costs over one of a matrix product
_LAUNCH = 2.0e-6
_CONVERTED = {"tf32": 1, "fp8e4m3": 2, "fp8e5m2": 2}
_SCATTERED_LOAD = 0.6  # cycles of an element that comes from a sector of its own
_NARROW_LOAD = 0.2  # cycles of a load of fewer than 16 bytes: lanes that load one part leave gaps
_HELD_LOAD, _HELD_WARPS = 0.25, 8  # cycles of one that passes through registers, and the warps that hide its wait
_TILE = 5000  # cycles of a convolution's tile beside its steps: taps, places of pixels, the first loads
_RESULT = (0.25, 0.1)  # cycles of a result beside its store, of matrix products and others: not hidden before or after
_SCATTERED_STORE = 0.4  # results a cycle, each into a sector of its own
_LOAD_SLOTS = 10  # issue slots of a copy instruction with its address


def predicted_seconds(t: MmaTile) -> float:
    form, target = t.form, t.target
    clock = target.clock_hz * 0.95
    resident = t.blocks_per_sm
    steps = ceil(t.steps / t.split)
    waves = ceil(t.grid / (target.cores * resident))
    busy = min(resident, ceil(t.grid / target.cores))
    # Resident blocks share an SM's units, and hide each other's waits; a block alone overlaps less.
    power = 4.0 if busy == 1 else 6.0
    work = busy * float(sum(each**power for each in _step_cycles(t, busy)) ** (1 / power))
    work *= max(1.0, 4 / (busy * t.warps)) * (1.0 if form.kind == "gemm" else _GATHER)
    per_step = max(work, _latency(t) / (t.value["stages"] - 1)) + _STEP
    stored = 24 if form.out_vector > 1 else 8 if form.out.channel == 1 else _SCATTERED_STORE
    results = busy * t.block_m * t.block_n
    epilogue = 600 + results / stored
    epilogue += _RESULT[0] * results if form.kind == "gemm" else _RESULT[1] * results + _TILE
    cycles = _START + waves * (steps * per_step + epilogue)
    seconds = max(cycles / clock, _moved(form) / (0.8 * target.bytes_per_s))
    if t.split > 1:
        seconds += _LAUNCH + (t.partial_bytes * 2) / (0.6 * target.bytes_per_s) + t.split * 15e-9
    return seconds


def _latency(t: MmaTile) -> float:
    """Cycles until a stage's bytes are there; loads without asynchronous copies wait in order."""
    return 1400.0 if min(t.form.a.vector, t.form.b.vector) * t.element_bytes >= 4 else 2000.0


def _step_cycles(t: MmaTile, busy: int) -> tuple[float, float, float, float]:
    """Cycles that one step of one block occupies the multipliers, shared memory, the L2 cache, the issue slots.

    ``busy`` blocks share an SM.
    """
    form, v, size = t.form, t.value, t.element_bytes
    bm, bn, bk = t.block_m, t.block_n, t.block_k
    target = t.target
    peaks = {"fp32": target.fp32_flops, "tf32": target.tf32_flops, "int8": target.int8_flops}
    peak = peaks.get(form.dtype, target.bf16_flops) * (0.7 if t.exact else _MMA_SHARE)
    tensor = 2.0 * bm * bn * bk / (peak / (target.clock_hz * target.cores))
    # Each warp reads its rows and columns; the copies write them.
    read = 1.0 * (bm * v["wn"] + bn * v["wm"]) * bk * size
    if t.exact:  # a thread's rows and columns, 16 bytes for each 4 of k; lanes share most of them
        wide = bm // v["wm"] // 4 + bn // v["wn"] // 8
        read = t.warps * wide * bk / 4 * 2.5 * _SHARED
    shared = (read + (bm + bn) * bk * size) / _SHARED
    for operand, extent in ((form.a, bm), (form.b, bn)):
        if _scattered(form, operand):
            shared += _SCATTERED_LOAD * extent * bk
        elif operand.vector * size < 4:
            waits = max(1.0, _HELD_WARPS / (busy * t.warps)) ** 2
            shared += _HELD_LOAD * extent * bk / operand.vector * min(8.0, waits)
        elif operand.vector * size < 16:
            shared += _NARROW_LOAD * extent * bk / operand.vector
    loads = (bm + bn) * bk * size / _L2
    copies = sum(extent * bk / operand.vector for operand, extent in ((form.a, bm), (form.b, bn)))
    products = {"fp32": 32, "tf32": 1024, "int8": 4096}.get(form.dtype, 2048)
    issue = copies / 32 * _LOAD_SLOTS / 4 + bm * bn * bk / (products * 4)
    if form.dtype in _CONVERTED:  # an instruction for each four bytes, two for fp8
        issue += read / 128 * _CONVERTED[form.dtype] / 4
    return tensor, shared, loads, issue


def _scattered(form: MmaForm, operand: Lines) -> bool:
    """Whether neighbouring lanes load from far apart (channels of ``NCHW``)."""
    channels = operand.by_k or (form.kind == "wrw" and operand is form.b)
    return operand.vector == 1 and (operand.channel if channels else operand.line) > 1


def _moved(form: MmaForm) -> float:
    """Bytes that must come from memory or go there."""
    size = form.element_bytes
    image = prod(form.size) * (form.rows // max(1, prod(form.base)))
    cols = form.channels * form.taps if form.kind == "wrw" else form.cols
    if form.kind == "gemm":
        inputs = form.groups * (form.rows + form.cols) * form.channels
    elif form.kind == "wrw":
        inputs = form.groups * form.pixels * (form.rows + form.channels)
    else:
        inputs = form.groups * form.channels * (image + form.taps * form.cols)
    results = form.layers * form.rows * cols * (1 + (form.residual is not None) + (form.beta != 0.0))
    return inputs * size + results * dtype(form.out_dtype).nbytes
