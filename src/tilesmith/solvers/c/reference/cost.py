"""How long the reference takes: enough to rank it behind kernels made for a problem."""

from __future__ import annotations

from math import prod

from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers.c.reference.text import N
from tilesmith.solvers.solver import Geometry
from tilesmith.targets.target import CpuTarget


def predicted_seconds(problem: Geometry, target: CpuTarget) -> float:
    """A gathered operand costs about 2 ns, and a tile's channels share it."""
    if isinstance(problem, GemmGeometry):
        products, channels = problem.batch * problem.m * problem.n * problem.k, problem.n
    else:
        g, way = problem, problem.direction
        shape = {"fwd": g.y.shape, "bwd": g.x.shape, "wrw": g.w.shape, "bgrad": (g.k,)}[way]
        products, channels = prod(shape) * g.reduction_length, (g.c if way == "bwd" else g.k) // g.groups
        if way == "bwd":
            products //= prod(g.stride)
    return products * 2e-9 / min(N, channels) / target.cores + 5e-6
