"""Groups of rows (experts of a mixture) in one launch by wgmma, whose ends are read on the device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilesmith.plan.records import Draft
from tilesmith.problems.features import USUAL
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.row_groups.cost import predicted_seconds
from tilesmith.solvers.cuda.row_groups.draft import groups_draft
from tilesmith.solvers.cuda.row_groups.tile import GroupsForm, GroupsTile, groups_form
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    remembered,
    values_of,
)
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_HEIGHTS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_SHAPES = ((2, 1, 0), (2, 2, 0), (2, 2, 1), (2, 1, 1), (1, 2, 0))  # warpgroups, products_n, pingpong
# 32,768 rows in 8 groups took 14 to 20 % longer with 16 and 32 than with 8 (skewed ones 7 % with 8 than with 4); where
# groups are shorter it makes 2 %.
_BANDS, _BANDS_OF_MANY = (8, 4, 16), (4, 8, 16)
_MANY = 2048  # rows of a group
AXES = (
    Axis("warpgroups", (1, 2), "Multiplying warpgroups of a block."),
    Axis("products_n", (1, 2), "Products of 64 columns of each warpgroup."),
    Axis("block_m", _HEIGHTS, "Rows of a tile, all of one group."),
    Axis("pingpong", (0, 1), "1: each warpgroup has a tile of its own."),
    Axis("band_m", (1, 4, 8, 16, 32), "Rows of tiles of a group that are walked together."),
)


class RowGroupsSolver:
    """Products of bf16 and fp16 with any sizes of groups; rows of the operands are multiples of 16 bytes."""

    name = "wgmma_row_groups"
    revision = 1
    features = USUAL | {"gemm", "row_groups"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, GemmGeometry) or not problem.groups:
            return Rejected(reasons.OP)
        if not (target.has_wgmma and target.has_tma):
            return Rejected(reasons.TARGET, "wgmma")
        form = groups_form(problem)
        return form if isinstance(form, Rejected) else Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        form = _form(problem)
        return SearchSpace(values_of(AXES), lambda config: GroupsTile(form, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return self.ranked(problem, target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        form, fit = _form(problem), fit_of(target).row_groups
        found = sorted(_tiles(form, target), key=lambda tile: predicted_seconds(tile, fit))
        bands = _BANDS_OF_MANY if form.g.m >= _MANY * form.g.groups else _BANDS
        return [tile.config.replace(band_m=band) for band in bands for tile in found]

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return predicted_seconds(GroupsTile(_form(problem), config, target), fit_of(target).row_groups)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return groups_draft(GroupsTile(_form(problem), config, target))


def _form(problem: Geometry) -> GroupsForm:
    form = groups_form(problem) if isinstance(problem, GemmGeometry) else Rejected(reasons.OP)
    if isinstance(form, Rejected):
        raise ValueError(f"this problem has no groups that the kernel covers: {form}")
    return form


def _tiles(form: GroupsForm, target: CudaTarget) -> Iterator[GroupsTile]:
    for (warpgroups, products, pingpong), rows in itertools.product(_SHAPES, _HEIGHTS):
        values = {"warpgroups": warpgroups, "products_n": products, "block_m": rows, "pingpong": pingpong, "band_m": 8}
        tile = GroupsTile(form, Config(tuple(values.items())), target)
        if tile.fits and rows <= max(16, 2 * form.g.m / form.g.groups):  # of higher ones most would be empty
            yield tile
