"""Estimated seconds of the sm_90a kernel that reads each window of pixels once."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.solvers.cuda.common.planes import look_seconds
from tilesmith.solvers.cuda.halo.tile import HaloTile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import HaloFit


def halo_seconds(t: HaloTile, fit: HaloFit) -> float:
    """Estimated seconds, as in ``wgmma/cost``."""
    taps = len(t.rows) * (1 - t.left_out)
    bm, bn, span = t.block_m, t.block_n, t.products * 32
    tensor = bm * bn * t.products * 16 / fit.macs
    shared = (bm / 64 * (64 + bn) + (0 if t.value["resident"] else bm)) * span / fit.shared
    loads = (0 if t.value["resident"] else bm) * span / fit.l2
    step = max(tensor, shared, loads) + fit.step
    window, phases = t.window_bytes / fit.l2, len(t.phases)
    if not t.value["resident"]:  # a tap's filter must arrive, behind a window, while those before it are multiplied
        step = max(step, (fit.latency + (window if phases > 1 else 0.0)) / (t.stages - 1))
    if phases > 1:  # a window has few taps: the next ones must be under way
        window = max(window, (window + fit.window) / (t.value["windows"] - 1))
    block = max(taps * step, phases * window, _partial_rows(t, fit, taps))
    waves = ceil(t.tiles / t.grid)
    epilogue = fit.epilogue + bm * bn / fit.stored
    hidden = fit.hidden if t.pingpong and waves > 1 else 1.0
    cycles = waves * (t.blocks * block + epilogue * hidden) + fit.start
    if t.pingpong and waves == 1:
        cycles += t.blocks * block * fit.pingpong_alone
    form = t.form
    results = form.rows * form.cols * (1 + (form.residual is not None))
    filter_ = len(t.rows) * form.channels * form.cols
    moved = 2 * t.groups * (prod(t.pixels.dims[1:]) * form.channels + results + filter_)
    if min(form.channels, form.cols) < 16 and t.groups == 1:
        cycles *= fit.few_channels
    busy, moving = cycles / fit.clock, moved / (fit.bandwidth * t.target.bytes_per_s)
    looking = look_seconds(t.target) if t.looks else 0.0
    return max(busy, moving) + fit.overlap * min(busy, moving) + looking


def _partial_rows(t: HaloTile, fit: HaloFit, taps: float) -> float:
    """Cycles in which a block of channels is copied, the mean of all, if rows of the last reach beyond the channels."""
    if t.form.channels % t.block_k == 0:
        return 0.0
    pixels, filters = len(t.phases) * prod(t.window), 0.0 if t.value["resident"] else taps * t.block_m
    of_pixels, of_filters = fit.partial
    last = pixels * of_pixels + filters * of_filters
    return (last + (t.blocks - 1) * (pixels + filters) * t.block_k * 2 / fit.l2) / t.blocks
