"""Estimated seconds of the dp4a kernel: the slower of instructions and memory."""

from __future__ import annotations

from math import prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.dp4a.tile import Dp4aTile

# Facts of the instruction set, and estimates that no card was measured for.
_PER_CYCLE = 64  # dp4a, and byte permutations, that an SM starts
_START_S = 2.5e-6  # an empty launch between two events
_SHARE = 0.85  # of a large copy's bandwidth
_WARPS = 16  # on an SM hide the latency of memory


def predicted_seconds(t: Dp4aTile) -> float:
    """Both overlap. A result of a tile that reaches beyond the image costs as much as the others."""
    g, v, target = t.g, t.value, t.target
    # A word of four pixels of four channels takes eight permutations and as many loads as it has pixels.
    moves = t.rows * v["channels_per_thread"] / 4 * (t.pixels * 3 + t.fours)
    instructions = t.threads * (t.products + moves + 40)
    resident = min(target.registers_per_sm // (min(255, t.registers) * 32), target.threads_per_sm // 32)
    hidden = float(min(1.0, resident / _WARPS) ** 0.5) * min(1.0, t.threads / 32 / target.cores / _WARPS + 0.2)
    busy = instructions / (_PER_CYCLE * target.cores * target.clock_hz * hidden)
    result = prod(g.y.shape) * dtype(g.y.dtype).nbytes
    again = 1.0 if v["columns_per_thread"] >= 4 else 1.1  # rows of x that L1 has lost
    return max(busy, (prod(g.x.shape) * again + result) / (_SHARE * target.bytes_per_s)) + _START_S
