"""Convolution forward, backward data (any stride, dilation, groups) and GEMM from one template of register tiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from math import inf

from tilesmith.plan.records import Draft
from tilesmith.problems.features import GEMM, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.dense_form import MAX_EXTENT, DenseForm, dense_form, uses_dot
from tilesmith.solvers.c.common.dense_items import DenseTexts, dense_draft
from tilesmith.solvers.c.common.family import Family
from tilesmith.solvers.c.dense.cost import predicted_seconds
from tilesmith.solvers.c.dense.pack_text import filter_text
from tilesmith.solvers.c.dense.text import kernel_text
from tilesmith.solvers.c.dense.tile import DIRECT, STRIP, DenseTile
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
from tilesmith.targets.fits.choose import cpu_fit_of
from tilesmith.targets.target import CpuTarget

AXES = (
    Axis("tile_h", (1, 2, 3, 4, 7), "Rows of pixels of a tile."),
    Axis("tile_w", (), "Pixels of each of its rows."),
    Axis("vectors", (1, 2, 3, 4, 6), "Vectors of output channels of a tile."),
    Axis("item_rows", (), "Rows of pixels of an item, which one thread computes."),
    Axis("item_columns", (), "Pixels of each of its rows; 0: all."),
    Axis("unroll", (1, 2, 3, 4), "Steps of the reduction in a turn of the innermost loop."),
    Axis("channel_groups", (1, 2, 4, 8, 16), "Groups of blocks of output channels, each an item of its own."),
    Axis("groups_outer", (0, 1), "1: items of one such group follow one another, 0: items of the same pixels do."),
    Axis("block_c", (0, 32, 64, 128, 256, 512), "Input channels that are reduced at a time; 0: all."),
    Axis("strip_pad", (0, 4, 8, 16, 32), "Elements between the pixels of a packed strip."),
    Axis("pack", (0, 1), "1: the input is packed into strips, 0: it is read as it lies."),
    Axis("prefetch", (0, 8, 32, 96, 192), "Steps ahead that the filter is fetched; 0: never."),
)
_MAX_STRIP = 64 * 1024 * 1024
_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28)


class DenseSolver(Family[DenseTile]):
    """Register tiles of pixels times channels over a packed filter; x is read as it lies or from a packed strip."""

    name = "c_dense"
    revision = 5
    features = USUAL | GEMM | WINDOW | {"fwd", "bwd", "groups"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        form = dense_form(problem)
        if isinstance(form, Rejected):
            return form
        # Narrow groups leave most lanes of a vector idle: the grouped kernels are better there.
        if form.groups > 1 and isinstance(problem, ConvGeometry) and 2 * form.k < target.lanes(4):
            return Rejected(reasons.GROUPS, f"{form.k} channels a group")
        reach = sum(max(abs(form.first_tap[i]), abs(form.last_tap[i])) * abs(form.x_strides[3 + i]) for i in range(3))
        if max(reach, form.c * len(form.taps)) > MAX_EXTENT:
            return Rejected(reasons.SIZE)
        space = _space(form, target)
        return Accepted() if space.contains(_shortest(space)) else Rejected(reasons.SIZE, "the shortest strip")

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        return _space(_form(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        return _default(_form(problem), target)

    def tile(self, problem: Geometry, config: Config, target: CpuTarget) -> DenseTile:
        return DenseTile(_form(problem), config, target)

    def seconds(self, tile: DenseTile) -> float:
        return predicted_seconds(tile, cpu_fit_of(tile.target).dense)

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        t = self.tile(problem, config, target)
        form, names = t.form, (t.form.x_dtype, t.form.w_dtype, t.form.y_dtype)
        dtypes = names[0] if len(set(names)) == 1 else "".join(names)
        # fwd multiplies the zeros of the padding as the definition does; bwd has no products there.
        guarded = isinstance(problem, ConvGeometry) and problem.direction == "bwd" and form.has_halo
        pieces = form.groups * t.c_blocks * t.blocks * sum(t.segment_count(phase) for phase in form.phases)
        tag = f"m{t.mh}x{t.mw}v{config['vectors']}"
        # Of several blocks of channels the result holds partial sums before the residual is read.
        texts = DenseTexts(
            "dense", dtypes, tag, kernel_text(t, guarded), filter_text(t), pieces, t.strip_bytes, t.packed_bytes,
            in_place=t.c_blocks == 1,
        )  # fmt: skip
        return dense_draft(problem, t, texts, guarded)


def _form(problem: Geometry) -> DenseForm:
    form = dense_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the dense solver does not cover this problem: {form}")
    return form


def _space(form: DenseForm, target: CpuTarget) -> SearchSpace:
    """All axes; ``allowed`` keeps tiles that fit the registers and steps that divide."""
    height, width = form.count[1], form.count[2]
    limit = _accumulators(target, 1)
    even = [-(-width // parts) for parts in range(1, 9)]
    widths = sorted({w for w in (*_WIDTHS, *even) if w <= min(width, limit)})
    every = values_of(AXES)
    heights = [h for h in every["tile_h"] if h <= height and h * min(width, 3) <= limit]
    rows = sorted({r for r in (1, 2, 4, 7, 8, 14, 16, 28, 56, height) if r <= height and (r < 100 or r == height)})
    long_rows = form.flat or height == 1 or width > 128
    cols = sorted({c for c in (16, 28, 56, 112, 224, 448, 896) if c < width} | {0}) if long_rows else [0]
    packs = [DIRECT, STRIP] if _reads_in_place(form, target) else [STRIP]
    blocks = [cb for cb in every["block_c"] if _block_fits(form, cb)]
    nvs = [v for v in every["vectors"] if v <= -(-form.k // target.lanes(4))]
    pad = target.vector_bytes // (2 if uses_dot(form, target) else 4)
    axes = every | {
        "tile_h": tuple(heights), "tile_w": tuple(widths), "vectors": tuple(nvs), "item_rows": tuple(rows),
        "item_columns": tuple(cols), "block_c": tuple(blocks), "strip_pad": (0, pad), "pack": tuple(packs),
    }  # fmt: skip

    return SearchSpace(axes, lambda config: _is_allowed(DenseTile(form, config, target)))


def _is_allowed(t: DenseTile) -> bool:
    value, nv = t.value, t.value["vectors"]
    tall, wide = value["tile_h"], value["tile_w"]
    if tall * wide * nv > _accumulators(t.target, nv) or tall > value["item_rows"]:
        return False
    if 0 < value["item_columns"] < wide or (value["pack"] != STRIP and value["strip_pad"]):
        return False
    if value["groups_outer"] and value["channel_groups"] == 1:
        return False
    if value["channel_groups"] > t.blocks or (value["unroll"] > 1 and t.unroll != value["unroll"]):
        return False
    return not (tall > 1 and t.one_line) and t.strip_bytes <= _MAX_STRIP


def _accumulators(target: CpuTarget, nv: int) -> int:
    """Registers for sums: the others hold vectors of the filter and a splat (none where one is read from memory)."""
    folded = nv == 1 and target.vector_registers > 16
    return target.vector_registers - nv - (1 if folded else 2)


def _reads_in_place(form: DenseForm, target: CpuTarget) -> bool:
    """Whether tiles can read x as it lies."""
    as_it_lies = uses_dot(form, target) or form.x_dtype == "fp32"
    return as_it_lies and not form.has_halo and (form.x_strides[2] == 1 or form.c == 1)


def _block_fits(form: DenseForm, cb: int) -> bool:
    """Blocks of reduced channels keep partial sums in y, which must therefore be fp32 and not an operand."""
    return cb == 0 or (cb < form.c and form.c % cb == 0 and form.y_dtype == "fp32" and form.beta == 0.0)


def _default(form: DenseForm, target: CpuTarget) -> Config:
    """The cost model's choice: a few tiles, and from the best of them axis by axis."""
    space, fit = _space(form, target), cpu_fit_of(target).dense

    @cache
    def cost(config: Config) -> float:
        """Infinite for what the space does not have; all values are those of its axes."""
        tile = DenseTile(form, config, target)
        return predicted_seconds(tile, fit) if _is_allowed(tile) else inf

    tiles: list[Config] = []
    for rows, cols in ((8, 448), (2, 112), (1, 28)):  # shorter strips where long ones are too many bytes
        tiles = tiles or [c for c in _tiles(form, target, space, rows, cols) if space.contains(c)]
    tiles = tiles or [_shortest(space)]
    starts = sorted(tiles, key=cost)[:4]
    return min((_descend(c, space, cost) for c in starts), key=cost)


