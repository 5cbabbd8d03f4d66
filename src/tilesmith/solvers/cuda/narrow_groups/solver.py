"""Convolutions of many narrow groups: a tile holds the channels of several groups, and each warp multiplies one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import ceil, prod

from tilesmith.plan.records import Draft
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.features import EPILOGUE, USUAL
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX
from tilesmith.solvers.cuda.common.listed import sharing_sm
from tilesmith.solvers.cuda.narrow_groups.cost import narrow_seconds
from tilesmith.solvers.cuda.narrow_groups.draft import narrow_draft, weights_draft
from tilesmith.solvers.cuda.narrow_groups.tile import (
    MAX_STEPS,
    MAX_THREADS,
    NarrowTile,
    NarrowWeightsTile,
    kind_of,
    load_of,
    narrow_form,
    tile_of,
)
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_WIDEST = 64  # channels of a bundle
_WIDEST_ALONE = 128  # results where there is one group
_ROW_BYTES = 128  # of the pixels of a block, at least
AXES = (
    Axis("bundles", (1, 2, 3, 4, 5, 6, 8, 16), "Bundles of groups of a block: a bundle's channels are pieces of 8."),
    Axis("warps_m", (1, 2, 4, 8), "Warps along the pixels of a tile."),
    Axis("products_n", (1, 2, 3, 4), "Products along the results of a bundle that a warp has."),
    Axis("tile_h", (), "Rows of pixels of a tile."),
    Axis("tile_w", (), "Pixels of each of its rows."),
    Axis("stages", (2, 3), "Windows that are held at once."),
    Axis("blocks_per_sm", (1, 2, 3, 4), "Blocks that share an SM."),
)
_NAMES = tuple(axis.name for axis in AXES)


class NarrowGroupsSolver:
    """Convolutions of channels-last tensors whose pixels are multiples of 16 bytes, in up to three dimensions."""

    name = "mma_narrow_groups"
    revision = 1
    features = (
        USUAL | EPILOGUE | {"fwd", "bwd", "wrw", "groups", "stride", "padding", "padding_high", "dilation", "depth"}
    )
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        refused = _refuse(problem)
        if refused:
            return refused
        if not target.has_cp_async or (problem.x.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "cp.async")
        if next(_tiles(problem, target), None) is None:
            return Rejected(reasons.FILTER, f"no window of a filter {problem.filter} fits")
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        g = _conv(problem)
        heights, widths = _extents(g)
        axes = values_of(AXES) | {"tile_h": heights, "tile_w": widths}
        return SearchSpace(axes, lambda config: tile_of(g, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        fit = fit_of(target).narrow
        return min(_tiles(_conv(problem), target), key=lambda tile: narrow_seconds(tile, fit)).config

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return list(_ranked(_conv(problem), target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return narrow_seconds(self.tile(problem, config, target), fit_of(target).narrow)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> NarrowTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return tile_of(_conv(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        tile = self.tile(problem, config, target)
        return weights_draft(tile) if isinstance(tile, NarrowWeightsTile) else narrow_draft(tile)


def _conv(problem: Geometry) -> ConvGeometry:
    assert isinstance(problem, ConvGeometry)
    return problem


def _refuse(g: ConvGeometry) -> Rejected | None:
    if g.direction not in ("fwd", "bwd", "wrw"):
        return Rejected(reasons.DIRECTION, g.direction)
    read, other, result = {"fwd": (g.x, g.w, g.y), "bwd": (g.y, g.w, g.x), "wrw": (g.x, g.y, g.w)}[g.direction]
    exact = read.dtype == "fp32" and not g.tf32 and g.direction != "wrw"
    if read.dtype != other.dtype or not (exact or read.dtype in HALVES) or result.dtype not in (read.dtype, "fp32"):
        return Rejected(reasons.DTYPE, f"{read.dtype} x {other.dtype} -> {result.dtype}")
    if g.acc_dtype != "fp32":
        return Rejected(reasons.DTYPE, f"accumulated in {g.acc_dtype}")
    if g.groups < 2 and (g.direction != "wrw" or prod(g.filter) == 1):
        return Rejected(reasons.GROUPS, "one group")
    if not all(view.channels_last for view in (g.x, g.y, g.w)):
        return Rejected(reasons.LAYOUT, "channels are not contiguous")
    if g.filter[0] > 1 and g.w.strides[2] != g.filter[1] * g.w.strides[3]:
        return Rejected(reasons.LAYOUT, "planes of the filter have gaps")
    least = 4 if g.direction == "wrw" else 16
    for view in (read, other) if g.direction == "wrw" else (read,):
        if load_of(view) * dtype(view.dtype).nbytes < least:
            return Rejected(reasons.LAYOUT, f"pixels of {view.name} are no multiples of {least} bytes")
    if g.groups == 1 and all(load_of(view) * dtype(view.dtype).nbytes == 16 for view in (read, other)):
        return Rejected(reasons.GROUPS, "one group, whose pixels the dense kernels read as they lie")
    form = narrow_form(g)
    steps = form.steps if g.direction != "wrw" else 0
    if form.exact:
        steps = 3 * prod(g.filter[1:])  # which are unrolled, taps of all phases
    most = _WIDEST if g.groups > 1 else _WIDEST_ALONE
    if form.pieces * form.piece > _WIDEST or form.columns > most or steps > MAX_STEPS:
        return Rejected(reasons.GROUPS, f"groups of {form.inputs} and {form.outputs} channels, filter {g.filter}")
    if (
        max(abs(s) for view in (g.x, g.y) for s in view.strides) > MAX_INDEX
        or g.k * g.w.strides[0] > MAX_INDEX
        or g.n * max(g.input) > MAX_INDEX
        or max(_image(view) for view in (g.x, g.y)) > MAX_INDEX
    ):
        return Rejected(reasons.SIZE)
    return None


def _image(view: TensorView) -> int:
    """The offset of an image's last element, which kernels count in 32 bits."""
    return sum((size - 1) * step for size, step in zip(view.shape[1:], view.strides[1:], strict=True))


