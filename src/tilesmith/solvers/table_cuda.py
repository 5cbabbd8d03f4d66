"""The solvers of GPUs: best first, the plain reference last. Adding a kernel family is one line here."""

from __future__ import annotations

from tilesmith.problems.features import CONVOLUTIONS
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.cuda.channel_sums.solver import ChannelSumsSolver
from tilesmith.solvers.cuda.common.relayout import CUDA_COPIES
from tilesmith.solvers.cuda.depthwise.solver import DepthwiseCudaSolver
from tilesmith.solvers.cuda.depthwise_mma.solver import DepthwiseMmaSolver
from tilesmith.solvers.cuda.depthwise_planes.solver import DepthwisePlanesSolver
from tilesmith.solvers.cuda.dp4a.solver import Dp4aSolver
from tilesmith.solvers.cuda.ffma.solver import FfmaGemmSolver
from tilesmith.solvers.cuda.first.solver import FirstLayerSolver, FirstLayerWrwSolver
from tilesmith.solvers.cuda.first_rows.solver import FirstRowsSolver, FirstRowsWrwSolver
from tilesmith.solvers.cuda.first_rows.wide_solver import WideRowsWrwSolver
from tilesmith.solvers.cuda.halo.solver import HaloSm90Solver
from tilesmith.solvers.cuda.halo_wrw.solver import HaloWrwSm90Solver
from tilesmith.solvers.cuda.mirrored.solver import Mirrored
from tilesmith.solvers.cuda.mma.solver import MmaDenseSolver
from tilesmith.solvers.cuda.narrow_groups.solver import NarrowGroupsSolver
from tilesmith.solvers.cuda.phases.solver import PhasesSolver, WgmmaPhasesSolver
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.cuda.row_groups.solver import RowGroupsSolver
from tilesmith.solvers.cuda.runs.solver import RunsBwdSolver, RunsSolver, RunsWrwSolver
from tilesmith.solvers.cuda.slices.solver import SlicesSolver
from tilesmith.solvers.cuda.thin.solver import FfmaThinSolver, MmaThinSolver, WgmmaThinSolver
from tilesmith.solvers.cuda.wgmma.channels_first import ChannelsFirstSolver
from tilesmith.solvers.cuda.wgmma.copied import CopiedGemmSolver
from tilesmith.solvers.cuda.wgmma.solver import ConvSm90Solver, GemmSm90Solver
from tilesmith.solvers.relayout import Relayout
from tilesmith.targets.target import CudaTarget

_FIRST_LAYERS: tuple[Solver[CudaTarget], ...] = (
    FirstRowsSolver(),
    WideRowsWrwSolver(),
    FirstRowsWrwSolver(),
    FirstLayerSolver(),
    FirstLayerWrwSolver(),
)

_FAST: tuple[Solver[CudaTarget], ...] = (
    GemmSm90Solver(),
    RowGroupsSolver(),
    HaloSm90Solver(),
    HaloWrwSm90Solver(),
    ConvSm90Solver(),
    DepthwiseCudaSolver(),
    *_FIRST_LAYERS,
    *(Mirrored(solver) for solver in _FIRST_LAYERS),
    DepthwiseMmaSolver(),
    DepthwisePlanesSolver(),
    NarrowGroupsSolver(),
    Dp4aSolver(),
    FfmaGemmSolver(),
    FfmaThinSolver(),
    MmaThinSolver(),
    WgmmaThinSolver(),
    SlicesSolver(),
    WgmmaPhasesSolver(),
    PhasesSolver(),
    RunsSolver(),
    RunsWrwSolver(),
    RunsBwdSolver(),
    MmaDenseSolver(exact=False),
    MmaDenseSolver(exact=True),
)

CUDA_SOLVERS: tuple[Solver[CudaTarget], ...] = (
    *_FAST,
    ChannelSumsSolver(),  # reads any strides
    ChannelsFirstSolver(),
    CopiedGemmSolver(),
    CopiedGemmSolver(RowGroupsSolver()),
    # Products read operands of any strides where they lie.
    *(Relayout(solver, CUDA_COPIES) for solver in _FAST if solver.features & CONVOLUTIONS),
    CudaReferenceSolver(),
)
