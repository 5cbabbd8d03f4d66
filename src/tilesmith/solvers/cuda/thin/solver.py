"""GEMMs and 1x1 convolutions with few channels on both sides, whose rows lie densely: bound by memory, read once.

Rows of any width are read: no stride needs to be a multiple of 16 bytes.
"""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import ACTIVATED, USUAL
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.listed import Listed
from tilesmith.solvers.cuda.thin.cost import thin_seconds
from tilesmith.solvers.cuda.thin.draft import few_draft, thin_draft
from tilesmith.solvers.cuda.thin.few import FewTile, takes
from tilesmith.solvers.cuda.thin.form import MAX_WIDE_COLUMNS, ThinForm, thin_form
from tilesmith.solvers.cuda.thin.tile import ThinTile
from tilesmith.solvers.cuda.thin.wide import WideTile
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

AXES = (
    Axis("warps", (2, 4, 8, 16), "Warps of a block, each with a ring of its own."),
    Axis("stage_rows", (16, 32, 64), "Rows of a stage of a ring."),
    Axis("stages", (2, 3, 4, 6), "Stages of each ring."),
    Axis("blocks_per_sm", (1, 2, 3, 4, 6), "Blocks that share an SM."),
)


class MmaThinSolver(Listed[ThinForm, ThinTile]):
    """Results of up to 128 columns from sums of up to 256; and sums over rows of up to 128 x 128 results."""

    name = "mma_thin"
    revision = 2
    features = USUAL | ACTIVATED | {"gemm", "bias", "alpha"}
    axes = AXES
    op = GemmGeometry
    of = ThinTile

    def form_of(self, problem: GemmGeometry) -> ThinForm | Rejected:
        return thin_form(problem)

    def seconds(self, tile: ThinTile) -> float:
        return thin_seconds(tile, fit_of(tile.target).thin)

    def order(self, tile: ThinTile) -> tuple[int, int, int]:
        """Of equals, one block an SM, which reads the filter once, and one stage to spare."""
        return round(self.seconds(tile) * 1e8), tile.value["blocks_per_sm"], abs(tile.stages - 3)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return thin_draft(self.tile(problem, config, target))


class WgmmaThinSolver(MmaThinSolver):
    """As ``MmaThinSolver``, of results of up to 256 columns, no weights: four warps multiply together (wgmma).

    It adds a residual, too.
    """

    name = "wgmma_thin"
    revision = 2
    features = MmaThinSolver.features | {"residual"}
    axes = (
        Axis("warps", (4, 8, 12, 16), "Warps of a block, each with a ring of its own."),
        Axis("stage_rows", (16, 32), "Rows of a stage of a ring."),
        Axis("stages", (1, 2, 3, 4, 6), "Stages of each ring."),
        Axis("blocks_per_sm", (1, 2, 3, 4), "Blocks that share an SM."),
    )
    of = WideTile

    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not target.has_wgmma:
            return Rejected(reasons.TARGET, "wgmma")
        return super().applicable(problem, target)

    def form_of(self, problem: GemmGeometry) -> ThinForm | Rejected:
        form = thin_form(problem, MAX_WIDE_COLUMNS, residual=True)
        if isinstance(form, ThinForm) and form.kind == "weights":
            return Rejected(reasons.DIRECTION, "sums over rows")
        return form

    def seconds(self, tile: ThinTile) -> float:
        assert isinstance(tile, WideTile)
        return tile.seconds(fit_of(tile.target).wide_thin)


class FfmaThinSolver(Listed[ThinForm, FewTile]):
    """Rows so short that threads multiply them: up to 8 channels on both sides, and 32 products a pixel."""

    name = "ffma_thin"
    revision = 1
    features = MmaThinSolver.features
    axes = (
        Axis("threads", (128, 256, 512), "Threads of a block."),
        Axis("blocks_per_sm", (1, 2, 3, 4, 6, 8, 12, 16, 32), "Blocks for each SM, which may run fewer at once."),
    )
    op = GemmGeometry
    of = FewTile

    def form_of(self, problem: GemmGeometry) -> ThinForm | Rejected:
        form = thin_form(problem)
        if isinstance(form, ThinForm) and not takes(form):
            return Rejected(reasons.CHANNELS, f"{form.first} to {form.second} ({form.kind})")
        return form

    def seconds(self, tile: FewTile) -> float:
        return tile.seconds(fit_of(tile.target).few)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return few_draft(self.tile(problem, config, target))
