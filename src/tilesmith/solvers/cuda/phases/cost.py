"""Estimated seconds of the phases kernel: an SM's units, what a block waits for itself, and memory."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.common.listed import ROUNDED
from tilesmith.solvers.cuda.phases.tile import PhasesTile
from tilesmith.solvers.solver import steady_part

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import PhasesFit

_ALONE = 1.2  # overlap of a block's units and waits where it has one tile: fitted to 7 problems, see notes.md


def phases_seconds(t: PhasesTile, fit: PhasesFit) -> float:
    """Estimated seconds; ``fit`` is ``phases`` or, of warpgroups, ``wide_phases``.

    Of a ring of two stages, one is refilled while a block waits for the other; more than three change nothing.
    """
    blocks = t.value["blocks_per_sm"]
    seconds = _seconds(t, fit, t.value["strip_h"], blocks, t.resident)
    if t.value["stages"] != 2 or t.chunks == 1:
        return seconds
    return seconds * (1 + fit.pair / min(blocks, ceil(t.grid / t.target.cores)))


def least_seconds(t: PhasesTile, fit: PhasesFit) -> float:
    """No more than the estimate of any tile that ``t`` is changed to.

    All SMs have as much to do, one strip has all rows, and the filter, or pieces of it, are brought once.
    """
    form, cores = t.form, t.target.cores
    units, waits = _turn(t, fit, True, 8 if form.in_vector == 1 else form.in_vector)
    # Turns of an SM's blocks. Where there are more blocks of columns than SMs, each has them for all tiles.
    each = t.least_turns * min(t.blocks_n, cores) / cores
    cycles = _joined(ceil(each) * units, ceil(each / t.most_blocks) * waits, fit.overlap[0])
    return _together(t, fit, cycles + t.filter_bytes / fit.filter, t.least_turns * _moved(t, True)) * ROUNDED


@steady_part
def _seconds(t: PhasesTile, fit: PhasesFit, strip: int, blocks: int, resident: bool) -> float:
    form, target = t.form, t.target
    padded = t.padded
    units, waits = _turn(t, fit, resident, 8 if padded else form.in_vector)
    busy = min(blocks, ceil(t.grid / target.cores))
    # Where results take the place of a window, a tile's copies, products and results follow one another.
    turn = _joined(busy * units, waits, _ALONE if t.whole else fit.overlap[0])
    turns = ceil(t.tiles * t.blocks_n / t.grid) * t.turns
    once = t.filter_bytes * (t.chunks if resident else 1) / fit.filter
    seconds = _together(t, fit, turns * turn + once, t.tiles * t.turns * _moved(t, resident))
    if padded:
        seconds += fit.copied + form.outer * prod(form.size) * (form.channels + form.padded) * 2 / fit.l2
    return seconds


def _together(t: PhasesTile, fit: PhasesFit, cycles: float, moved: int) -> float:
    """Seconds of ``cycles`` of an SM, of the ``moved`` bytes of each block of columns through L2, and of memory."""
    form, target, outer = t.form, t.target, fit.overlap[1]
    computing = (cycles + fit.start) / (fit.clock * target.clock_hz)
    cached = (moved * t.blocks_n + form.result_bytes) / fit.l2 + fit.latency
    memory = form.moved_bytes / (fit.bandwidth * target.bytes_per_s) + fit.latency
    return float((computing**outer + cached**outer + memory**outer) ** (1 / outer))


def _joined(units: float, waits: float, norm: float) -> float:
    return float((units**norm + waits**norm) ** (1 / norm))


@steady_part
def _turn(t: PhasesTile, fit: PhasesFit, resident: bool, in_vector: int) -> tuple[float, float]:
    """Cycles of an SM for a turn of a block, and those that the block would take alone."""
    form = t.form
    m, n = t.products
    share, warps, steps = t.share, t.warps, t.steps * t.chunks
    products, fetched = warps * m * n * steps * share, warps * (m + (n + 1) // 2) * steps
    issued, operands, tensor = products + fetched, fetched * 512, products * fit.product
    own = fit.step * steps + fit.own * m * n * steps * share
    if t.wgmma:
        # A warpgroup reads 64 rows from shared memory for each step, however few columns there are.
        issued, own = warps // 4 * m * steps, 0.0
        operands, tensor = issued * (2048 + n * 256), issued * max(fit.product, n * 4)
    moved = _moved(t, resident)
    # Single elements pass through registers.
    loads = moved / (64 * in_vector)
    # Bulk copies take a row of results at once.
    stores = t.box[0] * t.box[1] * fit.row if t.bulk else t.results / t.out_vector / 32
    sums = t.results * prod(form.taps) // t.taps if t.taps_on_n else 0
    staged = t.rows * t.block_n
    shared = operands + moved + staged * t.staged_size * 2 + sums * 6
    slots = loads * fit.load + stores * fit.store + sums / 32 * fit.sum
    slots += (issued + staged / 64 * 3) * fit.issue
    units = (tensor**2 + (shared / fit.shared) ** 2 + (slots / 4) ** 2) ** 0.5
    waits = fit.turn + fit.chunk * t.chunks + own + fit.line * t.stored_lines
    return units, waits + fit.moved * (stores + loads) / warps


def _moved(t: PhasesTile, resident: bool) -> int:
    """Bytes that a turn brings to shared memory."""
    return t.chunks * (t.window_bytes + (0 if resident else t.filter_bytes))
