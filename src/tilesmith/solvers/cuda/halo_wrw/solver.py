"""Backward weights with steps of 1 by wgmma on windows with their halo: x is copied once for all taps of a plane."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod

from tilesmith.plan.records import Draft
from tilesmith.problems.features import USUAL
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.conv_form import conv_form, even_pixels
from tilesmith.solvers.cuda.common.form import Sm90Form, aligned, steps_along
from tilesmith.solvers.cuda.common.groups import one_group, refuse_groups
from tilesmith.solvers.cuda.common.solver import WindowSolver
from tilesmith.solvers.cuda.halo_wrw.cost import halo_wrw_seconds
from tilesmith.solvers.cuda.halo_wrw.draft import halo_wrw_draft
from tilesmith.solvers.cuda.halo_wrw.tile import HaloWrwTile, taps_along
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected, SearchSpace, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_MOST_SLICES = 132
_TRIED = 16  # extents of tiles, of each kind
# Multiplying warpgroups along output channels and along lines, and lines of each.
_SHAPES = ((1, 3, 1), (3, 1, 1), (2, 1, 1), (1, 2, 1), (1, 2, 2), (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 3, 2), (2, 1, 2))
AXES = (
    Axis("tile_h", (), "Rows of pixels of dy in a tile."),
    Axis("tile_w", (), "Pixels of each of its rows."),
    Axis("taps", (), "Neighbouring taps of a line: of a row of the filter, or of a column where rows have one."),
    Axis("block_c", (64, 32), "Input channels of each tap of a product."),
    Axis(
        "product_k", (64, 32), "Output channels of a product; 32: with the line's taps in the next row of the filter."
    ),
    Axis("warpgroups_k", (1, 2, 3), "Multiplying warpgroups along output channels."),
    Axis("warpgroups_lines", (1, 2, 3), "Multiplying warpgroups along lines of taps."),
    Axis("lines", (1, 2, 3), "Lines of taps of each warpgroup."),
    Axis("split_n", tuple(range(1, _MOST_SLICES + 1)), "Shares of the tiles that a second kernel adds."),
)


class HaloWrwSm90Solver(WindowSolver[HaloWrwTile]):
    """Weights, several taps in a plane of the filter, channels-last tensors whose pixels are multiples of 16 bytes."""

    name = "wgmma_halo_wrw"
    revision = 2
    features = USUAL | {"wrw", "padding", "padding_high", "dilation", "depth", "groups"}
    axes = AXES

    def form(self, problem: Geometry) -> Sm90Form | Rejected:
        assert isinstance(problem, ConvGeometry)
        g = problem
        if g.direction != "wrw":
            return Rejected(reasons.DIRECTION, g.direction)
        refused = refuse_groups(g)
        if refused:
            return refused
        g = one_group(g)
        form = conv_form(g)
        if isinstance(form, Rejected):
            return form
        if max(g.stride) > 1:
            return Rejected(reasons.STRIDE, f"stride {g.stride}")
        if g.filter[1] * g.filter[2] < 2:
            return Rejected(reasons.FILTER, "a single tap in a plane has no halo")
        if not aligned(*steps_along((g.k, len(form.taps.offset)), (form.placed.row, form.placed.tap))) or g.c % 2:
            return Rejected(reasons.LAYOUT, "rows of the filter are no multiples of 16 bytes")
        for view in (g.x, g.y):
            if not even_pixels(view):
                return Rejected(reasons.LAYOUT, f"pixels of {view.name} are no multiples of 16 bytes")
        return form

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        g, groups = self._geometry(problem)
        widths, heights = _extents(g)
        tiles = g.n * g.output[0] * -(-g.output[1] // heights[0]) * -(-g.output[2] // widths[0])
        axes = values_of(AXES) | {
            "tile_h": heights, "tile_w": widths, "taps": _groups(g), "block_c": _slabs(g), "product_k": _halves(g),
            "split_n": tuple(range(1, min(_MOST_SLICES, tiles) + 1)),
        }  # fmt: skip
        return SearchSpace(axes, lambda config: HaloWrwTile(g, config, target, groups).fits)

    def candidates(self, problem: Geometry, target: CudaTarget) -> Iterator[HaloWrwTile]:
        g, groups = self._geometry(problem)
        widths, heights = _extents(g)
        for cw, kw, group in itertools.product(_slabs(g), _halves(g), _groups(g)):
            if group * cw < 96 and group != max(_groups(g)):
                continue
            for wk, wl, li in _SHAPES:
                least = {
                    "tile_h": heights[0], "tile_w": widths[0], "taps": group, "block_c": cw, "product_k": kw,
                    "warpgroups_k": wk, "warpgroups_lines": wl, "lines": li, "split_n": 1,
                }  # fmt: skip
                t = HaloWrwTile(g, Config(tuple(least.items())), target, groups)
                for tile in _promising(t, widths, heights) if t.fits else ():
                    yield from (tile.changed(split_n=slices) for slices in _slices(tile))

    def _geometry(self, problem: Geometry) -> tuple[ConvGeometry, int]:
        """The problem of one group, and how many there are."""
        self.covered(problem)
        assert isinstance(problem, ConvGeometry)
        return one_group(problem), problem.groups

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> HaloWrwTile:
        g, groups = self._geometry(problem)
        return HaloWrwTile(g, config, target, groups)

    def seconds(self, tile: HaloWrwTile, target: CudaTarget) -> float:
        return halo_wrw_seconds(tile, fit_of(target).halo_wrw)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return halo_wrw_draft(self.tile(problem, config, target), self.covered(problem))


def _groups(g: ConvGeometry) -> tuple[int, ...]:
    """Taps of a line: rows of taps in equal parts."""
    taps = taps_along(g)
    return tuple(sorted({-(-taps // parts) for parts in range(1, taps + 1)}))


def _slabs(g: ConvGeometry) -> tuple[int, ...]:
    return (64, 32) if g.c > 32 else (32,)


def _halves(g: ConvGeometry) -> tuple[int, ...]:
    """Output channels of a product: 32 and two rows of taps where 64 would be half empty."""
    return (64, 32) if g.k <= 32 and g.filter[1] > 1 and g.filter[2] > 1 else (64,)


def _extents(g: ConvGeometry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Widths that divide a row evenly, and heights that divide a column."""
    _, p, q = g.output
    parts = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32} | {-(-q // width) for width in (96, 128, 192, 254)}
    widths = {-(-q // each) for each in parts}
    heights = {
        h for h in (*range(1, 9), 10, 12, 14, 16, *(-(-p // parts) for parts in (1, 2, 3, 4, 5, 6, 8))) if h <= p
    }
    return tuple(sorted(w for w in widths if w <= 254)), tuple(sorted(h for h in heights if h <= 64))


def _promising(t: HaloWrwTile, widths: tuple[int, ...], heights: tuple[int, ...]) -> list[HaloWrwTile]:
    """``t`` in extents that fit, those of which the most is pixels of dy."""
    found: list[tuple[float, int, HaloWrwTile]] = []
    pixels = t.geometry.n * prod(t.geometry.output)
    for tw, th in itertools.product(widths, heights):
        if th * tw > 640 or (th * tw < 100 and (th, tw) != (heights[-1], widths[-1])):
            continue
        tile = t.changed(tile_h=th, tile_w=tw)
        if tile.fits:
            found.append((pixels / (tile.tiles * tile.steps), len(found), tile))
    return [tile for _, _, tile in sorted(found, reverse=True)[:_TRIED]]


def _slices(t: HaloWrwTile) -> set[int]:
    """The most slices that fill the SMs once, and twice; and as few as are as fast."""
    found = set()
    for waves in (1, 2):
        most = min(t.tiles, _MOST_SLICES, max(1, waves * t.target.cores // t.units))
        rounds = -(-t.tiles // most)
        found |= {most, -(-t.tiles // rounds)}
    return found
