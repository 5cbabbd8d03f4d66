"""The solvers of processors: best first, the plain reference last. Adding a kernel family is one line here."""

from __future__ import annotations

from tilesmith.solvers.c.bgrad.solver import BgradSolver
from tilesmith.solvers.c.common.relayout import CPU_COPIES
from tilesmith.solvers.c.dense.solver import DenseSolver
from tilesmith.solvers.c.grouped.solver import DepthwiseSolver, GroupedSolver
from tilesmith.solvers.c.reference.solver import ReferenceSolver
from tilesmith.solvers.c.tiles.solver import TilesSolver
from tilesmith.solvers.c.tiles_wrw.solver import TilesWrwSolver
from tilesmith.solvers.c.wrw.solver import WrwSolver
from tilesmith.solvers.c.wrw_grouped.solver import WrwGroupedSolver
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.relayout import Relayout
from tilesmith.targets.target import CpuTarget

_FAST: tuple[Solver[CpuTarget], ...] = (
    DepthwiseSolver(),
    GroupedSolver(),
    TilesSolver(),
    DenseSolver(),
    WrwGroupedSolver(),
    TilesWrwSolver(),
    WrwSolver(),
    BgradSolver(),
)

# Each fast solver once more with layout changes around it.
CPU_SOLVERS: tuple[Solver[CpuTarget], ...] = (
    *_FAST,
    *(Relayout(solver, CPU_COPIES) for solver in _FAST),
    ReferenceSolver(),
)
