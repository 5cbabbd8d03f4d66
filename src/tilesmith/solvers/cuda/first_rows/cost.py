"""Estimated seconds: an SM's units and what its warps wait themselves, beside memory."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.first.cost import more_stores
from tilesmith.solvers.cuda.first_rows.tile import RowsTile
from tilesmith.solvers.cuda.first_rows.weights import RowsWeightsTile
from tilesmith.solvers.cuda.first_rows.wide import WideRowsTile
from tilesmith.solvers.cuda.first_rows.window import RowsWindow

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import FirstRowsFit, FirstRowsWrwFit, WideRowsFit


_SCATTERED = 3.0  # stores whose places do not follow each other, over those whose do


def rows_seconds(t: RowsTile, fit: FirstRowsFit) -> float:
    """Blocks that share an SM share its units; each waits by itself, and is replaced when it ends or takes a tile."""
    eights, steps, parts = t.block_n // 8, t.steps, t.parts
    units = t.tasks * parts * (eights * (fit.column + fit.product * steps) + fit.gather * steps)
    more = more_stores(prod(t.tile), min(t.g.k, t.block_n), t.out_vector, t.g.y.dtype)
    units += prod(t.window) * fit.unit + more * fit.store * (1.0 if t.dense else _SCATTERED)
    filters = t.filter_bytes // 16 * fit.unit
    own = fit.task_wait + parts * (fit.step_wait * steps + fit.column_wait * eights)
    own *= ceil(t.tasks / t.warps)
    each, cores = t.value["blocks_per_sm"], t.target.cores

    def turn(blocks: int, units: float, own: float) -> float:
        return _joined(blocks * units, own, fit.norm)

    if t.stays:
        tiles = ceil(t.all_tiles * t.blocks_n / t.blocks)
        cycles = tiles * turn(each, units, own) + each * filters + fit.wait
    else:
        whole, rest = divmod(t.blocks, cores * each)
        cycles = whole * turn(each, units + filters, own + fit.wait)
        cycles += turn(ceil(rest / cores), units + filters, own + fit.wait) if rest else 0.0
    return _overlapped(t, cycles, dtype(t.g.y.dtype).nbytes, fit)


def rows_weights_seconds(t: RowsWeightsTile, fit: FirstRowsWrwFit) -> float:
    """A block has several tiles; then its warps add their sums one after another, and a launch adds the blocks'."""
    each = min(t.value["blocks_per_sm"], ceil(t.slices * t.blocks_m / t.target.cores))
    steps, splits = prod(t.tile) // (16 * t.variants), t.warps // t.unit_warps
    products, ragged = t.group * t.tiles_n, fit.ragged if t.ragged else 1.0
    units = steps * t.unit_warps * (products * fit.product + (t.group * 4 + t.tiles_n * 2) * fit.shared)
    own = ceil(steps / splits) * (fit.step_wait * (1 + t.group / 4) + fit.product_wait * products)
    tile = _joined(each * units * ragged, own * ragged, fit.norm) + fit.wait
    tile += each * (prod(t.window) + prod(t.tile) * t.tiles_n) * fit.unit
    at_once = t.unit_warps // t.variants * each**0.5
    adding = 2 * t.group * (fit.add + at_once * t.tiles_n * 4 * fit.bank)
    cycles = ceil(t.all_tiles / t.slices) * tile + t.variants * splits * (fit.turn + adding)
    second = t.slices * fit.part + 2 * t.partial_bytes / fit.partial_bytes
    return _overlapped(t, cycles, dtype(t.g.y.dtype).nbytes, fit) + second


def wide_weights_seconds(t: WideRowsTile, fit: WideRowsFit) -> float:
    """Seconds of backward weights by warpgroups, with the kernel that adds the sums of blocks."""
    each = min(t.value["blocks_per_sm"], ceil(t.slices * t.blocks_m / t.target.cores))
    products = t.group * t.tiles_n  # of 64 x 8 x 16
    shared = t.group * 16 + products * 2  # 128 bytes: words of four warps, dy
    ragged = fit.ragged if t.ragged else 1.0
    units = t.steps * t.units * max(products * fit.product, shared * fit.shared)
    own = t.steps / t.splits * (fit.turn_wait / t.batch + fit.matrix_wait * t.group + products * fit.product_wait)
    tile = _joined(each * units * ragged, own * ragged, fit.norm) + fit.wait
    adding = t.variants * t.splits * (fit.turn + t.group * t.tiles_n * fit.add)
    adding += t.sums_bytes / 128 * fit.write
    cycles = ceil(t.all_tiles / t.slices) * tile + adding
    second = t.slices * fit.part + 2 * t.partial_bytes / fit.partial_bytes
    # Of a pixel of dy each block brings whole parts, the last ones as far as there are channels.
    pixel = sum(min(t.parts * t.span, 2 * (t.g.k - block * t.columns)) for block in range(t.blocks_m))
    return _overlapped(t, cycles, pixel / t.g.k, fit) + second


def _joined(units: float, own: float, norm: float) -> float:
    return float((units**norm + own**norm) ** (1 / norm))


def _overlapped(t: RowsWindow, cycles: float, size: float, fit: FirstRowsFit | FirstRowsWrwFit | WideRowsFit) -> float:
    """Seconds of a launch of ``cycles``, beside those of moving x and y, of ``size`` bytes each."""
    moved = prod(t.g.x.shape) * 2 + prod(t.g.y.shape) * size
    memory = moved / (fit.bandwidth * t.target.bytes_per_s)
    busy = cycles / (fit.clock * t.target.clock_hz)
    return max(memory, busy) + fit.overlap * min(memory, busy) + fit.start
