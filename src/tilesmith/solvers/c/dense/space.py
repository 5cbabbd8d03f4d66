"""The dense solver's search space and its untuned choice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilesmith.solvers.c.dense.cost import predicted_seconds
from tilesmith.solvers.c.dense.form import DenseForm, uses_dot
from tilesmith.solvers.c.dense.tile import DIRECT, STRIP, Tiling
from tilesmith.solvers.solver import Axis, Config, SearchSpace, values_of
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
NAMES = tuple(axis.name for axis in AXES)
MAX_STRIP = 64 * 1024 * 1024
_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28)


def dense_space(form: DenseForm, target: CpuTarget) -> SearchSpace:
    """All axes; ``allowed`` keeps tiles that fit the registers and steps that divide."""
    height, width = form.count[1], form.count[2]
    limit = accumulators(target, 1)
    even = [-(-width // parts) for parts in range(1, 9)]
    widths = sorted({w for w in (*_WIDTHS, *even) if w <= min(width, limit)})
    heights = [h for h in values_of(AXES)["tile_h"] if h <= height and h * min(width, 3) <= limit]
    rows = sorted({r for r in (1, 2, 4, 7, 8, 14, 16, 28, 56, height) if r <= height and (r < 100 or r == height)})
    long_rows = form.flat or height == 1 or width > 128
    cols = sorted({c for c in (16, 28, 56, 112, 224, 448, 896) if c < width} | {0}) if long_rows else [0]
    packs = [p for p in (DIRECT, STRIP) if pack_fits(form, target, p)]
    blocks = [cb for cb in (0, 32, 64, 128, 256, 512) if cb_fits(form, cb)]
    nvs = [v for v in (1, 2, 3, 4, 6) if v <= -(-form.k // target.lanes(4))]
    pad = target.vector_bytes // (2 if uses_dot(form, target) else 4)
    axes = values_of(AXES) | {
        "tile_h": tuple(heights), "tile_w": tuple(widths), "vectors": tuple(nvs), "item_rows": tuple(rows),
        "item_columns": tuple(cols), "block_c": tuple(blocks), "strip_pad": (0, pad), "pack": tuple(packs),
    }  # fmt: skip

    def allowed(config: Config) -> bool:
        value = dict(config.values)
        if (
            value["tile_h"] * value["tile_w"] * value["vectors"] > accumulators(target, value["vectors"])
            or value["tile_h"] > value["item_rows"]
        ):
            return False
        if 0 < value["item_columns"] < value["tile_w"] or (value["pack"] != STRIP and value["strip_pad"]):
            return False
        if value["groups_outer"] and value["channel_groups"] == 1:
            return False
        t = Tiling(form, config, target)
        if value["channel_groups"] > t.blocks or (value["unroll"] > 1 and t.unroll != value["unroll"]):
            return False
        if value["tile_h"] > 1 and t.one_line:
            return False
        return t.strip_bytes <= MAX_STRIP

    return SearchSpace(axes, allowed)


def accumulators(target: CpuTarget, nv: int) -> int:
    """Registers for sums: the others hold vectors of the filter and a splat (none where one is read from memory)."""
    folded = nv == 1 and target.vector_registers > 16
    return target.vector_registers - nv - (1 if folded else 2)


def pack_fits(form: DenseForm, target: CpuTarget, pack: int) -> bool:
    if pack == DIRECT:
        as_it_lies = uses_dot(form, target) or form.x_dtype == "fp32"
        return as_it_lies and not form.has_halo and (form.x_strides[2] == 1 or form.c == 1)
    return pack == STRIP


def cb_fits(form: DenseForm, cb: int) -> bool:
    """Blocks of reduced channels keep partial sums in y, which must therefore be fp32 and not an operand."""
    return cb == 0 or (cb < form.c and form.c % cb == 0 and form.y_dtype == "fp32" and form.beta == 0.0)


def dense_default(form: DenseForm, target: CpuTarget) -> Config:
    """The cost model's choice: a few tiles, and from the best of them axis by axis."""
    space = dense_space(form, target)
    tiles: list[Config] = []
    for rows, cols in ((8, 448), (2, 112), (1, 28)):  # shorter strips where long ones are too many bytes
        tiles = tiles or [c for c in _tiles(form, target, space, rows, cols) if space.contains(c)]
    tiles = tiles or [smallest_item(space)]
    starts = sorted(tiles, key=lambda c: cost(form, c, target))[:4]
    return min((_descend(form, c, target, space) for c in starts), key=lambda c: cost(form, c, target))


def smallest_item(space: SearchSpace) -> Config:
    """The config with the shortest strip; the space is empty if that is too long."""
    least = {name: min(values) for name, values in space.axes.items()}
    least["item_columns"] = min((n for n in space.axes["item_columns"] if n), default=0)
    return Config(tuple(least.items()))


def _descend(form: DenseForm, best: Config, target: CpuTarget, space: SearchSpace) -> Config:
    """Improve ``best`` along one axis (or two that go together) after the other."""
    together = (
        "item_rows", "item_columns", "pack strip_pad", "unroll", "prefetch", "channel_groups groups_outer", "block_c",
        "item_rows", "item_columns",
    )  # fmt: skip
    for names in map(str.split, together):
        values = itertools.product(*(space.axes[name] for name in names))
        points = [best, *(best.replace(**dict(zip(names, point, strict=True))) for point in values)]
        best = min((c for c in points if space.contains(c)), key=lambda c: cost(form, c, target))
    return best


def cost(form: DenseForm, config: Config, target: CpuTarget) -> float:
    return predicted_seconds(Tiling(form, config, target), cpu_fit_of(target).dense)


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
        limit = accumulators(target, nv) // nv
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
                config = Config(tuple((name, (base | {"vectors": nv} | more)[name]) for name in NAMES))
                if "pack" not in more or Tiling(form, config, target).one_line:
                    yield config
