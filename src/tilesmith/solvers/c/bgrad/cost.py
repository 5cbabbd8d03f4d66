"""How long a config of the bias gradient takes: a model for ranking."""

from __future__ import annotations

from math import ceil, prod

from tilesmith.solvers.c.bgrad.tile import BgradTile


def predicted_seconds(t: BgradTile) -> float:
    """Seconds of ``run``: bytes from memory at about 8 a cycle; narrow blocks visit each row more often."""
    y, k = t.problem.y, t.problem.k
    visits = ceil(ceil(k / t.target.lanes(4)) / t.vectors) if y.channels_last else 1
    memory = prod(y.shape) * 4 / 32e9 * (1 + 0.02 * visits)
    return (memory + t.splits * k * 1e-9) / min(t.target.cores, t.splits) + 2e-6
