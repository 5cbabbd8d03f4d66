"""Convolution by wgmma on pixels that the bulk tensor copy engine gathers: forward, backward data, backward weights."""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.conv_form import conv_form
from tilesmith.solvers.cuda.common.form import Sm90Form
from tilesmith.solvers.cuda.wgmma.cost import predicted_seconds
from tilesmith.solvers.cuda.wgmma.draft import tile_draft
from tilesmith.solvers.cuda.wgmma.space import AXES, sm90_default, sm90_ranked, sm90_space
from tilesmith.solvers.cuda.wgmma.tile import Sm90Tile
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, remembered
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget


class ConvSm90Solver:
    """Channels-last tensors whose pixels are multiples of 16 bytes, one group."""

    name = "wgmma_conv"
    revision = 5
    features = USUAL | EPILOGUE | WINDOW | {"fwd", "bwd", "wrw"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if not (target.has_wgmma and target.has_tma):
            return Rejected(reasons.TARGET, "wgmma")
        form = conv_form(problem)
        return form if isinstance(form, Rejected) else Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return sm90_space(lambda swap: None if swap else _form(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return sm90_default(lambda swap: None if swap else _form(problem), target)

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return sm90_ranked(lambda swap: None if swap else _form(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return predicted_seconds(self.tile(problem, config, target), fit_of(target).tile)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Sm90Tile:
        """What ``config`` means for ``problem``: what its time is estimated from."""
        return Sm90Tile(_form(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return tile_draft(self.tile(problem, config, target))


def _form(problem: Geometry) -> Sm90Form:
    assert isinstance(problem, ConvGeometry)
    form = conv_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the wgmma solver does not cover this problem: {form}")
    return form
