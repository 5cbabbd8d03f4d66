"""Estimated seconds of the sm_90a kernel: the slowest of tensor cores, shared memory, L2 and DRAM, by waves of tiles."""

from __future__ import annotations

from math import ceil, prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.form_sm90 import Tiled, Window
from tilesmith.solvers.cuda.tile_sm90 import Sm90Tile

# Fitted to an H200. Cycles are of the clock under load.
_CLOCK = 1.7e9
_MACS = 2048  # multiply-adds an SM starts in a cycle
_SHARED, _L2 = 128, 48  # bytes a cycle and SM
_STEP = 40  # cycles lost at each step of the ring
_START = 2500  # cycles before the first product: launch, barriers, cold loads
_LAUNCH = 2.0e-6  # seconds of one more launch
_DRAM_SHARE = 0.85


def predicted_seconds(t: Sm90Tile) -> float:
    form, v = t.form, t.value
    per_step = _step_cycles(t)
    bm, bn = t.block_m, t.block_n
    steps = sum(t.layer_steps) / len(t.layer_steps) / t.parts
    tiles = t.tiles * v["split"]
    waves = ceil(tiles / t.target.cores)
    # Half the sums leave through 32 lanes' stores; pingpong hides all but the last tile's.
    epilogue = 400 + bm * bn / (16 if t.store in ("MAPPED", "ROWS") else 10)
    if t.store == "REDUCED":
        epilogue = 3000 + bm * bn / 6
    if form.residual is not None or form.beta:
        epilogue *= 1.5
    if t.pingpong and waves > 1:
        cycles = waves * (steps * per_step + 150) + epilogue
    elif t.pingpong:
        cycles = steps * per_step * 1.15 + epilogue
    else:
        cycles = waves * (steps * per_step + epilogue)
    if v["split"] > 1:
        cycles += (waves - 1) * _START / 2
    ring = t.stages * t.stage_bytes
    if ring < 100_000:  # too few bytes in flight to hide the way from DRAM
        cycles *= 1 + 0.15 * (100_000 - ring) / 100_000
    busy, moving = (cycles + _START) / _CLOCK, _dram_seconds(t)
    # The two overlap, but never quite.
    seconds = max(busy, moving) + 0.15 * min(busy, moving)
    if v["slices"] > 1:
        partial = form.rows * form.channels * len(form.taps.offset) * 4 * v["slices"]
        seconds += _LAUNCH + 2 * partial / (0.7 * t.target.bytes_per_s)
    return seconds


def _step_cycles(t: Sm90Tile) -> float:
    """Cycles of one step of one tile."""
    bm, bn, span = t.block_m, t.block_n, t.block_k * 2
    columns = ceil(bn / 64) * 64 if t.form.b_columns else bn
    tensor = bm * bn * t.block_k / _MACS
    # A product of 64 rows reads its operands from shared memory; the copies write them.
    shared = (bm / 64 * (64 + bn) + bm + columns) * span / _SHARED
    loads = (bm + columns) * span / _L2
    return max(tensor, shared, loads) + _STEP


def _dram_seconds(t: Sm90Tile) -> float:
    form = t.form
    sizes = [prod(operand.dims) * 2 for operand in (form.a, form.b) if isinstance(operand, Tiled | Window)]
    out = form.layers * form.rows * form.cols
    if form.kind == "wrw":
        out = form.rows * len(form.taps.offset) * form.channels
    moved = sum(sizes) + out * dtype(form.out_dtype).nbytes * (1 + (form.residual is not None) + (form.beta != 0.0))
    return moved / (_DRAM_SHARE * t.target.bytes_per_s)
