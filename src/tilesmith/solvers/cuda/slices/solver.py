"""Three-dimensional transposed convolutions, backward data and forward of few results, slice after slice of the input.

The sums over the taps of the axis along which a block goes stay in registers, and a line of inputs is read from shared
memory once for all lines of results that see it. Filters of one tap along the depth are `wgmma_phases`' and
`mma_phases`', which were faster on all that were measured (`notes.md`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import ceil

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.listed import Listed
from tilesmith.solvers.cuda.phases.form import PhasesForm, phases_form
from tilesmith.solvers.cuda.slices.cost import slices_seconds
from tilesmith.solvers.cuda.slices.draft import slices_draft
from tilesmith.solvers.cuda.slices.tile import SlicesTile
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, remembered
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_UNITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_STRIPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)


class SlicesSolver(Listed[PhasesForm, SlicesTile]):
    """Channels-last tensors of any channel counts and pitches, bf16 and fp16; no dilation, no groups."""

    name = "wgmma_slices"
    revision = 1
    features = USUAL | EPILOGUE | (WINDOW - {"dilation"}) | {"fwd", "bwd"}
    axes = (
        Axis("streamed", (0, 1), "The axis of the slices: depth (0) or height (1)."),
        Axis("units", _UNITS, "Units of 64 rows of positions of a block, along the other one of these axes."),
        Axis("warpgroups", (1, 2), "Warpgroups that share the units, beside one that moves windows and results."),
        Axis("block_c", (16, 32, 64), "Channels of a stage of the ring."),
        Axis("strips", _STRIPS, "Parts of the axis of the slices."),
        Axis("stages", (2, 3, 4, 6), "Stages of the ring."),
        Axis("blocks_per_sm", (1, 2, 3, 4), "Blocks that share an SM."),
    )
    of = SlicesTile
    most = 256

    def form_of(self, problem: ConvGeometry) -> PhasesForm | Rejected:
        if problem.filter[0] == 1:
            return Rejected(reasons.FILTER, "one tap along the depth")
        return phases_form(problem)

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not target.has_wgmma:
            return Rejected(reasons.TARGET, "wgmma")
        return super().applicable(problem, target)

    def seconds(self, tile: SlicesTile) -> float:
        return slices_seconds(tile, fit_of(tile.target).slices)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return slices_draft(self.tile(problem, config, target))

    def _tiles(self, form: PhasesForm, target: CudaTarget) -> Iterator[SlicesTile]:
        """Those that fit, of each size with the strips that keep the SMs busiest."""
        names = tuple(axis.name for axis in self.axes)
        for streamed, units, groups, c in product(*(axis.values for axis in self.axes[:4])):
            values = (streamed, units, groups, c, 1, 2, 1)
            alone = SlicesTile(form, Config(tuple(zip(names, values, strict=True))), target)
            if not alone.exists:
                continue
            for blocks in (1, 2, 3, 4):
                strips = _best_strips(alone, blocks)
                for stages in (2, 3, 4):
                    tile = alone.changed(strips=strips, stages=stages, blocks_per_sm=blocks)
                    if tile.fits:
                        yield tile


def _best_strips(alone: SlicesTile, blocks: int) -> int:
    """The fewest strips with which an SM of ``blocks`` blocks goes through the fewest slices."""

    def passes(strips: int) -> int:
        tile = alone.changed(strips=strips)
        return ceil(tile.tiles / (tile.target.cores * blocks)) * tile.slices

    return min((strips for strips in _STRIPS if strips <= alone.form.base[0]), key=passes)
