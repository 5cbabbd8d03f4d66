"""How long a config takes: a model for ranking, from the facts of a target and the constants of a card.

Cycles of one thread are those of its products or of the registers' loads, whichever are more, plus those of sums on
their way to the result, of packing, and of a filter that comes from beyond the second-level cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.codegen.c.epilogue import LONG
from tilesmith.solvers.c.common.cost import level, speedup
from tilesmith.solvers.c.common.dense_form import Phase
from tilesmith.solvers.c.common.tile_registers import DEEP, PIXELS, REGISTER
from tilesmith.solvers.c.tiles.tile import DIRECT, ROWS, MatrixTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import TilesFit

_LEAST_ROWS = 8  # fewer make a product no faster


def predicted_seconds(t: MatrixTile, fit: TilesFit) -> float:
    """Estimated seconds of ``run`` on ``t.target.cores`` threads."""
    form = t.form
    cycles = sum(times * _phase_cycles(t, phase, fit) for phase, times in form.kinds) * form.images * form.groups
    cycles += _packing(t, fit) + _filter(t, fit) + fit.item * t.items
    return cycles / speedup(t.items, t.target) / fit.clock


def _phase_cycles(t: MatrixTile, phase: Phase, fit: TilesFit) -> float:
    """All tiles of one phase, image and group."""
    form, many, rows = t.form, t.value["tiles_m"], t.value["tile_rows"]
    depth, height, width = phase.count
    segments = len(t.segments(phase))
    steps = segments * t.steps
    # A phase of a transposed convolution whose dilation leaves it no tap reads nothing.
    pixels = many * rows / PIXELS * _pixels_load(t, segments, fit) if segments else 0.0
    groups = tiles = 0
    for tall, high in _blocks(height, t.rows):
        for wide, across in _blocks(width, t.cols):
            count = t.tiles(high, across)
            tiles += tall * wide * count
            groups += tall * wide * -(-count // many)
    long = fit.long if form.epilogue.activation in LONG else 0.0
    total = 0.0
    for tiles_n, blocks in ((t.value["tiles_n"], t.full_blocks), (t.tail_tiles, int(t.tail_tiles > 0))):
        near = steps * REGISTER * tiles_n <= 0.5 * t.target.l1_bytes
        filters = tiles_n * (fit.loaded if near else max(fit.loaded, REGISTER / fit.l2))
        step = max(many * tiles_n * max(rows, _LEAST_ROWS), pixels + filters)
        total += blocks * (groups * steps * step + tiles * (fit.tile + rows * tiles_n * (fit.out + long)))
    return total * depth


def _pixels_load(t: MatrixTile, segments: int, fit: TilesFit) -> float:
    """Cycles of a register of pixels: taps find in the first level what an earlier one has read."""
    held = (t.strip_bytes or 2 * t.rows * t.cols * t.form.c) + 2 * t.rows * t.cols * t.form.k
    if held <= 0.5 * t.target.l1_bytes:
        return fit.loaded
    missed = max(fit.loaded, REGISTER / level(held, t.target, fit)) / segments
    # Pixels a power of two apart share few sets of the first-level cache.
    step = abs(2 * t.tile_step[1])
    shared = 1.6 if step % 2048 == 0 else 1.3 if step % 512 == 0 else 1.0
    return (fit.loaded * (1 - 1 / segments) + missed) * shared


def _blocks(count: int, block: int) -> list[tuple[int, int]]:
    """How many blocks of which length cover ``count``."""
    return [(n, length) for n, length in ((count // block, block), (1, count % block)) if n and length]


def _packing(t: MatrixTile, fit: TilesFit) -> float:
    if t.pack == DIRECT:
        return 0.0
    form = t.form
    depth, rows, cols = t.strip_size
    strips = form.images * form.groups * t.places * (t.block_groups if t.value["groups_outer"] else 1)
    whole = form.x_strides[5] == form.c and form.phases[0].tap_spacing == 1
    pieces = t.taps_in_run if t.pack == ROWS and not whole else 1
    pixel = 2 * t.pixel / fit.copied + fit.pixel * (pieces + (t.steps * DEEP != t.run))
    if form.x_strides[2] != 1 and form.c > 1:
        pixel = 2.0 * t.steps * DEEP  # element by element
    return strips * depth * rows * (cols * pixel + 2 * fit.pixel)


def _filter(t: MatrixTile, fit: TilesFit) -> float:
    """Of a filter that the second-level cache cannot keep: each item walks through it, or through a group's part."""
    nbytes = t.filter_bytes
    if nbytes <= 0.5 * t.target.l2_bytes:
        return 0.0
    streams = t.form.images * t.places
    if t.value["groups_outer"] and nbytes / t.block_groups <= 0.5 * t.target.l2_bytes:
        streams = 1
    return streams * nbytes / level(nbytes, t.target, fit)