def _shortest(space: SearchSpace) -> Config:
    """The config with the shortest strip; the space is empty if that is too long."""
    least = {name: min(values) for name, values in space.axes.items()}
    least["item_columns"] = min((n for n in space.axes["item_columns"] if n), default=0)
    return Config(tuple(least.items()))


def _descend(best: Config, space: SearchSpace, cost: Callable[[Config], float]) -> Config:
    """Improve ``best`` along one axis (or two that go together) after the other."""
    together = (
        "item_rows", "item_columns", "pack strip_pad", "unroll", "prefetch", "channel_groups groups_outer", "block_c",
        "item_rows", "item_columns",
    )  # fmt: skip
    for names in map(str.split, together):
        values = itertools.product(*(space.axes[name] for name in names))
        points = (best.replace(**dict(zip(names, point, strict=True))) for point in values)
        best = min((best, *points), key=cost)
    return best


def _tiles(form: DenseForm, target: CpuTarget, space: SearchSpace, rows: int, cols: int) -> Iterator[Config]:
    """For each number of vectors, a large, a middling and the smallest tile, dividing the rows of pixels evenly; then
    tiles of as many pixels in two or three rows: where registers are few, a row's rest is a narrow, slow tile."""
    width, axes = form.count[2], space.axes
    base = {
        "unroll": 1, "channel_groups": 1, "groups_outer": 0, "block_c": 0, "strip_pad": 0, "pack": axes["pack"][0],
        "prefetch": 0,
        "item_rows": max(r for r in axes["item_rows"] if r <= max(rows, axes["item_rows"][0])),
        "item_columns": 0 if width <= cols else max(c for c in axes["item_columns"] if c <= cols),
    }  # fmt: skip
    for nv in axes["vectors"]:
        limit = _accumulators(target, nv) // nv
        for most in dict.fromkeys((limit, -(-limit * 2 // 3), 1)):
            parts = -(-width // max(1, most))
            mw = max(
                (w for w in axes["tile_w"] if w <= min(max(1, most), -(-width // parts))), default=axes["tile_w"][0]
            )
            heights = [h for h in axes["tile_h"] if h <= base["item_rows"]]
            whole = max((h for h in heights if h * mw <= most), default=1) if mw == width else 1
            parted = [(h, max((w for w in axes["tile_w"] if w * h <= most), default=0)) for h in (2, 3) if h in heights]
            shapes = dict.fromkeys(((whole, mw), (1, mw), *((h, w) for h, w in parted if w)))
            found = [{"tile_h": tall, "tile_w": wide} for tall, wide in shapes]
            # Where rows are one line, their length says nothing about a tile's.
            found += [{"tile_h": 1, "tile_w": w, "pack": STRIP} for w in axes["tile_w"] if w in (most, most - 1)]
            for more in found:
                config = Config(tuple((name, (base | {"vectors": nv} | more)[name]) for name in values_of(AXES)))
                if "pack" not in more or DenseTile(form, config, target).one_line:
                    yield config
