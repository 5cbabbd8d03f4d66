"""Estimated seconds of convolutions of few input channels."""

from __future__ import annotations

from math import ceil, prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.first.tile import FirstTile
from tilesmith.solvers.cuda.first.weights import WeightsTile

_START_S = 4e-6
_MMA_MACS, _WGMMA_MACS = 1100, 1700  # a cycle and SM
_SHARED = 110  # bytes a cycle and SM
_BANDWIDTH = 0.8


def first_seconds(t: FirstTile) -> float:
    """The slowest of memory, tensor cores, shared memory and instructions, and some of the others."""
    g, target = t.g, t.target
    turns = ceil(t.all_tiles * t.blocks_n / (target.cores * t.value["blocks_per_sm"])) * t.value["blocks_per_sm"]
    units = prod(t.window) * t.per_pixel
    macs = t.pixels * t.block_n * t.steps * 16
    rows = t.warps * t.parts
    gathered = rows * t.steps * 512
    filters = t.steps * t.block_n * 32 * (t.warps // 4 * t.parts if t.wgmma else t.warps)
    staged = 2 * t.pixels * t.block_n * dtype(g.y.dtype).nbytes
    shared = (gathered + filters + staged + units * 8) / _SHARED
    issued = units / 32 * (20 + 6 * (1 if t.vector == 4 else g.c * t.taps)) / 4 + rows * t.block_n * 3 / 4
    tensor = macs / (_WGMMA_MACS if t.wgmma else _MMA_MACS)
    parts = sorted((tensor, shared, issued))
    cycles = turns * (parts[2] + (0.5 * parts[1] + 0.3 * parts[0]) / float(t.value["blocks_per_sm"] ** 0.5))
    start = t.block_n * len(t.units) / (32 * t.warps) * 60 / t.value["blocks_per_sm"] + 2500
    moved = prod(g.x.shape) * 2 + prod(g.y.shape) * dtype(g.y.dtype).nbytes
    memory = moved / (_BANDWIDTH * target.bytes_per_s)
    busy = (cycles + start) / target.clock_hz
    return max(memory, busy) + 0.3 * min(memory, busy) + _START_S


def weights_seconds(t: WeightsTile) -> float:
    """The same for backward weights, and the sum of the blocks' sums."""
    g, target, each = t.g, t.target, t.value["blocks_per_sm"]
    turns = ceil(t.all_tiles / t.slices) * ceil(t.slices * t.blocks_m / target.cores)
    steps = t.pixels / 16
    tiles = t.unit_warps * t.groups * t.elements * t.parts
    tensor = steps * tiles * 16 * 8 * 16 / _MMA_MACS
    copied = prod(t.window) * t.per_pixel * 8 + 2 * t.pixels * t.parts * 32
    shared = (steps * t.unit_warps * (t.parts * 512 + t.groups * 1024) + copied) / _SHARED
    exchanged = t.unit_warps * t.groups * (t.elements * 2 + (40 if t.ragged else 12))
    issued = (steps * (tiles + exchanged + t.unit_warps * (t.parts + 10))) / 4
    issued += prod(t.window) * t.per_pixel / 32 * (20 + 6 * (1 if t.vector == 4 else g.c * t.taps)) / 4
    parts = sorted((tensor, shared, issued))
    alone = 1.0 + 0.8 / (each * t.warps / 4)
    cycles = turns * (parts[2] + 0.5 * parts[1] + 0.3 * parts[0]) * alone
    moved = prod(g.x.shape) * 2 + prod(g.y.shape) * 2 * -(-g.k // (16 * t.parts)) / t.blocks_m
    memory = moved / (_BANDWIDTH * target.bytes_per_s)
    busy = (cycles + 2500) / target.clock_hz
    return max(memory, busy) + 0.3 * min(memory, busy) + t.partial_bytes * 2 / 3e12 + _START_S + 2.5e-6
