"""Search space and untuned choice of the sm_90a kernel.

Axes: ``wgs`` multiplying warpgroups, ``mi`` 64-row products of each, ``bn`` columns and ``bk`` depth of a step,
``stages`` of the ring (0: all that fit), ``pp`` pingpong (a tile for each warpgroup), ``split`` blocks of a cluster
along k, ``slices`` along k summed by a second kernel, ``group`` rows of tiles walked together, ``inner`` taps inside
channels, ``swap`` rows and columns exchanged, ``per_sm`` blocks that share an SM,
``mix`` layers side by side instead of one after the other, ``bufs`` stores a warp has under way, ``slab`` contiguous
columns that one copy of ``wrw`` brings, ``resident`` columns that stay in shared memory for all tiles of a block,
``cast`` blocks of a cluster that share their columns, of which each brings a part to all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from tilesmith.solvers.cuda.cost_sm90 import bound_by_memory, predicted_seconds
from tilesmith.solvers.cuda.form_sm90 import Sm90Form
from tilesmith.solvers.cuda.tile_sm90 import MAX_STAGES, Sm90Tile, streams
from tilesmith.solvers.solver import Config, SearchSpace
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_FEW_BYTES = 2**22  # of columns that stay in L2 beside what streams through it
_RANKED = 300  # configs that a search may begin with
FormOf = Callable[[int], Sm90Form | None]  # by ``swap``
_SHAPES = (  # wgs, mi, pp, per_sm
    (1, 1, 0, 1), (2, 1, 0, 1), (2, 1, 1, 1), (1, 2, 0, 1), (2, 2, 0, 1), (2, 2, 1, 1), (3, 1, 0, 1),
    (1, 1, 0, 2), (1, 2, 0, 2), (2, 1, 0, 2),
)  # fmt: skip
_SLICES = (*range(1, 17), 18, 20, 22, 24, 26, 28, 30, 33, 36, 40, 44, 48, 52, 60, 66, 88, 132)


def sm90_space(form_of: FormOf, target: CudaTarget) -> SearchSpace:
    swaps = tuple(swap for swap in (0, 1) if form_of(swap) is not None)
    forms = [form for swap in swaps if (form := form_of(swap)) is not None]
    kind = forms[0].kind
    widths = sorted({bn for form in forms for bn in _widths(form)})
    depths = _depths(forms[0], target)
    steps = max(max(Sm90Tile(form, _config(bk=min(depths)), target).layer_steps) for form in forms)
    axes = {
        "wgs": (1, 2, 3), "mi": (1, 2), "bn": tuple(widths), "bk": depths, "stages": _rings(forms[0], target),
        "pp": (0, 1),
        "split": tuple(s for s in range(1, 9) if s <= steps),
        "slices": tuple(s for s in _SLICES if s <= steps and (kind != "conv" or s <= 8)),
        "group": (1, 2, 4, 8, 16), "inner": (0, 1) if kind == "conv" and forms[0].taps.most > 1 else (0,),
        "swap": swaps, "per_sm": (1, 2), "mix": (0, 1) if kind == "conv" and forms[0].layers > 1 else (0,),
        "bufs": (2, 4) if any(form.mapped for form in forms) else (2,), "slab": _slabs(forms[0]),
        "resident": (0, 1) if kind != "wrw" and (kind == "gemm" or forms[0].layers == 1) else (0,),
        "cast": (1, 2) if kind != "wrw" else (1,),
    }  # fmt: skip

    def allowed(config: Config) -> bool:
        form = form_of(config["swap"])
        if form is None or config["bn"] not in _widths(form):
            return False
        t = Sm90Tile(form, config, target)
        if config["stages"] == MAX_STAGES and not _fuller(t):
            return False
        if config["group"] > 1 and (t.tiles_n == 1 or config["group"] >= 2 * t.tiles_m):
            return False
        return t.fits and t.block_m < 2 * max(form.rows, 64)

    return SearchSpace(axes, allowed)


def _config(**values: int) -> Config:
    base = {
        "wgs": 2, "mi": 1, "bn": 128, "bk": 64, "stages": 0, "pp": 0, "split": 1, "slices": 1, "group": 1, "inner": 0,
        "swap": 0, "per_sm": 1, "mix": 0, "bufs": 2, "slab": 64, "resident": 0, "cast": 1,
    }  # fmt: skip
    return Config(tuple((base | values).items()))


def _widths(form: Sm90Form) -> tuple[int, ...]:
    """Columns of a tile: wgmma has every multiple of 8; slabs of contiguous columns count in 64."""
    step = min(_slabs(form)) if form.kind == "wrw" else 32 if form.b_columns else 8
    most = -(-form.cols // step) * step
    return tuple(bn for bn in range(step, 257, step) if bn <= most) or (step,)


def _depths(form: Sm90Form, target: CudaTarget) -> tuple[int, ...]:
    """Channels of a step: fewer than 64 where 64 would reach far beyond the last, more where memory bounds a GEMM."""
    if form.kind == "gemm" and streams(form, target):
        return tuple(bk for bk in (64, 128, 256) if bk == 64 or 2 * bk <= form.reduced)
    if form.kind != "conv":
        return (64,)
    found = [bk for bk in (64, 32, 16) if bk == 64 or -(-form.channels // bk) * bk < -(-form.channels // 64) * 64]
    return tuple(found)


def _rings(form: Sm90Form, target: CudaTarget) -> tuple[int, ...]:
    return (0, 3, 4, MAX_STAGES) if streams(form, target) else (0, 3, 4)


def _fuller(t: Sm90Tile) -> bool:
    """Whether a ring of all that fits is longer than the one that is worth it."""
    return t.stages > Sm90Tile(t.form, t.config.replace(stages=0), t.target).stages


def _slabs(form: Sm90Form) -> tuple[int, ...]:
    """Slabs of 32 channels where those of 64 would be half empty."""
    return (64, 32) if form.kind == "wrw" and 0 < form.channels % 64 <= 32 else (64,)


def sm90_default(form_of: FormOf, target: CudaTarget) -> Config:
    """The cost model's choice among some hundreds of tiles."""
    space = sm90_space(form_of, target)
    return _grouped(_sorted(form_of, space, target)[0], form_of, space, target)


