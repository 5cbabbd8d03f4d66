"""Estimated seconds of the sm_90a backward weights that read each window once."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.halo_wrw.tile import HaloWrwTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import HaloWrwFit


def halo_wrw_seconds(t: HaloWrwTile, fit: HaloWrwFit) -> float:
    """Estimated seconds, as in ``wgmma/cost``."""
    v, g = t.value, t.geometry
    products = t.warpgroups * v["lines"]
    stage = prod(t.window) * v["block_c"] * 2 + t.window[0] * v["tile_h"] * v["product_k"] * 2 * v["warpgroups_k"]
    step = max(products * t.columns / 2, (products * (64 + t.columns) * 32 + stage / t.steps) / fit.shared)
    boxes = 1 + v["warpgroups_k"] * (1 if t.whole else v["tile_h"])
    tile = max(t.steps * step, stage / fit.l2, boxes * fit.box, (fit.latency + stage / fit.l2) / (t.stages - 1))
    sliced = v["split_n"] > 1
    waves, count = ceil(prod(t.grid) / t.target.cores), ceil(t.tiles / v["split_n"])
    stored = t.block_quads / (fit.stored if sliced else fit.scattered)
    busy = waves * (count * tile + fit.start + stage / fit.first + stored) / fit.clock
    moved = 2 * t.groups * (g.n * prod(g.input) * g.c + g.n * prod(g.output) * g.k)
    moving = moved / (fit.bandwidth * t.target.bytes_per_s)
    seconds = max(busy, moving) + fit.overlap * min(busy, moving)
    return seconds + (fit.second_kernel + t.partial_bytes / fit.partial_bytes if sliced else 0.0)
