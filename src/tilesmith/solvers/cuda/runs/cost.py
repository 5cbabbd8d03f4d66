"""Estimated seconds: tensor cores, shared memory and what a block waits for, beside memory."""

from __future__ import annotations

from math import ceil, gcd, prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.runs.back import BackTile
from tilesmith.solvers.cuda.runs.tile import RunsTile, RunsWeightsTile

# NOTE: cycles of an H200 by its instruction set, not yet fitted; see notes.md.
_START_S, _SECOND_S = 4e-6, 3e-6
_CLOCK = 0.95  # of the boost clock, under load
_BANDWIDTH = 0.8
_PRODUCT = 1.8  # of an SM, 16 x 8 x 16
_FRAGMENT = 4.0  # 512 bytes of shared memory
_COPY = 1.2  # of 32 copies, and their addresses
_WAIT = 900  # of a stage
_CACHED = 5e12  # bytes a second
_PARTIAL_BYTES_S = 2.5e12


def _conflicts(step: int) -> int:
    """Times that a fragment is read, since rows of 16 bytes lie in the same banks."""
    return gcd(step // 8, 8)


def runs_seconds(t: RunsTile) -> float:
    """Forward."""
    form, v = t.form, t.value
    h, w = t.grid_of_warps
    rows = v["rows"] + form.taps - 1
    k_steps = ceil(form.k_steps / v["warps_k"]) * v["warps_k"]
    used = form.g.filter[1] / (form.taps * form.phases)  # of the taps of all phases
    products = h * w * k_steps * v["rows"] * v["parts"] * form.taps * used * t.products_n
    fragments = h * w * k_steps * rows * v["parts"] * _conflicts(form.step)
    copies = (v["tile_h"] + form.taps - 1) * t.chunks / 32
    filters = h * w * k_steps * t.quads  # 512 bytes from a cache
    step = max(products * _PRODUCT, fragments * _FRAGMENT + filters * _FRAGMENT * 2) + copies * _COPY
    busy = min(v["blocks_per_sm"], ceil(t.blocks / t.target.cores))
    turns = ceil(t.tiles * t.blocks_n / t.blocks)
    # One tile's results leave while nothing is multiplied.
    last = 1500 + 600 * v["warps_k"]
    alone = step + _WAIT / v["stages"] + 300 * ceil(k_steps / v["warps_k"]) / 4
    cycles = turns * (form.steps * max(busy * step, alone) + last)
    loaded = t.tiles * t.blocks_n * form.steps * (t.stage_bytes + 512 * form.k_steps * t.quads)
    moved = prod(form.g.x.shape) * 2 * t.blocks_n + prod(form.g.y.shape) * dtype(form.g.y.dtype).nbytes
    return _together(t, cycles, loaded, moved) + _START_S


def weights_seconds(t: RunsWeightsTile) -> float:
    """Backward weights, and the sum of the slices."""
    form, v = t.form, t.value
    k_steps = ceil(min(v["tile_w"], form.g.output[2]) / 16)
    m = t.tiles_m * v["warps_e"] * v["warps_a"]
    products = k_steps * m * form.taps * t.products_n
    fragments = k_steps * m * _conflicts(form.step)
    words = k_steps * t.warps * form.taps * t.products_n * 4  # of dy, 64 bytes each
    copies = (v["warps_a"] * t.chunks + form.taps * t.dy_bytes / form.copy_y) / 32
    step = max(products * _PRODUCT, fragments * _FRAGMENT + words) + copies * _COPY
    busy = min(v["blocks_per_sm"], ceil(t.slices * t.groups / t.target.cores))
    alone = step + _WAIT / (v["stages"] - 1) + 250 * k_steps
    cycles = ceil(t.items / t.slices) * max(busy * step, alone) + 3000
    loaded = t.items * t.groups * t.stage_bytes
    moved = prod(form.g.x.shape) * 2 * t.blocks_n + prod(form.g.y.shape) * 2
    return _together(t, cycles, loaded, moved) + _START_S + _SECOND_S + 2 * t.partial_bytes / _PARTIAL_BYTES_S


def _together(t: RunsTile | RunsWeightsTile | BackTile, cycles: float, loaded: float, moved: float) -> float:
    memory = moved / (_BANDWIDTH * t.target.bytes_per_s)
    busy = cycles / (_CLOCK * t.target.clock_hz)
    slow = max(memory, busy, loaded / _CACHED)
    return slow + 0.15 * (memory + busy - min(memory, busy, slow))


def back_seconds(t: BackTile) -> float:
    """Backward data: a block computes a tile while the other blocks of the SM store theirs."""
    form, v = t.form, t.value
    m, n = t.products
    products = t.warps * m * n * form.k_steps * v["phase_rows"]
    filters = t.warps * n * t.k_pairs * v["phase_rows"]
    results = v["phase_rows"] * t.tile_h * t.tile_w * form.step
    fragments = t.warps * m * form.k_steps
    shared = (filters + fragments) * _FRAGMENT + results * t.staged_size / 128 * 2.5
    stores = results / form.out_vector / 32
    loads = prod(t.window) * form.pixel_pieces * 8 / form.in_vector / 32
    issued = (stores * 12 + loads * 10 + products * 1.3) / 4
    step = max(products * _PRODUCT, shared, issued)
    busy = min(v["blocks_per_sm"], ceil(t.blocks / t.target.cores))
    alone = products * 8 / t.warps + filters * 8 / t.warps + stores * 20 / t.warps + 1800
    turns = ceil(t.tiles * t.groups / t.blocks)
    cycles = turns * max(busy * step, alone) + 2500 + v["phase_rows"] * t.filter_bytes / 24
    written = prod(form.g.x.shape) * dtype(form.g.x.dtype).nbytes * (1 + form.g.epilogue.residual)
    moved = written + prod(form.g.y.shape) * 2
    loaded = written + t.tiles * t.groups * prod(t.window) * form.g.k * 2
    return _together(t, cycles, loaded, moved) + _START_S