def sm90_ranked(form_of: FormOf, target: CudaTarget) -> list[Config]:
    """Some hundreds of configs of the space, those first that the cost model likes."""
    space = sm90_space(form_of, target)
    return [_grouped(config, form_of, space, target) for config in _sorted(form_of, space, target)[:_RANKED]]


def _sorted(form_of: FormOf, space: SearchSpace, target: CudaTarget) -> list[Config]:
    found: list[tuple[float, int, Config]] = []
    fit = fit_of(target).tile
    for config in _candidates(form_of, space, target):
        form = form_of(config["swap"])
        assert form is not None
        t = Sm90Tile(form, config, target)
        if t.fits:
            found.append((predicted_seconds(t, fit), len(found), config))
    if not found:
        raise ValueError("no tile fits this problem")
    return [config for _, _, config in sorted(found, key=lambda item: item[:2])]


def _grouped(config: Config, form_of: FormOf, space: SearchSpace, target: CudaTarget) -> Config:
    """``config`` with so many rows of tiles walked together that what its columns bring from DRAM is read once."""
    form = form_of(config["swap"])
    assert form is not None
    t = Sm90Tile(form, config, target)
    if config["resident"] or (config["slices"] > 1 and t.block_n <= t.block_m):
        return config
    columns = form.cols * form.reduced * len(form.taps.offset) * 2
    if columns < _FEW_BYTES and bound_by_memory(t, fit_of(target).tile):
        return config  # they stay in L2: whole rows are written at a time
    for group in (16, 8, 4, 2) if config["swap"] else (8, 4, 2):
        wide = config.replace(group=group)
        if space.contains(wide):
            return wide
    return config


def _candidates(form_of: FormOf, space: SearchSpace, target: CudaTarget) -> Iterator[Config]:
    for swap in space.axes["swap"]:
        form = form_of(swap)
        assert form is not None
        widths = _widths(form)
        for wgs, mi, pp, per_sm in _SHAPES:
            for bn, bk, slab in itertools.product(widths, _depths(form, target), _slabs(form)):
                config = _config(wgs=wgs, mi=mi, pp=pp, bn=bn, bk=bk, swap=swap, per_sm=per_sm, slab=slab)
                t, slots = Sm90Tile(form, config, target), target.cores * per_sm
                many = t.tiles > 4 * slots and bn < min(64, widths[-1])  # narrow tiles are for few of them
                if not t.fits or many or t.block_m >= 2 * max(form.rows, 64):
                    continue
                yield config
                full = config.replace(stages=MAX_STAGES)
                fuller = MAX_STAGES in space.axes["stages"] and _fuller(Sm90Tile(form, full, target))
                if fuller:
                    yield full
                if 1 in space.axes["resident"] and t.tiles > slots:
                    yield config.replace(resident=1)
                if 2 in space.axes["cast"]:
                    yield config.replace(cast=2)
                for split in (1,) if pp else space.axes["split"]:
                    if split > 1 and t.tiles * split <= slots:
                        yield config.replace(split=split)
                        if bk > 64 and fuller:
                            yield full.replace(split=split)
                yield from (config.replace(slices=s) for s in _slices(t.tiles, slots, space))


def _slices(tiles: int, slots: int, space: SearchSpace) -> set[int]:
    """The most slices that fill the SMs once, and twice."""
    most = (max((s for s in space.axes["slices"] if s * tiles <= waves * slots), default=1) for waves in (1, 2))
    return {s for s in most if s > 1}
