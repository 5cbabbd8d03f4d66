"""Transposed convolutions, backward data of strided ones, and convolutions with few results, in one pass.

Every input is read once for all phases of the results (``phases as columns``); where results are few, once for all taps
(``taps as columns``). Rows of results are staged in shared memory and stored whole, whatever the number of channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod

from tilesmith.plan.records import Draft
from tilesmith.problems.features import EPILOGUE, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.listed import cheapest
from tilesmith.solvers.cuda.phases.cost import least_seconds, phases_seconds
from tilesmith.solvers.cuda.phases.draft import phases_draft
from tilesmith.solvers.cuda.phases.form import PhasesForm, phases_form
from tilesmith.solvers.cuda.phases.tile import PhasesTile, fills, product_rows, window_of
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.fits.fit import PhasesFit
from tilesmith.targets.target import CudaTarget

AXES = (
    Axis(
        "taps_on_n",
        (0, 1, 2),
        "Columns are phases (0), taps, with sums in shared memory (1), or rows of taps, with phases along W (2).",
    ),  # fmt: skip
    Axis("tile_d", (), "Positions of a tile along the depth, or images where there is none."),
    Axis("tile_h", (), "Positions of a tile along the height."),
    Axis("tile_w", (), "Positions of a tile along the width."),
    Axis("strip_h", (), "Rows of positions that a block walks down where columns are taps; else 0."),
    Axis("phase_rows", (), "Rows of results that a block computes of each position; 1 where columns are taps."),
    Axis("block_c", (), "Channels of a step of the ring."),
    Axis("warps_m", (1, 2, 4, 8), "Warps along the positions."),
    Axis("warps_n", (1, 2, 4), "Warps along the columns."),
    Axis("stages", (1, 2, 3, 4), "Stages of the ring; 1: a tile's channels at once, and its results in their place."),
    Axis("blocks_per_sm", (1, 2, 3, 4, 6, 8), "Blocks that share an SM."),
)
WIDE_AXES = tuple(
    Axis("warps_m", (4, 8, 16), "Warps along the positions: four multiply together.")
    if axis.name == "warps_m"
    else Axis("warps_n", (1, 2, 4), "Warpgroups along the columns.")
    if axis.name == "warps_n"
    else Axis("stages", (2, 3, 4), "Stages of the ring.")
    if axis.name == "stages"
    else axis
    for axis in AXES
)
_WARPS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2), (1, 4), (2, 4))
_WARPGROUPS = ((4, 1), (8, 1), (16, 1), (4, 2), (8, 2), (4, 4))
_RANKED = 256  # configs that are worth measuring
_MOST_POSITIONS, _MOST_WIDE_POSITIONS = 512, 1280  # of a tile
_MAX_TAP_COLUMNS = 256
_MOST_WHOLE_ROWS = 48  # of inputs of a tile that is a strip
_WHOLE_BLOCKS = (1, 2, 3)  # tiles of an SM, each a strip


class PhasesSolver:
    """Channels-last tensors of any channel counts and pitches, bf16 and fp16; no dilation, no groups."""

    name = "mma_phases"
    revision = 1
    features = USUAL | EPILOGUE | (WINDOW - {"dilation"}) | {"fwd", "bwd"}
    axes: tuple[Axis, ...] = AXES
    wgmma = False

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        form = phases_form(problem)
        if isinstance(form, Rejected):
            return form
        if self.wgmma and not target.has_wgmma:
            return Rejected(reasons.TARGET, "wgmma")
        if not target.has_cp_async or (form.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "cp.async")
        any_fits = next(_tiles(form, target, self.wgmma), None) is not None
        return Accepted() if any_fits else Rejected(reasons.SIZE)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> PhasesTile:
        """``config`` applied to ``problem``."""
        return PhasesTile(_form(problem), config, target, self.wgmma)

    @remembered
    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        form = _form(problem)
        columns = _on_n(form)[1:]
        axes = values_of(self.axes) | {
            "taps_on_n": (0, *columns), "tile_d": _depths(form),
            "tile_h": tuple(sorted({*_heights(form, self.wgmma), *_whole_heights(form, self.wgmma)})),
            "tile_w": _widths(form, self.wgmma),
            "strip_h": (0, *(_strips(form) if columns else ())),
            "phase_rows": _phase_rows(form), "block_c": _blocks(form),
        }  # fmt: skip
        return SearchSpace(axes, lambda config: PhasesTile(form, config, target, self.wgmma).fits)

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """The best of each kind, the untuned choice first, then others."""
        return list(_ranked(_form(problem), target, self.wgmma))

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        sizes, fit = _sizes(_form(problem), target, self.wgmma), _fit(target, self.wgmma)
        return cheapest(sizes, _changed, least_seconds, phases_seconds, fit).config

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return phases_draft(self.tile(problem, config, target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return phases_seconds(self.tile(problem, config, target), _fit(target, self.wgmma))


class WgmmaPhasesSolver(PhasesSolver):
    """As ``PhasesSolver``, with products of warpgroups (wgmma), which read the window from shared memory."""

    name = "wgmma_phases"
    axes = WIDE_AXES
    wgmma = True


def _form(problem: Geometry) -> PhasesForm:
    assert isinstance(problem, ConvGeometry)
    form = phases_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the solver of phases does not cover this problem: {form}")
    return form


def _fit(target: CudaTarget, wgmma: bool) -> PhasesFit:
    fit = fit_of(target)
    return fit.wide_phases if wgmma else fit.phases


def _on_n(form: PhasesForm) -> tuple[int, ...]:
    """The values of ``taps_on_n`` for this problem: columns are phases, all taps, or rows of taps."""
    d, h, w = form.filter
    taps = d * h * w > 1 and d * h * w * form.cols <= _MAX_TAP_COLUMNS
    rows = d * h > 1 and form.taps[2] > 1 and d * h * form.row_columns <= _MAX_TAP_COLUMNS
    return (0, *((1,) if taps else ()), *((2,) if rows else ()))


def _shares(size: int, most: int, parts: int) -> set[int]:
    """``size`` in up to ``parts`` equal parts of at most ``most``, rounded up."""
    return {part for count in range(1, parts + 1) if (part := -(-size // count)) <= most}


def _widths(form: PhasesForm, wgmma: bool) -> tuple[int, ...]:
    base = form.base[2]
    fixed = {4, 8, 16, 32, 64} | {16 * n + 1 - form.taps[2] for n in (1, 2, 3, 4, 6, 8)}  # windows of whole products
    return tuple(sorted(_shares(base, 256 if wgmma else 128, 8) | {w for w in fixed if 1 <= w <= base}))


def _heights(form: PhasesForm, wgmma: bool) -> tuple[int, ...]:
    base = form.base[1]
    fixed = {h for h in (1, 2, 3, 4, 5, 6, 8, 10, 16) if h <= base}
    return tuple(sorted(_shares(base, 24 if wgmma else 16, 3) | fixed))


def _whole_heights(form: PhasesForm, wgmma: bool) -> tuple[int, ...]:
    """Rows of inputs of strips that are one tile each."""
    if wgmma or len(_on_n(form)) == 1:
        return ()
    more = form.taps[1] - 1
    return tuple(strip + more for strip in _strips(form) if strip + more <= min(form.base[1], _MOST_WHOLE_ROWS))


def _depths(form: PhasesForm) -> tuple[int, ...]:
    return tuple(d for d in (1, 2, 3, 4, 8) if d <= form.base[0])


def _strips(form: PhasesForm) -> tuple[int, ...]:
    """Down to 8 rows, for fewer spend much of their time on what the rows above them know."""
    base = form.base[1]
    return tuple(
        sorted({-(-base // parts) for parts in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if base >= 8 * parts} | {base})
    )


def _phase_rows(form: PhasesForm) -> tuple[int, ...]:
    return tuple(rows for rows in range(1, form.phase_rows + 1) if form.phase_rows % rows == 0)


def _blocks(form: PhasesForm) -> tuple[int, ...]:
    fixed = {c for c in (16, 32, 64, 128) if c < form.padded}
    return tuple(sorted(fixed | ({form.padded} if form.padded <= 128 else set())))


Box = tuple[int, int, int]


def _shapes(form: PhasesForm, on_n: bool, blocks: int, wgmma: bool) -> list[Box]:
    """Boxes (d, h, w) of positions: for each size those that compute and read the least.

    ``blocks`` at a time walk down strips.
    """
    small, most = form.base[1] * form.base[2] <= 256, _MOST_WIDE_POSITIONS if wgmma else _MOST_POSITIONS
    found: dict[int, list[tuple[float, Box]]] = {}
    for d, h, w in product(_depths(form), _heights(form, wgmma), _widths(form, wgmma)):
        positions, box = d * h * w, (d, h, w)
        if positions > most or (d > 1 and (not small or h < form.base[1] or w < form.base[2])):
            continue
        if on_n:
            tiles = _turns(form, box, _strip(form, box, blocks), blocks) * blocks
        else:
            tiles = form.outer * prod(-(-size // tile) for size, tile in zip(form.base, box, strict=True))
        unit = 64 if wgmma else 16
        computed = -(-product_rows(form, box, on_n, wgmma) // unit) * unit
        read = 0.3 * prod(window_of(form, box, on_n))
        found.setdefault((positions - 1).bit_length(), []).append((tiles * (computed + read), box))
    return [box for several in found.values() for _, box in sorted(several)[:2]]


def _whole_boxes(form: PhasesForm, on_n: int, cores: int) -> Iterator[Box]:
    """Strips that are one tile each, no more than find room at once: those that compute and read the least."""
    found: dict[Box, None] = {}
    for blocks in _WHOLE_BLOCKS:
        order = []
        for h, w in product(_whole_heights(form, False), _widths(form, False)):
            strips = form.outer * form.base[0] * -(-form.base[1] // (h + 1 - form.taps[1])) * -(-form.base[2] // w)
            box = (1, h, w)
            if strips <= blocks * cores:
                order.append((product_rows(form, box, on_n, False) + 0.3 * prod(window_of(form, box, True)), box))
        found |= dict.fromkeys(box for _, box in sorted(order)[:2])
    return iter(found)


def _tiles(form: PhasesForm, target: CudaTarget, wgmma: bool) -> Iterator[PhasesTile]:
    """Configs that fit and may be fast."""
    return (tile for alone in _sizes(form, target, wgmma) for tile in _changed(alone) if tile.fits)


def _sizes(form: PhasesForm, target: CudaTarget, wgmma: bool) -> Iterator[PhasesTile]:
    """A tile of each size: alone on an SM, of two stages, or of one where it is a strip."""
    for on_n in _on_n(form):
        columns = (form.row_columns, prod(form.filter) * form.cols, prod(form.filter[:2]) * form.row_columns)[on_n]
        phase_rows = (1,) if on_n else tuple(n for n in _phase_rows(form) if n == 1 or n * columns <= 256)
        boxes = [(box, 2) for box in _shapes(form, bool(on_n), 2 * target.cores, wgmma)]
        boxes += [(box, 1) for box in _whole_boxes(form, on_n, target.cores)] if on_n and not wgmma else []
        for box, stages in boxes:
            strip = _strip(form, box, target.cores) if on_n else 0
            if stages == 1:
                strip = box[1] + 1 - form.taps[1]
            along = product_rows(form, box, on_n, wgmma)
            warps = [each for each in (_WARPGROUPS if wgmma else _WARPS) if fills(along, each[0], wgmma)]
            for rows, (warps_m, warps_n), c in product(phase_rows, warps, _blocks(form)):
                m, n = -(-prod(box) // (16 * warps_m)), -(-rows * columns // (8 * warps_n))
                if m * n > 32 or (warps_n > 1 and n < 2):
                    continue
                values = (on_n, *box, strip, rows, c, warps_m, warps_n, stages, 1)
                alone = PhasesTile(form, Config(tuple(zip(_NAMES, values, strict=True))), target, wgmma)
                if alone.exists and alone.most_blocks:
                    yield alone


def _changed(alone: PhasesTile) -> Iterator[PhasesTile]:
    """As many blocks on an SM as there is room for, or somewhat fewer."""
    form, cores = alone.form, alone.target.cores
    for blocks in [blocks for blocks in AXES[-1].values if blocks <= alone.most_blocks][-2:]:
        if alone.whole:
            tile = alone.changed(blocks_per_sm=blocks)
            if tile.tiles <= tile.grid:
                yield tile
            continue
        strip = _strip(form, alone.box, blocks * cores) if alone.taps_on_n else 0
        for stages in (2,) if alone.chunks == 1 else (2, 3, 4) if alone.wgmma else (2, 3):
            yield alone.changed(strip_h=strip, blocks_per_sm=blocks, stages=stages)


def _turns(form: PhasesForm, box: Box, strip: int, blocks: int) -> int:
    """Turns of a block, where ``blocks`` share the strips."""
    d, h, w = form.base
    strips = form.outer * -(-d // box[0]) * -(-w // box[2]) * -(-h // strip)
    return -(-strips // blocks) * -(-(strip + form.taps[1] - 1) // box[1])


def _strip(form: PhasesForm, box: Box, blocks: int) -> int:
    """The strip with which ``blocks`` blocks need the fewest turns."""
    return min(_strips(form), key=lambda strip: (_turns(form, box, strip, blocks), -strip))


_NAMES = tuple(axis.name for axis in AXES)


@lru_cache(maxsize=256)
def _ranked(form: PhasesForm, target: CudaTarget, wgmma: bool) -> tuple[Config, ...]:
    """The best of each kind first: a search shall not measure the same tile with three depths of its ring."""
    fit = _fit(target, wgmma)
    tiles = ((phases_seconds(tile, fit), _kind(tile), tile.config) for tile in _tiles(form, target, wgmma))
    order = sorted(tiles, key=lambda each: each[0])
    first: dict[tuple[int, ...], Config] = {}
    for _, kind, config in order:
        first.setdefault(kind, config)
    others = [config for *_, config in order]
    return tuple(dict.fromkeys([*first.values(), *others]))[:_RANKED]


def _kind(tile: PhasesTile) -> tuple[int, ...]:
    v = tile.value
    return v["taps_on_n"], v["phase_rows"], v["block_c"], tile.warps, v["blocks_per_sm"]
