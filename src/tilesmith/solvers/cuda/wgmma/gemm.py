"""GEMM by wgmma on operands that the bulk tensor copy engine reads: any transposition, batches, few rows, long k."""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import GEMM, USUAL
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.form import Sm90Form, gemm_form
from tilesmith.solvers.cuda.wgmma.cost import predicted_seconds
from tilesmith.solvers.cuda.wgmma.draft import tile_draft
from tilesmith.solvers.cuda.wgmma.space import AXES, sm90_default, sm90_ranked, sm90_space
from tilesmith.solvers.cuda.wgmma.tile import Sm90Tile
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, remembered
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget


class GemmSm90Solver:
    """Operands whose rows are multiples of 16 bytes; results of any pitch."""

    name = "wgmma_gemm"
    revision = 6
    features = USUAL | GEMM
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, GemmGeometry):
            return Rejected(reasons.OP)
        if not (target.has_wgmma and target.has_tma):
            return Rejected(reasons.TARGET, "wgmma")
        form = gemm_form(problem)
        return form if isinstance(form, Rejected) else Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return sm90_space(lambda swap: _form(problem, swap), target)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return sm90_default(lambda swap: _form(problem, swap), target)

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return sm90_ranked(lambda swap: _form(problem, swap), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return predicted_seconds(self.tile(problem, config, target), fit_of(target).tile)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Sm90Tile:
        """What ``config`` means for ``problem``: what its time is estimated from."""
        return _tile(problem, config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return tile_draft(self.tile(problem, config, target))


def _form(problem: Geometry, swap: int) -> Sm90Form | None:
    assert isinstance(problem, GemmGeometry)
    form = gemm_form(problem)
    if isinstance(form, Rejected):
        return None
    if swap:  # tiles have 64 rows or a multiple, but any multiple of 8 columns, unless those are contiguous
        form = gemm_form(problem, True)
    assert isinstance(form, Sm90Form)
    return form


def _tile(problem: Geometry, config: Config, target: CudaTarget) -> Sm90Tile:
    form = _form(problem, config["swap_mn"])
    if form is None:
        raise ValueError("the wgmma solver does not cover this problem")
    return Sm90Tile(form, config, target)
