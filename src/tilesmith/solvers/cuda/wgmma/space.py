"""Search space and untuned choice of the sm_90a kernel."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tilesmith.codegen.cuda.hopper import product_widths
from tilesmith.solvers.cuda.common.form import Sm90Form
from tilesmith.solvers.cuda.common.listed import cheapest
from tilesmith.solvers.cuda.common.tile import most_sums
from tilesmith.solvers.cuda.wgmma.cost import bound_by_memory, least_seconds, predicted_seconds
from tilesmith.solvers.cuda.wgmma.tile import CLUSTERS, MAX_STAGES, Sm90Tile, streams
from tilesmith.solvers.solver import Axis, Config, SearchSpace, cached_property, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_FEW_BYTES = 2**22  # of columns that stay in L2 beside what streams through it
_RANKED = 300  # configs that a search may begin with
_SHAPES = (  # warpgroups, products_m, pingpong, blocks_per_sm
    (1, 1, 0, 1), (2, 1, 0, 1), (2, 1, 1, 1), (1, 2, 0, 1), (2, 2, 0, 1), (2, 2, 1, 1), (3, 1, 0, 1),
    (1, 1, 0, 2), (1, 2, 0, 2), (2, 1, 0, 2),
)  # fmt: skip
_SPLITS = tuple(range(1, 9))
_DEPTHS = (16, 32, 64, 128, 256)
_SLICES = (*range(1, 17), 18, 20, 22, 24, 26, 28, 30, 33, 36, 40, 44, 48, 52, 60, 66, 88, 132)
AXES = (
    Axis("warpgroups", (1, 2, 3), "Multiplying warpgroups of a block."),
    Axis("products_m", (1, 2), "Products of 64 rows of each warpgroup."),
    Axis("block_n", tuple(range(8, 257, 8)), "Columns of a tile."),
    Axis("block_k", _DEPTHS, "Depth of a step of the ring."),
    Axis("stages", (0, 3, 4, MAX_STAGES), "Stages of the ring; 0: as many as are worth it, 24: all that fit."),
    Axis("pingpong", (0, 1), "1: each warpgroup has a tile of its own."),
    Axis("cluster_k", _SPLITS, "Blocks of a cluster that share a tile along k, whose sums they send one another."),
    Axis("split_k", _SLICES, "Parts of k that a second kernel adds."),
    Axis("group_m", (1, 2, 4, 8, 16), "Rows of tiles that are walked together."),
    Axis("taps_inner", (0, 1), "1: the taps of a block of channels follow one another, 0: the channels of a tap do."),
    Axis("swap_mn", (0, 1), "1: rows and columns are exchanged."),
    Axis("blocks_per_sm", (1, 2), "Blocks that share an SM."),
    Axis("mix_layers", (0, 1), "1: the layers of backward data are computed side by side, 0: one after the other."),
    Axis("store_buffers", (2, 4), "Stores that a warp has under way."),
    Axis("slab_n", (64, 32), "Contiguous columns that a copy of backward weights brings."),
    Axis("resident", (0, 1), "1: the columns stay in shared memory for all tiles of a block."),
    Axis(
        "cluster_m",
        tuple(CLUSTERS),
        "Blocks of a cluster that share their columns, of which each brings a part to all; 4: two by two, which share "
        "rows too; two digits: so many below one another, and so many beside one another, which share rows.",
    ),
)


def _config(**values: int) -> Config:
    base = {
        "warpgroups": 2, "products_m": 1, "block_n": 128, "block_k": 64, "stages": 0, "pingpong": 0, "cluster_k": 1,
        "split_k": 1, "group_m": 1, "taps_inner": 0, "swap_mn": 0, "blocks_per_sm": 1, "mix_layers": 0,
        "store_buffers": 2, "slab_n": 64, "resident": 0, "cluster_m": 1,
    }  # fmt: skip
    return Config(tuple((base | values).items()))


@dataclass(frozen=True)
class Space:
    """The configs of a problem that has ``forms``, by ``swap_mn``."""

    forms: tuple[Sm90Form, ...]
    target: CudaTarget

    def tile(self, config: Config) -> Sm90Tile:
        return Sm90Tile(self.forms[config["swap_mn"]], config, self.target)

    @cached_property
    def points(self) -> SearchSpace:
        form, kind = self.forms[0], self.forms[0].kind
        convolution, gemm = kind == "conv", kind == "gemm"
        widths = sorted({bn for each in self.forms for bn in _widths(each)})
        depths = self._depths(form)
        least = _config(block_k=min(depths))
        steps = max(max(Sm90Tile(each, least, self.target).layer_steps) for each in self.forms)
        axes = values_of(AXES) | {
            "block_n": tuple(widths), "block_k": depths,
            "stages": (0, 3, 4, MAX_STAGES) if streams(form, self.target) else (0, 3, 4),
            "cluster_k": tuple(s for s in _SPLITS if s <= steps),
            "split_k": tuple(s for s in _SLICES if s <= steps and (not convolution or s <= 8)),
            "taps_inner": (0, 1) if convolution and max(form.taps.counts) > 1 else (0,),
            "swap_mn": tuple(range(len(self.forms))),
            "mix_layers": (0, 1) if convolution and form.layers > 1 else (0,),
            "store_buffers": (2, 4) if any(each.mapped for each in self.forms) else (2,), "slab_n": _slabs(form),
            "resident": (0, 1) if gemm or (convolution and form.layers == 1) else (0,),
            "cluster_m": tuple(CLUSTERS) if gemm else (1, 2) if convolution else (1,),
        }  # fmt: skip
        return SearchSpace(axes, self._allows)

    def _allows(self, config: Config) -> bool:
        if config["swap_mn"] >= len(self.forms):
            return False
        t = self.tile(config)
        if config["block_n"] not in _widths(t.form) or (config["stages"] == MAX_STAGES and not _fuller(t)):
            return False
        if config["group_m"] > 1 and (t.tiles_n == 1 or config["group_m"] >= 2 * t.tiles_m):
            return False
        return t.fits and t.block_m < 2 * max(t.form.rows, 64)

    def ranked(self) -> list[Config]:
        """Some hundreds of configs, those first that the cost model likes."""
        fit = fit_of(self.target).tile
        found = [(predicted_seconds(tile, fit), tile.config) for tile in self._fitting()]
        return [self._grouped(config) for _, config in sorted(found, key=lambda each: each[0])[:_RANKED]]

    def best(self) -> Config:
        """The first of ``ranked``."""
        fit = fit_of(self.target).tile
        return self._grouped(cheapest(self._sizes(), self._variants, least_seconds, predicted_seconds, fit).config)

    def _grouped(self, config: Config) -> Config:
        """``config`` with so many rows of tiles walked together that what its columns bring from DRAM is read once."""
        t = self.tile(config)
        if config["resident"] or (config["split_k"] > 1 and t.block_n <= t.block_m):
            return config
        columns = t.form.cols * t.form.reduced * len(t.form.taps.offset) * t.form.nbytes
        if columns < _FEW_BYTES and bound_by_memory(t, fit_of(self.target).tile):
            return config  # they stay in L2: whole rows are written at a time
        for group in (16, 8, 4, 2) if config["swap_mn"] else (8, 4, 2):
            wide = config.replace(group_m=group)
            if self.points.contains(wide):
                return wide
        return config

    def _fitting(self) -> Iterator[Sm90Tile]:
        return (tile for first in self._sizes() if first.fits for tile in self._variants(first) if tile.fits)

    def _sizes(self) -> Iterator[Sm90Tile]:
        """A tile of each size, whether or not it fits."""
        for swap, form in enumerate(self.forms):
            widths = _widths(form)
            for wgs, mi, pp, per_sm in _SHAPES:
                if 64 * mi * (1 if pp else wgs) >= 2 * max(form.rows, 64):
                    continue
                base = _config(warpgroups=wgs, products_m=mi, pingpong=pp, swap_mn=swap, blocks_per_sm=per_sm)
                most = most_sums(wgs, per_sm, form.promoted)
                narrow = [bn for bn in widths if mi * bn // 2 <= most]
                depths = [base.replace(block_k=bk, slab_n=slab) for bk in self._depths(form) for slab in _slabs(form)]
                shapes = [Sm90Tile(form, config, self.target) for config in depths]
                for bn, shape in itertools.product(narrow, shapes):
                    t = shape.changed(block_n=bn)
                    many = bn < min(64, widths[-1]) and t.tiles > 4 * t.slots  # narrow tiles are for few of them
                    if not many:
                        yield t

    def _variants(self, t: Sm90Tile) -> Iterator[Sm90Tile]:
        """``t``, and tiles of its size whose configs differ in other axes."""
        axes = self.points.axes

        if 1 in axes["mix_layers"]:  # groups and phases of the same pixels side by side: up to 30 % faster
            yield t.changed(mix_layers=1)
        yield t
        full = t.changed(stages=MAX_STAGES) if MAX_STAGES in axes["stages"] else t
        fuller = full.stages > t.stages
        if fuller:
            yield full
        if 1 in axes["resident"] and t.tiles > t.slots:
            yield t.changed(resident=1)
        # More than two gained with large tiles, and more than two by two only where rows begin inside sectors or lines.
        large = t.block_n >= 64 and t.value["blocks_per_sm"] == 1
        last = 2 if not large else max(CLUSTERS) if t.form.torn else 4
        yield from (t.changed(cluster_m=blocks) for blocks in axes["cluster_m"] if 1 < blocks <= last)
        for split in (1,) if t.pingpong else axes["cluster_k"]:
            if split > 1 and t.tiles * split <= t.slots:
                yield t.changed(cluster_k=split)
                if t.span > 128 and fuller:
                    yield full.changed(cluster_k=split)
        # The most slices that fill the SMs once, and twice.
        slices = axes["split_k"]
        most = (slices[max(1, bisect_right(slices, n * t.slots // t.tiles)) - 1] for n in (1, 2))
        yield from (t.changed(split_k=s) for s in {s for s in most if s > 1})

    def _depths(self, form: Sm90Form) -> tuple[int, ...]:
        """Channels of a step: 128 bytes, or fewer where those reach far beyond the last, more where memory bounds."""
        whole = 128 // form.nbytes
        if form.kind == "gemm" and streams(form, self.target):
            most = min(4 * whole, max(_DEPTHS))
            return tuple(bk for bk in _DEPTHS if whole <= bk <= most and (bk == whole or 2 * bk <= form.reduced))
        if form.kind != "conv":
            return (whole,)
        if form.groups > 1 and not form.apart:  # what lies beyond a group's channels is the next group's
            return tuple(bk for bk in reversed(_DEPTHS) if whole // 4 <= bk <= whole and form.channels % bk == 0)
        beyond, least = -(-form.channels // whole) * whole, max(whole // 4, min(_DEPTHS))
        shorter = (bk for bk in reversed(_DEPTHS) if least <= bk < whole)
        return (whole, *(bk for bk in shorter if -(-form.channels // bk) * bk < beyond))


def _widths(form: Sm90Form) -> tuple[int, ...]:
    """Columns of a tile: wgmma has every multiple of 8; slabs of contiguous columns count in 64."""
    step = min(_slabs(form)) if form.kind == "wrw" else 32 if form.b_columns else 8
    most = -(-form.cols // step) * step
    widths = product_widths(form.dtype) if step == 8 else range(step, 257, step)
    return tuple(bn for bn in widths if bn <= most) or (step,)


def _fuller(t: Sm90Tile) -> bool:
    """Whether a ring of all that fits is longer than the one that is worth it."""
    return t.stages > Sm90Tile(t.form, t.config.replace(stages=0), t.target).stages


def _slabs(form: Sm90Form) -> tuple[int, ...]:
    """Slabs of 32 channels where those of 64 would be half empty."""
    return (64, 32) if form.kind == "wrw" and 0 < form.channels % 64 <= 32 else (64,)
