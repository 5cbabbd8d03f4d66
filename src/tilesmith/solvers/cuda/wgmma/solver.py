"""GEMM and convolution by wgmma on operands that the bulk tensor copy engine reads: matrices, and pixels it gathers."""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, GEMM, SCALED, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.solvers.cuda.common.form import Sm90Form, gemm_form
from tilesmith.solvers.cuda.common.groups import grouped_form
from tilesmith.solvers.cuda.common.solver import Sm90Solver
from tilesmith.solvers.cuda.wgmma.cost import predicted_seconds
from tilesmith.solvers.cuda.wgmma.draft import tile_draft
from tilesmith.solvers.cuda.wgmma.space import AXES, Space
from tilesmith.solvers.cuda.wgmma.tile import Sm90Tile
from tilesmith.solvers.solver import Config, Geometry, Rejected, SearchSpace, remembered
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget


class WgmmaSolver(Sm90Solver[Sm90Tile]):
    """A solver of the wgmma kernel. Subclasses say in which forms the kernel computes a problem."""

    axes = AXES

    def forms(self, problem: Geometry) -> tuple[Sm90Form, ...]:
        """The problem's form, and behind it the one with rows and columns exchanged, if it has one."""
        return (self.covered(problem),)

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return Space(self.forms(problem), target).points

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return Space(self.forms(problem), target).best()

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return Space(self.forms(problem), target).ranked()

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Sm90Tile:
        return Sm90Tile(self.forms(problem)[config["swap_mn"]], config, target)

    def seconds(self, tile: Sm90Tile, target: CudaTarget) -> float:
        return predicted_seconds(tile, fit_of(target).tile)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return tile_draft(self.tile(problem, config, target))


class GemmSm90Solver(WgmmaSolver):
    """Any transposition, batches, results of any pitch; operands whose rows are multiples of 16 bytes."""

    name = "wgmma_gemm"
    revision = 6
    features = USUAL | GEMM | SCALED | {"acc=int32", "operand_scales"}
    op = GemmGeometry

    def form(self, problem: Geometry) -> Sm90Form | Rejected:
        assert isinstance(problem, GemmGeometry)
        return gemm_form(problem)

    def forms(self, problem: Geometry) -> tuple[Sm90Form, ...]:
        """Tiles have 64 rows or a multiple, but any multiple of 8 columns, unless those are contiguous."""
        form = self.covered(problem)
        assert isinstance(problem, GemmGeometry)
        swapped = gemm_form(problem, True)
        assert isinstance(swapped, Sm90Form)
        return form, swapped


class ConvSm90Solver(WgmmaSolver):
    """Forward, backward data and backward weights; channels-last tensors whose pixels are multiples of 16 bytes."""

    name = "wgmma_conv"
    revision = 5
    features = USUAL | EPILOGUE | WINDOW | SCALED | {"fwd", "bwd", "wrw", "groups", "acc=int32"}

    def form(self, problem: Geometry) -> Sm90Form | Rejected:
        assert isinstance(problem, ConvGeometry)
        return grouped_form(problem)
