"""Estimated seconds of the kernels of narrow groups."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.narrow_groups.tile import NarrowExactTile, NarrowTile, NarrowWeightsTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import NarrowFit

_SCHEDULERS = 4  # of an SM


def narrow_seconds(t: NarrowTile, fit: NarrowFit) -> float:
    """Estimated seconds: turns of tiles, each bound by an SM's units, and the bytes of memory."""
    f, v, target, weights = t.form, t.value, t.target, isinstance(t, NarrowWeightsTile)
    pixels = v["tile_h"] * v["tile_w"] * prod(f.phases)
    window = t.window_rows * t.window[1] * v["bundles"] * f.pieces * 16
    if isinstance(t, NarrowWeightsTile):
        steps, copied = t.tiles_m * ceil(pixels / 16), window + pixels * t.row * 2
        staged, stored = copied, 0.0
    else:
        steps, copied = f.steps * t.tiles_m, window
        staged, stored = window + 2 * pixels * t.staged_pitch, pixels * t.row / t.vector
    products = t.threads / 32 * steps
    shared, tensor = products * fit.read, products * v["products_n"] * fit.product
    slots = products * (2 + v["products_n"])
    if isinstance(t, NarrowExactTile):
        taps = sum(len(h) * len(w) for h in f.taps[0] for w in f.taps[1])
        of_channel = t.threads / 32 * taps * f.geometry.filter[0] * f.inputs
        shared = of_channel * (t.tiles_m + 2 * v["products_n"])
        tensor = of_channel * t.tiles_m * 8 * v["products_n"] / 4 / fit.exact
        slots = tensor * 4 + of_channel * (t.tiles_m / 4 + 2 * v["products_n"])
    shared += staged / 128
    issue = (slots + (copied / 16 + stored) / 32 * fit.issue) / _SCHEDULERS
    work: float = (shared**3 + tensor**3 + issue**3) ** (1 / 3)
    busy = min(t.resident, ceil(t.grid / target.cores))
    if isinstance(t, NarrowExactTile):  # a scheduler without a warp is idle; timings of tensor cores do not show it
        work *= max(1.0, _SCHEDULERS / (t.threads / 32 * busy))
    each = work * busy + fit.tile[weights] / busy**0.5 + fit.wait / ((v["stages"] - 1) * busy)
    rounds = ceil(t.grid / (busy * target.cores)) * ceil(t.tiles * t.blocks / t.grid)
    size = dtype(f.source.dtype).nbytes
    moved: float = size * (prod(f.source.shape) + prod(f.result.shape) * (1 + f.geometry.epilogue.residual))
    moving = moved / (fit.bandwidth * target.bytes_per_s)
    start = fit.start if weights or f.exact else fit.start + fit.filter * f.steps * v["products_n"]
    computing = (start + rounds * each) / (fit.clock * target.clock_hz)
    seconds: float = max(moving, computing) + fit.overlap * min(moving, computing)
    if isinstance(t, NarrowWeightsTile):
        seconds += fit.second_kernel + t.partial_bytes / fit.partial_bytes
    return seconds
