"""Convolution by wgmma on windows with their halo: each pixel is copied once for all taps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilesmith.plan.records import Draft
from tilesmith.problems.features import ACTIVATED, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.conv_form import conv_form, even_pixels
from tilesmith.solvers.cuda.common.form import Sm90Form, Window, stores_whole
from tilesmith.solvers.cuda.common.groups import one_group, refuse_groups
from tilesmith.solvers.cuda.common.solver import WindowSolver
from tilesmith.solvers.cuda.halo.cost import halo_seconds
from tilesmith.solvers.cuda.halo.draft import halo_draft
from tilesmith.solvers.cuda.halo.tile import HaloTile, result_of
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected, SearchSpace, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_SHAPES = ((1, 0), (2, 0), (2, 1), (3, 0))  # warpgroups, pingpong
AXES = (
    Axis("warpgroups", (1, 2, 3), "Multiplying warpgroups of a block."),
    Axis("pingpong", (0, 1), "1: each warpgroup has a tile of its own."),
    Axis("tile_h", (), "Rows of pixels of a tile."),
    Axis("tile_w", (), "Pixels of each of its rows."),
    Axis("windows", (2, 3, 4), "Windows that are held at once."),
    Axis("resident", (0, 1), "1: the filter stays in shared memory."),
    Axis("block_k", (64, 32), "Channels of a step."),
)


class HaloSm90Solver(WindowSolver[HaloTile]):
    """Forward, and backward data without a stride; several taps, channels-last pixels of multiples of 16 bytes."""

    name = "wgmma_halo"
    revision = 5
    features = USUAL | ACTIVATED | WINDOW | {"fwd", "bwd", "bias", "residual", "groups"}
    axes = AXES

    def form(self, problem: Geometry) -> Sm90Form | Rejected:
        assert isinstance(problem, ConvGeometry)
        if problem.direction not in ("fwd", "bwd"):
            return Rejected(reasons.DIRECTION, problem.direction)
        refused = refuse_groups(problem)
        if refused:
            return refused
        problem = one_group(problem)
        form = conv_form(problem)
        if isinstance(form, Rejected):
            return form
        if max(problem.stride) > 1 and problem.direction == "bwd":
            return Rejected(reasons.STRIDE, f"stride {problem.stride}")
        if len(form.taps.offset) < 2:
            return Rejected(reasons.FILTER, "a single tap has no halo")
        if form.nbytes != 2:
            return Rejected(reasons.DTYPE, form.dtype)
        if form.out_dtype != form.dtype:
            return Rejected(reasons.EPILOGUE, "a wider result")
        result = result_of(problem)
        if not even_pixels(result):
            return Rejected(reasons.LAYOUT, f"pixels of {result.name} are no multiples of 16 bytes")
        if not stores_whole(result.shape[1], result.owns_gaps):
            return Rejected(reasons.LAYOUT, f"channels of {result.name} are no multiples of 16 bytes")
        return form

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        form = self.covered(problem)
        widths, heights = _extents(form)
        axes = values_of(AXES) | {"tile_h": heights, "tile_w": widths, "block_k": _depths(form)}
        return SearchSpace(axes, lambda config: self.tile(problem, config, target).fits)

    def candidates(self, problem: Geometry, target: CudaTarget) -> Iterator[HaloTile]:
        assert isinstance(problem, ConvGeometry)
        form, group = self.covered(problem), one_group(problem)
        widths, heights = _extents(form)
        for (wgs, pp), tw, th in itertools.product(_SHAPES, widths, heights):
            if th * tw > 256 or (th * tw < 48 and (th, tw) != (heights[-1], widths[-1])):
                continue
            for bk, resident, held in itertools.product(_depths(form), (1, 0), _windows(group)):
                values = {
                    "warpgroups": wgs, "pingpong": pp, "tile_h": th, "tile_w": tw, "windows": held,
                    "resident": resident, "block_k": bk,
                }  # fmt: skip
                t = HaloTile(group, form, Config(tuple(values.items())), target, problem.groups)
                if t.fits:
                    yield t

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> HaloTile:
        form = self.covered(problem)
        assert isinstance(problem, ConvGeometry)
        return HaloTile(one_group(problem), form, config, target, problem.groups)

    def seconds(self, tile: HaloTile, target: CudaTarget) -> float:
        return halo_seconds(tile, fit_of(target).halo)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return halo_draft(self.tile(problem, config, target))


def _windows(g: ConvGeometry) -> tuple[int, ...]:
    """Windows that are worth holding: with a stride each has few taps."""
    return (2, 3, 4) if max(g.stride) > 1 else (2,)


def _depths(form: Sm90Form) -> tuple[int, ...]:
    """Channels of a step: 64, and 32 where the last 64 would be half zeros. Rows of 32 come first: they copy faster."""
    return (32, 64) if 0 < form.channels % 64 <= 32 else (64,)


def _extents(form: Sm90Form) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Widths that divide a row evenly, and heights."""
    assert isinstance(form.a, Window)
    width, height = form.a.base[:2]
    widths = sorted(
        {-(-width // parts) for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)} | {min(w, width) for w in (16, 32, 64)}
    )
    heights = sorted({h for h in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, -(-height // 2), height) if h <= height})
    return tuple(w for w in widths if w <= 254), tuple(h for h in heights if h <= 64)
