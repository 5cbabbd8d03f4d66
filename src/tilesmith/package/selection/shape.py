"""The shape of a GPU kernel: the tile of a block, the stages of its ring, the oldest arch that has its instructions.

Families name the axes of their configs as they need them; what users of kernel libraries choose by is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilesmith.solvers.cuda.common.solver import Sm90Solver
from tilesmith.solvers.cuda.mirrored.solver import Mirrored
from tilesmith.solvers.limited import Limited
from tilesmith.solvers.relayout import Relayout
from tilesmith.solvers.solver import Config, Geometry
from tilesmith.targets.target import CudaTarget


@dataclass(frozen=True)
class KernelShape:
    """The shape of one config's main kernel.

    ``block_m`` x ``block_n`` are the results of a block, ``block_k`` the depth of a step; 0 where a family has none.
    ``stages`` counts those that the ring has, 0 for a kernel without one. ``arch`` is the oldest that has the kernel's
    instructions, as a number: 80 for sm_80.
    """

    block_m: int
    block_n: int
    block_k: int
    stages: int
    arch: int

    @property
    def tile(self) -> str:
        """Such as ``128x128x32``; empty where the family has none."""
        return "x".join(str(each) for each in (self.block_m, self.block_n, self.block_k) if each)

    @property
    def arch_stages(self) -> str:
        """Such as ``sm80_3``; empty for a kernel without a ring."""
        return f"sm{self.arch}_{self.stages}" if self.stages else ""


def shape_of(solver: Any, problem: Geometry, config: Config, target: CudaTarget) -> KernelShape:
    """The shape of ``config`` of a CUDA solver of the table on a problem that it accepts."""
    if isinstance(solver, Limited):
        solver = solver.inner
    while isinstance(solver, Relayout | Mirrored):
        problem, solver = solver.changed(problem), solver.inner
    tile = solver.tile(problem, config, target) if hasattr(solver, "tile") else None
    block_m, block_n = getattr(tile, "block_m", 0), getattr(tile, "block_n", 0)
    if not (block_m and block_n):  # a window or a strip, no tile of a product
        block_m = block_n = 0
    # A tile says how many stages it has where its config leaves that to what fits.
    stages = getattr(tile, "stages", dict(config.values).get("stages", 0))
    return KernelShape(
        block_m, block_n, getattr(tile, "block_k", 0) if block_m else 0, stages,
        90 if isinstance(solver, Sm90Solver) else 80,
    )  # fmt: skip
