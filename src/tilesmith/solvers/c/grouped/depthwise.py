"""Depthwise convolution and its data gradient: every group has one channel on one side at least.

The kernels are those of grouped convolution with one multiply-add a tap; only the best tiles differ.
"""

from __future__ import annotations

from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.c.grouped.solver import GroupedSolver


class DepthwiseSolver(GroupedSolver):
    """``groups`` equals the input or the output channels: any channel multiplier."""

    name = "c_depthwise"
    op = "depthwise"
    revision = 5

    def covers(self, problem: ConvGeometry) -> bool:
        return problem.groups > 1 and problem.groups in (problem.c, problem.k)