def _extents(g: ConvGeometry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Heights, and widths that divide a row evenly."""
    height, width = narrow_form(g).base
    widths = {ceil(width / parts) for parts in (1, 2, 3, 4, 6, 8)} | {min(w, width) for w in (8, 16, 32)}
    heights = {h for h in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, ceil(height / 2), height) if h <= height}
    return tuple(sorted(h for h in heights if h <= 64)), tuple(sorted(w for w in widths if w <= 128))


@lru_cache(maxsize=256)
def _ranked(g: ConvGeometry, target: CudaTarget) -> tuple[Config, ...]:
    fit = fit_of(target).narrow
    found = [(narrow_seconds(t, fit), t.config) for t in _tiles(g, target)]
    return tuple(config for _, config in sorted(found, key=lambda pair: pair[0]))


def _tiles(g: ConvGeometry, target: CudaTarget) -> Iterator[NarrowTile]:
    """Those that fit, whose products are pixels for the most part, and whose rows are long."""
    form = narrow_form(g)
    heights, widths = _extents(g)
    least, results = min(_ROW_BYTES, form.bundles * form.pieces * 16), form.outputs if form.exact else form.columns
    unit, kind = 32 if form.exact else 16, kind_of(form)
    boxes = [
        (h, w)
        for h, w in product(heights, widths)
        if 24 <= h * w <= 512 or (h, w) == (heights[-1], widths[-1])
        if h <= 2 * w or w == widths[-1]  # tall tiles are never faster than wide ones
    ]
    for bundles in AXES[0].values:
        if bundles > form.bundles or not least <= bundles * form.pieces * 16 <= 4 * _ROW_BYTES:
            continue
        for n in AXES[2].values:
            if n > ceil(results / 8):
                break
            for warps, (h, w) in product(AXES[1].values, boxes):
                config = Config(tuple(zip(_NAMES, (bundles, warps, n, h, w, 2, 1), strict=True)))
                alone = kind(form, config, target)
                if alone.threads > MAX_THREADS:
                    break
                if alone.tiles_m * unit * warps <= 1.5 * alone.rows + 16:
                    yield from sharing_sm(alone, AXES[-1].values)
