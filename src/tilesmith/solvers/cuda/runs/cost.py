"""Estimated seconds: an SM's units, what a block waits for itself, and memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd, prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.runs.back import BackTile
from tilesmith.solvers.cuda.runs.tile import RunsTile, RunsWeightsTile

# NOTE: cycles of an H200, fitted to 66 configs of 13 problems; see notes.md. Cycles scale with the clock.
_CLOCK = 0.95  # of the boost clock, under load
_BANDWIDTH, _CACHED = 0.8, 5e12
_PARTIAL_BYTES_S = 2.5e12
_SHARED = 4.0  # cycles of an SM for 512 bytes of shared memory
_START_S = {"fwd": 4.0e-6, "wrw": 3.1e-6, "bwd": 2.0e-6}


@dataclass(frozen=True)
class _Cycles:
    """Of a warp for: a stage, a step, a fragment of x, a product of 16 x 8 x 16, 32 copies, 8 columns of dy.

    ``units``: of an SM for a product, 32 copies and 8 columns of dy. ``shared``: what warps share results for.
    """

    stage: float
    step: float
    fragment: float
    product: float
    copy: float
    columns: float
    units: tuple[float, float, float]
    shared: float = 0


_FWD = _Cycles(
    stage=0, step=145, fragment=40, product=10.8, copy=37, columns=0, units=(2.43, 2.1, 0), shared=2230
)  # fmt: skip


@dataclass(frozen=True)
class _Bulk:
    """Forward with bulk copies: a warp's cycles of a step and a fragment, which hide its products; what warps share
    results for; an SM's of a product and a fragment; seconds of a launch.
    """

    step: float
    fragment: float
    shared: float
    unit_product: float
    unit_fragment: float
    start: float


# Fitted to 189 configs of 9 problems; see notes.md.
_BULK = _Bulk(step=206, fragment=75, shared=2780, unit_product=2.18, unit_fragment=2.15, start=2.5e-6)
# With bulk copies, which take no time of warps, fitted to 73 configs of 8 problems; see notes.md.
_WRW = {
    False: _Cycles(0, 418, 33.6, 8.1, 106, 39.7, (1.21, 1.85, 4.9)),
    True: _Cycles(1140, 127, 10.4, 2.13, 0, 16.1, (0.3, 0, 2.2)),
}
_WRW_SECOND_S = {False: 3e-6, True: 1e-6}  # the launch behind it
_WRW_PAIR = 1.07  # more for a ring of two stages, with bulk copies
# Of backward data: a tile, 8 columns, 32 elements of the sums of these, a product, its results, a line of results, a
# store, a load; and of an SM for a product, a store, a load, and 64 results that are staged.
_BWD_TILE, _BWD_COLUMNS, _BWD_FILTER, _BWD_PRODUCT, _BWD_RESULTS = 986, 33.2, 33.7, 9.7, 21.2
_BWD_LINE, _BWD_STORE, _BWD_LOAD = 233, 24.8, 204
_BWD_WIDE, _BWD_HIGH = 0.06, 0.023  # more for each further product of rows, and for each further row of positions
_BWD_UNITS = (0.98, 5.8, 3.07, 2.33)


def _conflicts(step: int) -> int:
    """Times that a fragment is read, since rows of 16 bytes lie in the same banks."""
    return gcd(step // 8, 8)


def runs_seconds(t: RunsTile) -> float:
    """Forward."""
    form, v = t.form, t.value
    h, w = t.grid_of_warps
    steps = ceil(form.k_steps / v["warps_k"])
    used = form.g.filter[1] / (form.taps * form.phases)  # of the taps of all phases
    fragments = (v["rows"] + form.taps - 1) * v["parts"] * _conflicts(form.step)
    products = v["rows"] * v["parts"] * form.taps * used * t.products_n
    if t.bulk:
        alone = steps * (_BULK.step + _BULK.fragment * fragments)
        units = h * w * form.k_steps * (products * _BULK.unit_product + fragments * _BULK.unit_fragment)
        shared, start = _BULK.shared, _BULK.start
    else:
        copies = (v["tile_h"] + form.taps - 1) * t.chunks / 32
        alone = steps * (_FWD.step + _FWD.fragment * fragments + _FWD.product * products)
        alone += copies / t.warps * _FWD.copy
        units = h * w * steps * v["warps_k"] * (products * _FWD.units[0] + fragments * _SHARED)
        units += copies * _FWD.units[1]
        shared, start = _FWD.shared, _START_S["fwd"]
    busy = min(v["blocks_per_sm"], ceil(t.blocks / t.target.cores))
    turns = ceil(t.tiles * t.blocks_n / t.blocks)
    cycles = turns * (form.steps * _both(alone, busy * units) + shared * v["warps_k"])
    loaded = t.tiles * t.blocks_n * form.steps * (t.stage_bytes + 512 * form.k_steps * t.quads)
    moved = prod(form.g.x.shape) * 2 * t.blocks_n + prod(form.g.y.shape) * dtype(form.g.y.dtype).nbytes
    return _together(t, cycles, loaded, moved) + start


def weights_seconds(t: RunsWeightsTile) -> float:
    """Backward weights, and the sum of the slices."""
    form, v = t.form, t.value
    steps = ceil(min(v["tile_w"], form.g.output[2]) / 16)
    columns = form.taps * t.products_n
    copies = (v["warps_a"] * t.chunks + form.taps * t.dy_bytes / 16) / 32
    fragments, products = t.tiles_m * _conflicts(form.step), t.tiles_m * columns
    each = _WRW[t.bulk]
    alone = steps * (each.step + each.columns * columns + each.fragment * fragments + each.product * products)
    alone += each.stage + copies / t.warps * each.copy
    units = steps * t.warps * (columns * each.units[2] + products * each.units[0] + fragments * _SHARED)
    units += copies * each.units[1]
    busy = min(v["blocks_per_sm"], ceil(t.slices * t.groups / t.target.cores))
    cycles = ceil(t.items / t.slices) * _both(alone, busy * units)
    cycles *= _WRW_PAIR if t.bulk and v["stages"] == 2 else 1
    loaded = t.items * t.groups * t.stage_bytes
    moved = prod(form.g.x.shape) * 2 * t.blocks_n + prod(form.g.y.shape) * 2
    seconds = _together(t, cycles, loaded, moved) + 2 * t.partial_bytes / _PARTIAL_BYTES_S
    return seconds + _START_S["wrw"] + _WRW_SECOND_S[t.bulk]


def back_seconds(t: BackTile) -> float:
    """Backward data."""
    form, v = t.form, t.value
    (m, n), rows = t.products, v["phase_rows"]
    results = rows * t.tile_h * t.tile_w * form.step
    stores = results / form.out_vector / 32
    loads = prod(t.window) * form.pixel_pieces * 8 / form.in_vector / 32
    column = _BWD_COLUMNS + _BWD_FILTER * t.k_pairs + m * (form.k_steps * _BWD_PRODUCT + _BWD_RESULTS)
    turns = ceil(t.tile_w * form.step / (form.out_vector * 32 * t.warps))
    alone = rows * n * column * (1 + _BWD_WIDE * (m - 1)) + rows * t.tile_h * (_BWD_LINE + _BWD_STORE * turns)
    alone += loads / t.warps * _BWD_LOAD + _BWD_TILE
    units = t.warps * m * n * form.k_steps * rows * _BWD_UNITS[0] + t.warps * n * rows * t.k_pairs * _SHARED * 0.8
    units += stores * _BWD_UNITS[1] + loads * _BWD_UNITS[2] + results / 64 * _BWD_UNITS[3]
    busy = min(v["blocks_per_sm"], ceil(t.blocks / t.target.cores))
    cycles = ceil(t.tiles * t.groups / t.blocks) * _both(alone, busy * units)
    cycles = cycles * (1 + _BWD_HIGH * (t.tile_h - 1)) + rows * t.filter_bytes / 24
    written = prod(form.g.x.shape) * dtype(form.g.x.dtype).nbytes * (1 + form.g.epilogue.residual)
    loaded = written + t.tiles * t.groups * prod(t.window) * form.g.k * 2
    return _together(t, cycles, loaded, written + prod(form.g.y.shape) * 2) + _START_S["bwd"]


def _both(*seconds: float) -> float:
    """Times that overlap, but for what each lets the others wait."""
    return float(sum(each**3 for each in seconds) ** (1 / 3))


def _together(t: RunsTile | RunsWeightsTile | BackTile, cycles: float, loaded: float, moved: float) -> float:
    busy = cycles / (_CLOCK * t.target.clock_hz)
    return _both(busy, moved / (_BANDWIDTH * t.target.bytes_per_s), loaded / _CACHED)
