"""Estimated seconds of the phases kernel: an SM's units, what a block waits for itself, and memory."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.phases.tile import PhasesTile
from tilesmith.solvers.solver import steady_part

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import PhasesFit


def phases_seconds(t: PhasesTile, fit: PhasesFit) -> float:
    """Estimated seconds; ``fit`` is ``phases`` or, of warpgroups, ``wide_phases``. Stages take memory, no more."""
    return _seconds(t, fit, t.value["strip_h"], t.value["blocks_per_sm"], t.resident)


@steady_part
def _seconds(t: PhasesTile, fit: PhasesFit, strip: int, blocks: int, resident: bool) -> float:
    form, target = t.form, t.target
    padded = t.padded
    units, waits = _turn(t, fit, resident, 8 if padded else form.in_vector)
    busy = min(blocks, ceil(t.grid / target.cores))
    inner, outer = fit.overlap
    turn = ((busy * units) ** inner + waits**inner) ** (1 / inner)
    turns = ceil(t.tiles * t.blocks_n / t.grid) * t.turns
    once = t.filter_bytes * (t.chunks if resident else 1) / fit.filter
    computing = (turns * turn + once + fit.start) / (fit.clock * target.clock_hz)
    cached = (t.tiles * t.turns * t.blocks_n * _moved(t, resident) + form.result_bytes) / fit.l2 + fit.latency
    memory = form.moved_bytes / (fit.bandwidth * target.bytes_per_s) + fit.latency
    seconds = float((computing**outer + cached**outer + memory**outer) ** (1 / outer))
    if padded:
        seconds += fit.copied + form.outer * prod(form.size) * (form.channels + form.padded) * 2 / fit.l2
    return seconds


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
    waits = fit.turn + fit.chunk * t.chunks + own
    return units, waits + fit.moved * (stores + loads) / warps


def _moved(t: PhasesTile, resident: bool) -> int:
    """Bytes that a turn brings to shared memory."""
    return t.chunks * (t.window_bytes + (0 if resident else t.filter_bytes))
