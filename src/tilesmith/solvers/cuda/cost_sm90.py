"""Estimated seconds of the sm_90a kernel: the slowest of tensor cores, shared memory, L2 and DRAM, wave by wave."""

from __future__ import annotations

from math import ceil, prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.form_sm90 import Tiled, Window
from tilesmith.solvers.cuda.tile_sm90 import MAX_STAGES, Sm90Tile, streams

# Fitted to 850 timings on an H200 (a log error of 0.11; the choice among those timed is 3 % from the best).
# Cycles are of the clock under load.
_CLOCK = 1.7e9
_MACS = 2048  # multiply-adds an SM starts in a cycle
_SHARED, _L2, _L2_UNSHARED = 160, 72, 56  # bytes a cycle and SM
_LINE = 128
_STEP, _ALONE, _THREE = 65, 17, 74  # cycles lost at each step of the ring, with two warpgroups, one and three
_WEIGHTS_ALONE = 0.87  # of such a step of wrw with one warpgroup alone on an SM (six timings of 27 to 38 us)
_BEYOND = 2.1  # of a step of pixels, when the last block of channels reaches beyond the last (not a block of 16 alone)
_START = 22  # cycles before the first product and after the last result, beyond an empty kernel's
_NEXT_CLUSTER = 2000  # cycles until a cluster takes the place of one that ended
_EPILOGUE = 1120  # cycles of a tile's results
_STORED, _SCATTERED = 12.9, 6.9  # results a cycle, through a tensor map (or in rows) and from registers
_KEPT_SUMS = 6.5  # partial sums a cycle that go to memory
_REDUCE, _SENT = 3400, 9.9  # cycles of a cluster's sum, and bytes a cycle that its blocks send one another
_PAIRED, _PAIRED_TILE = 3000, 150  # cycles that a cluster that shares columns waits for itself, at its ends and a tile
_HIDDEN = 0.23  # of an epilogue beside another tile's products
_LATENCY = 2820  # cycles from asking for bytes of DRAM to their use
# GEMMs that memory bounds (183 timings of eight of them): cycles until a stage is there again beside the one that is
# held, bytes a cycle that fill it; what half-used boxes cost, a ring of all that fits (of few k-major rows, else), and
# up to 16 rows as the columns of a tile.
_REFILL, _FILLED = 1700, 55
_HALF_USED = 0.2
_FULL_RING_FEW, _FULL_RING, _FEW_AS_COLUMNS = 0.96, 1.03, 0.97
_OVERLAP = 0.14  # what the lesser of computing and moving adds to the greater
_SUM = 1.7e-6  # seconds of one more launch
_PARTIAL_BYTES = 2.7e12  # bytes of partial sums a second, written and read through L2
_EXCHANGED, _KEPT = 0.02, 0.03  # of the time: what turning results around costs, what columns that stay save
_TORN_SECTOR, _TORN_LINE = 420, 100  # bytes of DRAM for 32 bytes, or 128, that two tiles write
_BOTH = 1.5  # of the time to move: clusters along k of several slices read DRAM worse than either
_CLUSTERED = {  # clusters of a size that lie on the chip at once, by blocks an SM: one lies in one part of it
    1: {2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}, 2: {2: 132, 3: 79, 4: 62, 5: 47, 6: 39, 7: 32, 8: 30},
}  # fmt: skip


def predicted_seconds(t: Sm90Tile) -> float:
    form, v = t.form, t.value
    bm, bn = t.block_m, t.block_n
    per_sm, split = v["per_sm"], v["split"]
    steps = sum(t.layer_steps) / len(t.layer_steps) / t.parts
    blocks = t.tiles * split * v["cast"]
    slots = t.target.cores * per_sm // v["cast"] * v["cast"]
    if split > 1:
        slots = _CLUSTERED[per_sm][split] * t.target.cores // 132 * split
    waves = ceil(blocks / slots)
    # An SM's blocks share its tensor cores and copies.
    busy = min(per_sm, ceil(blocks / t.target.cores))
    per_step = _step_cycles(t) * busy
    epilogue = _EPILOGUE + bm * bn / (_STORED if t.store in ("MAPPED", "ROWS") else _SCATTERED)
    if t.store == "PARTIAL":
        epilogue = bm * bn / _KEPT_SUMS
    if split > 1:
        epilogue = _REDUCE + bm * bn * 4 * (1 - 1 / split) / _SENT
    if form.residual is not None or form.beta:
        epilogue *= 1.5
    hidden = _HIDDEN if (t.pingpong or busy > 1) and waves > 1 else 1.0
    cycles = waves * steps * per_step + (waves - 1) * epilogue * hidden
    if split > 1:
        cycles += (waves - 1) * _NEXT_CLUSTER
    if v["cast"] > 1:
        cycles += _PAIRED + waves * _PAIRED_TILE
    ring = t.stages * t.stage_bytes * busy
    loaded = steps * waves * t.stage_bytes * busy
    # Bytes in flight over the way from DRAM.
    if streams(form, t.target):
        cycles = max(cycles, steps * waves * (_REFILL + t.stage_bytes * busy / _FILLED) / (t.stages - 1), _LATENCY)
    else:
        cycles = max(cycles, loaded / ring * _LATENCY if ring < loaded else _LATENCY)
    computing, moving = (cycles + _START) / _CLOCK, _dram_seconds(t) * _streaming(t)
    if split > 1 and v["slices"] > 1:
        moving *= _BOTH
    # The last tile's results leave when everything has been read.
    seconds = max(computing, moving) + _OVERLAP * min(computing, moving) + epilogue / _CLOCK
    if v["slices"] > 1:
        partial = t.partial_quads * 16 * v["slices"]
        seconds += _SUM + partial / _PARTIAL_BYTES
    exchanged = _EXCHANGED * (form.transposed and not streams(form, t.target))
    return seconds * (1 + exchanged) * (1 - _KEPT * v["resident"])


