"""How long a config takes: a model for ranking, with the constants of ``tiles``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilesmith.solvers.c.common.cost import level, speedup
from tilesmith.solvers.c.common.tile_registers import DEEP, REGISTER, WIDE
from tilesmith.solvers.c.tiles_wrw.tile import WrwTiles

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import TilesFit


def predicted_seconds(t: WrwTiles, fit: TilesFit) -> float:
    """Estimated seconds of ``run`` on ``t.target.cores`` threads."""
    g = t.problem
    places = g.n * g.output[0]
    sums = t.tiles_m * t.tiles_n
    again = 2 * DEEP * (t.line_steps or t.steps * places) * WIDE * (t.tiles_m + t.tiles_n)  # by another tap
    load = max(fit.loaded, REGISTER / level(again if t.taps > 1 else 0, t.target, fit))
    step = max(sums * WIDE, (t.tiles_m + t.tiles_n) * load)
    if t.line_steps:
        step += 4 * sums * fit.loaded / t.line_steps  # sums come from memory, and go back
    out = sums * (fit.tile + WIDE * (fit.out if g.w.strides[1] == 1 else WIDE * fit.out))
    tiles = g.groups * prod(t.blocks) * t.taps
    run = tiles * (places * t.steps * step + out) + t.items * fit.item
    vectors = places * t.steps * DEEP * t.dy_channels / WIDE  # of dy, and of x's pairs
    vectors += g.n * g.input[0] * len(t.sets) * prod(t.plane_size) * t.x_channels / WIDE
    return (run / speedup(t.items, t.target) + vectors * fit.pixel / t.target.cores) / fit.clock
