"""Estimated seconds of the phases kernel: waves of blocks, each bound by one of an SM's units, or memory."""

from __future__ import annotations

from math import ceil, prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.phases.tile import PhasesTile

_START, _TILE, _CHUNK = 5000.0, 900.0, 500.0


def phases_seconds(t: PhasesTile) -> float:
    """Estimated seconds."""
    form, target, v = t.form, t.target, t.value
    m, n = t.products
    every = (1 << n) - 1
    used = sum(bin(mask & every).count("1") for mask in t.used) / t.steps / n
    # Cycles of an SM for a tile: tensor cores, shared memory, issue slots.
    products = t.warps * m * n * t.steps * t.chunks * used
    fetched = t.warps * (m + (n + 1) // 2) * t.steps * t.chunks
    moved = t.chunks * (t.window_bytes + (0 if t.resident else t.filter_bytes))
    parts = moved / 16 * (8 / form.in_vector if form.in_vector > 1 else 8)
    results = prod(t.box) * (t.columns if not t.taps_on_n else prod(form.stride) * form.cols)
    staged = t.rows * t.block_n * t.staged_size * 2
    sums = results * prod(form.taps) if t.taps_on_n else 0
    tensor = products * 1.7
    shared = (fetched * 512 + moved + staged + sums * 6) / 128
    issue = (parts / 32 * 24 + results / t.out_vector / 32 * 36 + sums / 32 * 2 + products + fetched) / 4 * 1.3
    busy = min(v["blocks_per_sm"], ceil(t.grid / target.cores))
    of_tile = max(tensor, shared, issue) + 0.35 * (tensor + shared + issue)
    alone = (of_tile + _TILE + _CHUNK * t.chunks) / (1.0 if t.warps >= 4 else 0.7)
    turns = ceil(t.tiles * t.blocks_n / t.grid) * t.turns
    cycles = turns * max(busy * of_tile, alone * (1 + 0.15 * (busy - 1)))
    once = (t.filter_bytes * (t.chunks if t.resident else 1)) / 24
    size = dtype(form.out_dtype).nbytes
    again = t.tiles * t.turns * t.blocks_n * moved
    l2 = (again + form.outer * prod(form.out_size) * form.cols * size) / 4.0e12
    memory = form.moved_bytes / (0.8 * target.bytes_per_s)
    return max((cycles + once + _START) / (0.95 * target.clock_hz), memory + 3e-6, l2 + 3e-6)
