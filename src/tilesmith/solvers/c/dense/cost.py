"""How long a config takes: a model for ranking, from the facts of a target and the constants of a card.

Cycles of one thread are those of its tiles (multiply-adds, loads, latency), plus what the filter's way from the caches
does not hide, plus packing and storing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilesmith.codegen.c.epilogue import LONG
from tilesmith.solvers.c.common.cost import speedup, step_cycles
from tilesmith.solvers.c.common.dense_form import Phase, tap_lines
from tilesmith.solvers.c.common.text import CACHE_LINE
from tilesmith.solvers.c.dense.tile import DIRECT, DenseTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import DenseFit

_ROWS = 0.15  # of the third level's bytes a cycle, where tiles wait for each row of a strip


def predicted_seconds(t: DenseTile, fit: DenseFit) -> float:
    """Estimated seconds of ``run`` on ``t.target.cores`` threads."""
    form = t.form
    compute = sum(times * _phase_cycles(t, phase, fit) for phase, times in form.kinds)
    compute *= t.c_blocks * form.images * form.groups
    cycles = compute + _filter_cycles(t, compute, fit) + _input_cycles(t, fit) + _pack_cycles(t, fit) + _store_cycles(t)
    cycles += fit.item * t.items
    return cycles / speedup(t.items, t.target) / fit.clock


def _pieces(length: int, block: int, sizes: tuple[int, ...]) -> dict[int, int]:
    """How many tiles of each size cover ``length`` in blocks."""
    found: dict[int, int] = {}
    for times, whole in ((length // block, block), (1, length % block)):
        rest = whole
        for size in sizes:
            found[size] = found.get(size, 0) + times * (rest // size)
            rest %= size
    return {size: count for size, count in found.items() if count}


def _phase_cycles(t: DenseTile, phase: Phase, fit: DenseFit) -> float:
    """All tiles of one phase, image and group."""
    segments = t.segment_count(phase)
    steps = segments * t.padded_run(t.run(phase)) // t.per_step
    _, height, width = phase.count
    heights = {1: 1} if t.one_line else _pieces(height, t.rows, t.heights)
    widths = _pieces(height * width, t.rows * width, t.widths) if t.one_line else _pieces(width, t.cols, t.widths)
    total = 0.0
    for nv, blocks in ((t.value["vectors"], t.full_blocks), (t.tail_vectors, 1 if t.tail_vectors else 0)):
        if not blocks:
            continue
        for mh, tall in heights.items():
            for mw, wide in widths.items():
                tile = (
                    steps
                    * (1.0 - _skipped(t, phase, mh))
                    * _step_cycles(t, mh * mw, nv, fit)
                    * _conflict_factor(t, mh, mw)
                )
                tile += segments * fit.segment + fit.tile
                total += blocks * tall * wide * tile
    return total * phase.count[0]


def _skipped(t: DenseTile, phase: Phase, mh: int) -> float:
    """The share of lines of taps that no output of a tile sees inside the input."""
    lines, first, step = tap_lines(phase)[1]
    down, height = t.form.step[1], t.form.x_size[1]
    tiles = -(-phase.count[1] // mh)
    gone = 0
    for line in range(lines):
        above = -(first + line * step) - (mh - 1) * down  # tiles that end before the input begins
        below = first + line * step + (tiles - 1) * mh * down - height + 1  # tiles that begin behind its end
        gone += max(0, -(-above // (mh * down))) + max(0, -(-below // (mh * down)))
    return min(1.0, gone / (lines * tiles))


def _step_cycles(t: DenseTile, pixels: int, nv: int, fit: DenseFit) -> float:
    """One step of the reduction: the slowest of the arithmetic, its latency, the loads and the front end."""
    target = t.target
    products = pixels * nv
    lines = -(-nv * t.lanes * t.per_step * t.element // CACHE_LINE) if t.value["prefetch"] else 0
    loads = pixels + nv + 0.5 * lines
    cycles = step_cycles(products / fit.dots if t.dot else products, loads, 3 / t.unroll, fit.latency, target, fit)
    registers = products + nv + (0 if nv == 1 else 1)
    if registers > target.vector_registers:
        cycles *= 1.0 + 0.05 * (registers - target.vector_registers)
    # Few products a load leave less room to hide what the caches cost.
    return cycles * (1.0 + 0.02 * loads / products) + (0.1 if t.unroll == 1 else 0.0)


def _conflict_factor(t: DenseTile, mh: int, mw: int) -> float:
    """Pixels a power of two apart share few sets of the first-level cache."""
    step = abs(t.tile_step[1]) * t.element
    if mw == 1 and mh > 1:
        step = abs(t.tile_step[0]) * t.element
    if step < CACHE_LINE:
        return 1.0
    way = 4096
    sets = max(1, way // math.gcd(step, way))
    ways = t.target.l1_bytes // way
    crowd = -(-mh * mw // sets)
    if crowd > ways:
        return 1.4
    return 1.06 if 2 * crowd > ways else 1.0


def _filter_cycles(t: DenseTile, compute: float, fit: DenseFit) -> float:
    """Cycles of fetching the filter: from the second-level cache for each tile, from further away for each item."""
    form, target = t.form, t.target
    total = t.filter_bytes
    block = max(t.reduction(phase) for phase, _ in form.kinds) * t.nr * t.element
    pixels = t.mh * t.mw
    cycles = 0.0
    if block > 0.6 * target.l1_bytes:
        tiles = form.images * form.pixels / pixels / len(form.phases)
        # Most of it arrives in time; wide blocks over few pixels ask for more than the second level gives.
        wanted = t.nr * t.element * t.per_step / (pixels * t.value["vectors"] / target.fma_per_cycle)
        cycles += tiles * total / fit.l2 * (0.05 if wanted < 24 else 0.2)
    if total <= 0.6 * target.l2_bytes:
        return cycles
    streams = form.images * t.places  # each item walks through the whole filter (of its group)
    if t.value["groups_outer"]:
        streams = streams if total / t.block_groups > 0.6 * target.l2_bytes else 1  # one group stays close by
    if block > 0.4 * target.l2_bytes:
        streams *= max(1, t.rows * t.cols // pixels)
    far = total > 0.6 * target.l3_bytes
    ahead = t.value["prefetch"] * t.nr * t.per_step * t.element
    hidden = min(1.0, ahead / (12288 if far else 3072))
    arriving = streams * total / (fit.dram if far else fit.l3)
    # It arrives while the first tile of an item works; the other tiles find it in the second level.
    first = compute / max(1.0, t.rows * t.cols / pixels)
    visible = min(arriving, first) * (1.0 - hidden) * (1.0 if far else 0.6)
    return cycles + visible + 0.05 * min(arriving, first) + max(0.0, arriving - first)


def _input_cycles(t: DenseTile, fit: DenseFit) -> float:
    """Every block of result channels reads an item's input again, from the cache that holds it."""
    form, target = t.form, t.target
    depth, rows, cols = t.strip_size
    nbytes = depth * rows * cols * t.cb * t.element
    if nbytes <= 0.6 * target.l1_bytes:
        return 0.0
    strips = form.images * form.groups * t.places * t.c_blocks
    passes = t.blocks - 1
    cycles = 0.2 * strips * passes * nbytes / (fit.l2 if nbytes <= 0.6 * target.l2_bytes else fit.l3)
    if t.pack == DIRECT:
        return cycles
    # What the second level cannot keep beside a block of the filter is written to the third one and read from there,
    # row by row as tiles reach it: nothing hides the latency.
    block = max(t.reduction(phase) for phase, _ in form.kinds) * t.nr * t.element
    beyond = nbytes - max(0.0, 0.8 * target.l2_bytes - block)
    return cycles + (strips * (passes + 2) * beyond / (_ROWS * fit.l3) if beyond > 0 else 0.0)


def _pack_cycles(t: DenseTile, fit: DenseFit) -> float:
    if t.pack == DIRECT:
        return 0.0
    form = t.form
    depth, rows, cols = t.strip_size
    items = form.images * form.groups * t.places * t.c_blocks
    if t.value["groups_outer"]:
        items *= t.block_groups
    pixels = items * depth * rows * cols
    contiguous = form.x_strides[2] == 1 or t.cb == 1
    if contiguous and (t.dot or form.x_dtype == "fp32"):
        return items * depth * rows * 30 + pixels * (t.cb * t.element / fit.copied + (6 if t.value["strip_pad"] else 1))
    return pixels * t.cb / (4.0 if contiguous else fit.gathered)


def _store_cycles(t: DenseTile) -> float:
    form = t.form
    results = form.images * form.groups * form.pixels
    vectors = results * t.padded_k / t.lanes
    cycles = vectors * (1.0 + 2.5 * (t.c_blocks - 1))
    if form.epilogue.activation in LONG:
        cycles += vectors * 25
    return cycles