def _streaming(t: Sm90Tile) -> float:
    """What a GEMM that memory bounds takes in a tile of this kind, over its bytes."""
    form = t.form
    if not streams(form, t.target):
        return 1.0
    by_columns = form.a_columns if form.rows > form.cols else form.b_columns  # of the operand that streams
    few = not by_columns and min(form.rows, form.cols) <= 64
    factor = 1 + _HALF_USED * (t.b_read / t.block_n - 1) if form.b_columns else 1.0
    if t.value["stages"] == MAX_STAGES and t.block_k == 64:
        factor *= _FULL_RING_FEW if few else _FULL_RING
    elif t.value["stages"] == MAX_STAGES and few:
        factor *= _FULL_RING_FEW
    return factor * _FEW_AS_COLUMNS if form.transposed and form.cols <= 16 else factor


def _step_cycles(t: Sm90Tile) -> float:
    """Cycles of one step of one tile."""
    bm, bn, span = t.block_m, t.block_n, t.block_k * 2
    slab = t.value["slab"] if t.form.b_columns else 1
    columns = ceil(bn / slab) * slab
    tensor = bm * bn * t.block_k / _MACS
    # A product of 64 rows reads its operands from shared memory; the copies write them.
    rows, columns = t.a_read, t.b_read if t.form.kind == "gemm" else columns
    shared = (bm / 64 * (64 + bn) + rows + columns) * span / _SHARED
    if t.value["resident"]:
        columns = 0
    # Neighbouring SMs that read the same bytes share what L2 sends them; those of a split cluster read different ones.
    rate = _L2 if t.value["split"] == 1 or streams(t.form, t.target) else _L2_UNSHARED
    # NOTE: a row of fewer than 128 bytes takes the copy engine as long as a whole one (2 cycles, seen with 64 bytes).
    a_span, b_span = (span if by_columns else max(span, _LINE) for by_columns in (t.form.a_columns, t.form.b_columns))
    if t.form.b_columns and slab == 32:
        b_span *= 2
    loads = (rows * a_span * _request(t.form.a) + columns * b_span / t.value["cast"] * _request(t.form.b)) / rate
    cycles = max(tensor, shared, loads) + _STEP + (_ALONE / t.value["mi"], 0, _THREE)[t.value["wgs"] - 1]
    v = t.value
    if t.form.kind == "conv" and t.blocks * t.block_k > t.form.channels and (t.blocks > 1 or t.block_k > 16):
        cycles *= _BEYOND
    alone = t.form.kind == "wrw" and (v["wgs"], v["mi"], v["per_sm"], v["slices"]) == (1, 1, 1, 1) and bn <= 192
    return cycles * _WEIGHTS_ALONE if alone else cycles


def _request(operand: Tiled | Window) -> float:
    """What a row of 128 bytes costs that begins within a sector of 32: it is read as two."""
    if isinstance(operand, Window):
        return 1.0
    steps = zip(operand.dims[1:], operand.strides, strict=True)
    return 2.0 if any(size > 1 and 2 * stride % 32 for size, stride in steps) else 1.0


def _dram_seconds(t: Sm90Tile) -> float:
    form = t.form
    sizes = [prod(operand.dims) * 2 for operand in (form.a, form.b) if isinstance(operand, Tiled | Window)]
    out = form.layers * form.rows * form.cols
    if form.kind == "wrw":
        out = form.rows * len(form.taps.offset) * form.channels
    moved = sum(sizes) + out * dtype(form.out_dtype).nbytes * (1 + (form.residual is not None) + (form.beta != 0.0))
    return (moved + form.layers * form.rows * _torn_bytes(t)) / t.target.bytes_per_s


def _torn_bytes(t: Sm90Tile) -> int:
    """Bytes of DRAM a row for the sectors and lines that two tiles write."""
    if t.form.transposed or t.form.kind == "wrw":
        return 0
    edges = [i * t.block_n * dtype(t.form.out_dtype).nbytes for i in range(1, min(t.tiles_n, 9))]
    torn = sum(_TORN_SECTOR if edge % 32 else _TORN_LINE if edge % 128 else 0 for edge in edges)
    return torn * max(t.tiles_n - 1, 0) // max(len(edges), 1)


def bound_by_memory(t: Sm90Tile) -> bool:
    return _dram_seconds(t) > 0.6 * predicted_seconds(t)
