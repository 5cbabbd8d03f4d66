"""Estimated seconds of the kernels of narrow groups."""

from __future__ import annotations

from math import ceil, prod

from tilesmith.solvers.cuda.narrow_groups.tile import NarrowTile, NarrowWeightsTile


def narrow_seconds(t: NarrowTile) -> float:
    """Estimated seconds: waves of tiles, each bound by an SM's units, and the bytes of memory."""
    f, v, target = t.form, t.value, t.target
    warps = t.threads / 32
    pixels = v["tile_h"] * v["tile_w"] * prod(f.phases)
    window = prod(t.window) * t.pixel_bytes
    if isinstance(t, NarrowWeightsTile):
        products, staged = warps * t.tiles_m * ceil(pixels / 16), pixels * t.result_bytes
    else:
        products, staged = warps * f.steps * t.tiles_m, 2 * pixels * t.staged_pitch
    shared = products * 4 + (window + staged) / 128
    tensor = products * v["products_n"] * 4.5
    issue = products * (1.5 + v["products_n"]) / 4 + window / 16 / 32 * 14 / 4 + pixels * t.row / t.vector / 32 * 20 / 4
    turns = ceil(t.tiles * t.blocks / t.grid)
    busy = min(t.resident, ceil(t.grid / target.cores))
    work: float = (shared**3 + tensor**3 + issue**3) ** (1 / 3)
    each = work * busy + 500 / busy**0.5 + 1500 / (v["stages"] * busy)
    rounds = ceil(t.grid / (busy * target.cores))
    cycles = 6000 + rounds * turns * each
    size = 2
    moved: float = size * (prod(f.source.shape) + prod(f.result.shape) * (1 + f.geometry.epilogue.residual))
    moving = moved / (0.8 * target.bytes_per_s)
    computing = cycles / (0.95 * target.clock_hz)
    seconds: float = max(moving, computing) + 0.3 * min(moving, computing)
    return seconds + (2e-6 + 2 * t.partial_bytes / 3e12 if isinstance(t, NarrowWeightsTile) else 0.0)
