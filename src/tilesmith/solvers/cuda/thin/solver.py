"""GEMMs and 1x1 convolutions with few channels on both sides, whose rows lie densely: bound by memory, read once.

Rows of any width are read: no stride needs to be a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from tilesmith.plan.records import Draft
from tilesmith.problems.features import ACTIVATED, USUAL
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.thin.cost import thin_seconds
from tilesmith.solvers.cuda.thin.draft import thin_draft
from tilesmith.solvers.cuda.thin.form import ThinForm, thin_form
from tilesmith.solvers.cuda.thin.tile import ThinTile
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

AXES = (
    Axis("warps", (2, 4, 8, 16), "Warps of a block, each with a ring of its own."),
    Axis("stage_rows", (16, 32, 64), "Rows of a stage of a ring."),
    Axis("stages", (2, 3, 4, 6), "Stages of each ring."),
    Axis("blocks_per_sm", (1, 2, 3, 4, 6), "Blocks that share an SM."),
)


class MmaThinSolver:
    """Results of up to 128 columns from sums of up to 256; and sums over rows of up to 128 x 128 results."""

    name = "mma_thin"
    revision = 2
    features = USUAL | ACTIVATED | {"gemm", "bias", "alpha"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, GemmGeometry):
            return Rejected(reasons.OP)
        form = thin_form(problem)
        if isinstance(form, Rejected):
            return form
        if not target.has_cp_async or (form.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "cp.async")
        return Accepted() if next(_tiles(form, target), None) is not None else Rejected(reasons.SIZE)

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        form = _form(problem)
        return SearchSpace(values_of(AXES), lambda config: ThinTile(form, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return _ranked(_form(problem), target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return list(_ranked(_form(problem), target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return thin_seconds(self.tile(problem, config, target), fit_of(target).thin)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> ThinTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return ThinTile(_form(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return thin_draft(self.tile(problem, config, target))


def _form(problem: Geometry) -> ThinForm:
    assert isinstance(problem, GemmGeometry)
    form = thin_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the solver for few channels does not cover this problem: {form}")
    return form


def _tiles(form: ThinForm, target: CudaTarget) -> Iterator[ThinTile]:
    """All that fit."""
    for values in product(*values_of(AXES).values()):
        tile = ThinTile(form, Config(tuple(zip(values_of(AXES), values, strict=True))), target)
        if tile.fits:
            yield tile


@lru_cache(maxsize=256)
def _ranked(form: ThinForm, target: CudaTarget) -> tuple[Config, ...]:
    fit = fit_of(target).thin
    # Of equals, one block an SM, which reads the filter once, and one stage to spare.
    order = sorted(
        _tiles(form, target),
        key=lambda t: (round(thin_seconds(t, fit) * 1e8), t.value["blocks_per_sm"], abs(t.stages - 3)),
    )
    return tuple(tile.config for tile in order)
