"""Convolution forward, backward data (any stride, dilation, groups) and GEMM of bf16 by matrix tiles (AMX)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

from tilesmith.plan.records import Draft
from tilesmith.problems.features import GEMM, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.dense_form import MAX_EXTENT, DenseForm, dense_form
from tilesmith.solvers.c.common.dense_items import DenseTexts, dense_draft
from tilesmith.solvers.c.common.family import Family
from tilesmith.solvers.c.common.tile_registers import DEEP, PIXELS, WIDE
from tilesmith.solvers.c.tiles.cost import predicted_seconds
from tilesmith.solvers.c.tiles.pack_text import filter_text
from tilesmith.solvers.c.tiles.text import kernel_text
from tilesmith.solvers.c.tiles.tile import DIRECT, ROWS, STRIP, MatrixTile
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
from tilesmith.targets.fits.choose import tiles_fit_of
from tilesmith.targets.target import CpuTarget

AXES = (
    Axis("tile_rows", (), "Pixels of a tile register, at most 16."),
    Axis("tiles_m", (1, 2, 3, 4), "Registers of pixels of a tile."),
    Axis("tiles_n", (1, 2, 3, 4), "Registers of 16 output channels of a tile."),
    Axis("item_rows", (), "Rows of pixels of an item, which one thread computes."),
    Axis("item_columns", (), "Pixels of each of its rows; 0: all."),
    Axis("line", (0, 1), "1: tiles walk the rows of an item as one line of pixels, 0: each row by itself."),
    Axis("channel_groups", (1, 2, 4, 8), "Groups of blocks of output channels, each an item of its own."),
    Axis("groups_outer", (0, 1), "1: items of one such group follow one another, 0: items of the same pixels do."),
    Axis("strip_pad", (0, DEEP), "Elements between the pixels of a packed strip."),
    Axis(
        "pack", (DIRECT, STRIP, ROWS), "1: x is packed into strips, 2: into strips of a row's taps, 0: read as it lies."
    ),
)
_MAX_STRIP = 16 * 1024 * 1024
_MAX_SUMS = 4  # registers


class TilesSolver(Family[MatrixTile]):
    """Matrix tiles of pixels times channels over a packed filter; x is read as it lies or from a packed strip."""

    name = "c_tiles"
    revision = 1
    features = USUAL | GEMM | WINDOW | {"fwd", "bwd", "groups"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        if not target.bf16_tiles:
            return Rejected(reasons.TARGET, "no matrix tiles")
        form = dense_form(problem)
        if isinstance(form, Rejected):
            return form
        if form.x_dtype != "bf16" or form.w_dtype != "bf16":
            return Rejected(reasons.DTYPE, f"{form.x_dtype} {form.w_dtype}")
        # Narrow groups leave most of a tile idle: the grouped kernels are better there.
        if form.groups > 1 and isinstance(problem, ConvGeometry) and form.k < WIDE:
            return Rejected(reasons.GROUPS, f"{form.k} channels a group")
        reach = sum(max(abs(form.first_tap[i]), abs(form.last_tap[i])) * abs(form.x_strides[3 + i]) for i in range(3))
        if max(reach, (form.c + DEEP) * len(form.taps)) > MAX_EXTENT or not form.taps:
            return Rejected(reasons.SIZE)
        space = _space(form, target)
        return Accepted() if any(map(space.contains, _starts(space))) else Rejected(reasons.SIZE, "the shortest strip")

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        return _space(_form(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        return _default(_form(problem), target)

    def tile(self, problem: Geometry, config: Config, target: CpuTarget) -> MatrixTile:
        return MatrixTile(_form(problem), config, target)

    def seconds(self, tile: MatrixTile) -> float:
        return predicted_seconds(tile, tiles_fit_of(tile.target))

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        t = self.tile(problem, config, target)
        form = t.form
        # fwd multiplies the zeros of the padding as the definition does; bwd has no products there.
        guarded = isinstance(problem, ConvGeometry) and problem.direction == "bwd" and form.has_halo
        dtypes = "bf16" if form.y_dtype == "bf16" else f"bf16bf16{form.y_dtype}"
        pieces = form.groups * t.blocks * sum(len(t.segments(phase)) for phase in form.phases)
        tag = f"m{t.value['tiles_m']}x{t.value['tile_rows']}n{t.value['tiles_n']}"
        texts = DenseTexts(
            "tiles", dtypes, tag, kernel_text(t, guarded), filter_text(t, guarded), pieces, t.scratch_bytes,
            t.packed_bytes, in_place=True,
        )  # fmt: skip
        return dense_draft(problem, t, texts, guarded)


def _form(problem: Geometry) -> DenseForm:
    form = dense_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the solver of matrix tiles does not cover this problem: {form}")
    return form


def _space(form: DenseForm, target: CpuTarget) -> SearchSpace:
    """All axes; ``allowed`` keeps tiles that fit the registers and strips that fit the caches."""
    _, height, width = form.count
    every = values_of(AXES)
    lines = {width, height * width, height * (width + form.last_tap[2] - form.first_tap[2])}
    even = {-(-n // -(-n // PIXELS)) for n in lines}
    rows = sorted({r for r in (1, 2, 4, 7, 8, 14, 16, 28, 56, height) if r <= height})
    long_rows = form.flat or height == 1 or width > 128
    cols = sorted({c for c in (32, 64, 112, 224, 448, 896) if c < width} | {0}) if long_rows else [0]
    packs = [STRIP]
    if _reads_in_place(form):
        packs.insert(0, DIRECT)
    if _reads_rows(form):
        packs.append(ROWS)
    most = -(-form.k // WIDE)
    axes = every | {
        "tile_rows": tuple(sorted({n for n in (PIXELS, *even) if n <= PIXELS})), "item_rows": tuple(rows),
        "item_columns": tuple(cols), "pack": tuple(packs),
        "tiles_n": tuple(n for n in every["tiles_n"] if n <= most),
        "line": (0, 1) if height > 1 else (0,),
    }  # fmt: skip
    return SearchSpace(axes, lambda config: _is_allowed(MatrixTile(form, config, target)))


def _is_allowed(t: MatrixTile) -> bool:
    value, form = t.value, t.form
    if value["tiles_m"] * value["tiles_n"] > _MAX_SUMS or (t.pack == DIRECT and value["strip_pad"]):
        return False
    if (value["groups_outer"] and value["channel_groups"] == 1) or value["channel_groups"] > t.blocks:
        return False
    if t.line and value["item_columns"]:
        return False
    if t.pack == DIRECT:
        # The last tile of a line begins where it still ends inside, so every line must have as many pixels as a tile.
        if t.line and (form.x_strides[4] != form.count[2] * form.x_strides[5] or form.step != (1, 1, 1)):
            return False
        if value["tile_rows"] > (form.count[1] if t.line else 1) * form.count[2]:
            return False
    return t.strip_bytes <= _MAX_STRIP


def _reads_in_place(form: DenseForm) -> bool:
    """Whether tiles can read x as it lies: whole registers of channels, and nothing outside."""
    apart = form.x_strides[2] != 1 or len(form.phases) > 1
    return form.c % DEEP == 0 and not form.has_halo and not apart and form.x_strides[5] >= 0


def _reads_rows(form: DenseForm) -> bool:
    """Whether the taps of a row can share a pixel of the strip."""
    evenly = len(form.phases) == 1 and form.phases[0].taps_in_row > 1 and form.phases[0].tap_spacing > 0
    return evenly and (form.x_strides[2] == 1 or form.c == 1)


def _default(form: DenseForm, target: CpuTarget) -> Config:
    """The cost model's choice: some tiles, and from the best of them axis by axis."""
    space, fit = _space(form, target), tiles_fit_of(target)

    @cache
    def cost(config: Config) -> float:
        """Infinite for what the space does not have."""
        tile = MatrixTile(form, config, target)
        return predicted_seconds(tile, fit) if _is_allowed(tile) else float("inf")

    best = min(_starts(space), key=cost)
    together = ("item_rows", "item_columns", "tile_rows line", "channel_groups groups_outer", "strip_pad", "item_rows")
    for names in map(str.split, together):
        values = itertools.product(*(space.axes[name] for name in names))
        points = (best.replace(**dict(zip(names, point, strict=True))) for point in values)
        best = min((best, *points), key=cost)
    return best


def _starts(space: SearchSpace) -> Iterator[Config]:
    """Each way to read x, with each shape of a tile and few rows of pixels."""
    axes = space.axes
    shapes = [(2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (1, 1)]
    for pack, line, rows in itertools.product(axes["pack"], axes["line"], axes["tile_rows"]):
        for m, n in shapes:
            if n in axes["tiles_n"]:
                for tall in {axes["item_rows"][0], max(r for r in axes["item_rows"] if r <= 8)}:
                    yield Config((
                        ("tile_rows", rows), ("tiles_m", m), ("tiles_n", n), ("item_rows", tall),
                        ("item_columns", axes["item_columns"][0]), ("line", line), ("channel_groups", 1),
                        ("groups_outer", 0), ("strip_pad", 0), ("pack", pack),
                    ))  # fmt: skip
