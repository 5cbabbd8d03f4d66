"""Backward weights with steps of 1 by wgmma on windows with their halo: x is copied once for all taps of a plane."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod

from tilesmith.plan.records import Draft
from tilesmith.problems.features import USUAL
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.conv_form import conv_form
from tilesmith.solvers.cuda.common.form import Sm90Form, aligned, steps_along
from tilesmith.solvers.cuda.halo_wrw.draft import halo_wrw_draft
from tilesmith.solvers.cuda.halo_wrw.tile import HaloWrwTile, halo_wrw_seconds, taps_along
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_MOST_SLICES = 132
_TRIED = 16  # extents of tiles, of each kind
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


class HaloWrwSm90Solver:
    """Weights, several taps in a plane of the filter, channels-last tensors whose pixels are multiples of 16 bytes."""

    name = "wgmma_halo_wrw"
    revision = 2
    features = USUAL | {"wrw", "padding", "padding_high", "dilation", "depth"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if not (target.has_wgmma and target.has_tma):
            return Rejected(reasons.TARGET, "wgmma")
        form = _wrw_form(problem)
        if isinstance(form, Rejected):
            return form
        if next(_candidates(problem, target), None) is None:
            return Rejected(reasons.FILTER, f"no window of a filter {problem.filter} fits")
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        g = _covered(problem)
        widths, heights = _extents(g)
        tiles = g.n * g.output[0] * -(-g.output[1] // heights[0]) * -(-g.output[2] // widths[0])
        axes = values_of(AXES) | {
            "tile_h": heights, "tile_w": widths, "taps": _groups(g), "block_c": _slabs(g), "product_k": _halves(g),
            "split_n": tuple(range(1, min(_MOST_SLICES, tiles) + 1)),
        }  # fmt: skip
        return SearchSpace(axes, lambda config: HaloWrwTile(g, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return self.ranked(problem, target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        g, fit = _covered(problem), fit_of(target).halo_wrw
        return sorted(_candidates(g, target), key=lambda config: halo_wrw_seconds(HaloWrwTile(g, config, target), fit))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return halo_wrw_seconds(self.tile(problem, config, target), fit_of(target).halo_wrw)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> HaloWrwTile:
        """What ``config`` means for ``problem``: what its time is estimated from."""
        return HaloWrwTile(_covered(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        g = _covered(problem)
        form = _wrw_form(g)
        assert isinstance(form, Sm90Form)
        return halo_wrw_draft(HaloWrwTile(g, config, target), form)


def _wrw_form(g: ConvGeometry) -> Sm90Form | Rejected:
    if g.direction != "wrw":
        return Rejected(reasons.DIRECTION, g.direction)
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
        sizes = (view.shape[0], *view.shape[2:])
        if not aligned(*steps_along(sizes, (view.strides[0], *view.strides[2:]))):
            return Rejected(reasons.LAYOUT, f"pixels of {view.name} are no multiples of 16 bytes")
    return form


def _covered(problem: Geometry) -> ConvGeometry:
    assert isinstance(problem, ConvGeometry)
    form = _wrw_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the halo solver does not cover this problem: {form}")
    return problem


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
    widths = {-(-q // parts) for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)}
    heights = {
        h for h in (*range(1, 9), 10, 12, 14, 16, *(-(-p // parts) for parts in (1, 2, 3, 4, 5, 6, 8))) if h <= p
    }
    return tuple(sorted(w for w in widths if w <= 254)), tuple(sorted(h for h in heights if h <= 64))


def _candidates(g: ConvGeometry, target: CudaTarget) -> Iterator[Config]:
    widths, heights = _extents(g)
    for cw, kw, group in itertools.product(_slabs(g), _halves(g), _groups(g)):
        if group * cw < 96 and group != max(_groups(g)):
            continue
        for wk, wl, li in _SHAPES:
            base = {
                "tile_h": heights[0], "tile_w": widths[0], "taps": group, "block_c": cw, "product_k": kw,
                "warpgroups_k": wk, "warpgroups_lines": wl, "lines": li, "split_n": 1,
            }  # fmt: skip
            config = Config(tuple(base.items()))
            if not HaloWrwTile(g, config, target).fits:
                continue
            for tile in _promising(g, config, widths, heights, target):
                yield from (tile.config.replace(split_n=slices) for slices in _slices(tile))


def _promising(
    g: ConvGeometry, config: Config, widths: tuple[int, ...], heights: tuple[int, ...], target: CudaTarget
) -> list[HaloWrwTile]:
    """Extents of tiles that fit, those of which the most is pixels of dy."""
    found: list[tuple[float, int, HaloWrwTile]] = []
    for tw, th in itertools.product(widths, heights):
        if th * tw > 640 or (th * tw < 100 and (th, tw) != (heights[-1], widths[-1])):
            continue
        tile = HaloWrwTile(g, config.replace(tile_h=th, tile_w=tw), target)
        if tile.fits:
            found.append((g.n * prod(g.output) / (tile.tiles * tile.steps), len(found), tile))
    return [tile for _, _, tile in sorted(found, reverse=True)[:_TRIED]]


_SHAPES = ((1, 3, 1), (3, 1, 1), (2, 1, 1), (1, 2, 1), (1, 2, 2), (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 3, 2), (2, 1, 2))


def _slices(t: HaloWrwTile) -> set[int]:
    """The most slices that fill the SMs once, and twice; and as few as are as fast."""
    found = set()
    for waves in (1, 2):
        most = min(t.tiles, _MOST_SLICES, max(1, waves * t.target.cores // t.units))
        rounds = -(-t.tiles // most)
        found |= {most, -(-t.tiles // rounds)}
    return found
