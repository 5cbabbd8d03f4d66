"""Estimated seconds of the sm_90a kernel: the slowest of tensor cores, shared memory, L2 and DRAM, wave by wave."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.common.form import LINE, SECTOR
from tilesmith.solvers.cuda.common.listed import ROUNDED
from tilesmith.solvers.cuda.wgmma.tile import MAX_STAGES, Sm90Tile

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import TileFit

_ADDS = 128  # of an SM in a cycle
# Steps with factors of blocks over their estimate, beside those of tiles whose columns lie in one block: columns of two
# blocks (1.13 to 1.35 on an H200), and a factor for each column (1.45).
_PARTED, _EACH = 1.15, 1.4


def predicted_seconds(t: Sm90Tile, fit: TileFit) -> float:
    form, v = t.form, t.value
    per_sm, split = v["blocks_per_sm"], v["cluster_k"]
    steps = t.mean_steps / t.parts * (1 - t.left_out)
    blocks = t.tiles * split * t.cast
    slots = t.grid if v["resident"] else t.at_once * t.cast  # of each column as many blocks as all can have
    if split > 1:
        slots = max(1, fit.clusters[per_sm - 1][split - 2]) * split
    waves = ceil(blocks / slots)
    # An SM's blocks share its tensor cores and copies.
    busy = min(per_sm, ceil(blocks / t.target.cores))
    per_step = _step_cycles(t, fit, v["resident"], split > 1, v["split_k"] > 1, t.cast_m, t.cast_n) * busy
    epilogue = _epilogue(t, fit)
    cycles = _cycles(t, fit, waves, busy, steps, per_step, epilogue)
    if split > 1:
        cycles += (waves - 1) * fit.next_cluster
    if t.cast > 1:
        cycles += fit.paired + waves * fit.paired_tile
    ring = max(t.stages, 1) * t.stage_bytes * busy
    loaded = steps * waves * t.stage_bytes * busy
    # Bytes in flight over the way from DRAM.
    if t.streams:
        refilled = steps * waves * (fit.refill + t.stage_bytes * busy / fit.filled) / max(t.stages - 1, 1)
        cycles = max(cycles, refilled, fit.latency)
    else:
        cycles = max(cycles, loaded / ring * fit.latency if ring < loaded else fit.latency)
    # NOTE: seen for bytes, and in clusters along k (128 x 4096 x 14336: 33 to 36 us where the filter is read once, else
    # 44 to 48, on an H200); single blocks of 16-bit types take no longer.
    apart = form.nbytes == 1 or split > 1
    rereads = apart and (t.tiles_n if form.rows > form.cols else t.tiles_m) > 1
    moving = _dram_seconds(t, fit, _read_again(t)) * _streaming(t, fit, v["stages"] == MAX_STAGES, rereads)
    # Parts of sectors, whatever memory would take for whole ones.
    if not t.even and (t.store == "LINES" or (t.store == "DIRECT" and form.kind == "gemm" and form.out_nbytes == 2)):
        moving = max(moving, fit.alone * form.layers * form.rows * form.cols)
    if split > 1 and v["split_k"] > 1:
        moving *= fit.both
    seconds = _together(fit, cycles, moving, epilogue)
    if v["split_k"] > 1:
        seconds += _adding(t, fit, v["split_k"])
    if t.looks:
        seconds += fit.look
    if t.once and per_sm == 1:
        seconds -= fit.once
    seconds += fit.gathers * (form.kind != "gemm")
    if t.cast > 2:
        seconds *= fit.torn_clusters[t.cast == 8] if form.torn and form.nbytes == 2 else fit.wide_clusters
    exchanged = fit.exchanged * (form.transposed and not t.streams)
    return seconds * (1 + exchanged) * (1 - fit.kept * v["resident"] * (1 - t.grid / t.tiles)) + fit.launched


def least_seconds(t: Sm90Tile, fit: TileFit) -> float:
    """No more than the estimate of ``t``, which shares and splits nothing, nor of any tile that it is changed to.

    Whole sums take the waves of ``t``, or more. Tiles that fill the SMs may keep their columns; sums of fewer may have
    parts, which take what they would if every SM had as much to do.
    """
    form, v, cores = t.form, t.value, t.target.cores
    few, results, steps = t.tiles <= t.slots, t.block_m * t.block_n, t.mean_steps * (1 - t.left_out)
    waves, busy = ceil(t.tiles / t.slots), min(v["blocks_per_sm"], ceil(t.tiles / cores))
    per_step, epilogue = _step_cycles(t, fit, not few, False, False, 4, 4), _epilogue(t, fit)
    moving = _dram_seconds(t, fit, 0.0)
    if t.streams:
        moving *= min(_streaming(t, fit, False, False), _streaming(t, fit, True, False))
    cycles = _cycles(t, fit, waves, busy, steps, per_step * busy, epilogue)
    least = _together(fit, max(cycles, fit.latency), moving, epilogue) + fit.gathers * (form.kind != "gemm")
    if few and form.kind == "gemm" and v["blocks_per_sm"] == 1:
        least -= fit.once
    least *= min(1.0, *(fit.torn_clusters if form.torn else (fit.wide_clusters,)))
    if few:
        cycles = max(t.tiles * steps / cores * per_step, fit.latency)
        added = min(_summing(results, 2, fit), results / fit.kept_sums + _adding(t, fit, 2) * fit.clock)
        least = min(least, _together(fit, cycles, moving, added))
    exchanged = fit.exchanged * (form.transposed and not t.streams)
    return (least * (1 + exchanged) * (1 - fit.kept * (not few)) + fit.launched) * ROUNDED


def _cycles(t: Sm90Tile, fit: TileFit, waves: int, busy: int, steps: float, per_step: float, epilogue: float) -> float:
    """Cycles of ``waves`` of tiles without what is left of the last one's epilogue."""
    hidden = fit.hidden if t.pingpong else fit.hidden_beside if busy > 1 else 1.0
    return waves * (steps * per_step + busy * _narrow_rows(t, fit)) + (waves - 1) * epilogue * hidden


def _narrow_rows(t: Sm90Tile, fit: TileFit) -> float:
    """Cycles of copies of a tile's rows of results and of the residual, beyond those that whole lines take."""
    form = t.form
    length, count = (form.rows, t.block_n) if form.transposed else (form.cols, t.block_m)
    if t.store != "MAPPED" or length * form.out_nbytes >= LINE:
        return 0.0
    (whole, parts), added = fit.narrow_rows, form.residual is not None
    return count * (added * whole if length * form.out_nbytes % SECTOR == 0 else (1 + added) * parts)


def _epilogue(t: Sm90Tile, fit: TileFit) -> float:
    """Cycles of a tile's results, or partial sums."""
    results, split = t.block_m * t.block_n, t.value["cluster_k"]
    epilogue = fit.epilogue + results / (fit.scattered if t.store == "DIRECT" else fit.stored)
    if t.store in ("RUN", "LINES"):
        epilogue += fit.packed * t.value["products_m"] * ceil(t.block_n / 64)
    if t.form.transposed and t.store == "MAPPED":  # a warpgroup's warps wait for one another
        epilogue += fit.turned * t.chunks
    if t.store == "PARTIAL":
        epilogue = results / fit.kept_sums
    if split > 1:
        epilogue = _summing(results, split, fit)
    more = (t.form.residual is not None and not t.staged) or t.form.beta
    return epilogue * fit.residual if more else epilogue


def _summing(results: int, split: int, fit: TileFit) -> float:
    """Cycles in which a cluster sums ``split`` parts."""
    return fit.reduce + results * 4 * (1 - 1 / split) / fit.sent


def _adding(t: Sm90Tile, fit: TileFit, slices: int) -> float:
    """Seconds of the kernel that adds ``slices``."""
    return fit.second_kernel + t.partial_quads * 16 * slices / fit.partial_bytes


def _together(fit: TileFit, cycles: float, moving: float, epilogue: float) -> float:
    """Seconds of computing and moving at once. The last tile's results leave when everything has been read."""
    computing = (cycles + fit.start) / fit.clock
    return max(computing, moving) + fit.overlap * min(computing, moving) + epilogue / fit.clock


def _streaming(t: Sm90Tile, fit: TileFit, full: bool, rereads: bool) -> float:
    """The time of a memory-bound GEMM with this kind of tile, over the time of its bytes."""
    form = t.form
    if not t.streams:
        return 1.0
    by_columns = form.a_columns if form.rows > form.cols else form.b_columns  # of the operand that streams
    few = not by_columns and min(form.rows, form.cols) <= 64
    factor = 1 + fit.half_used * (t.b_read / t.block_n - 1) if form.b_columns else 1.0
    if rereads:
        factor += fit.reread
    if full and t.mean_steps > 1 and (few or t.span == LINE):
        factor *= fit.full_ring_few if few else fit.full_ring
    return factor * fit.few_as_columns if form.transposed and form.cols <= 16 else factor


def _step_cycles(
    t: Sm90Tile, fit: TileFit, resident: int, split: bool, sliced: bool, cast_m: int, cast_n: int
) -> float:
    """Cycles of one step of one tile."""
    form, v, bm, bn, span = t.form, t.value, t.block_m, t.block_n, t.span
    tensor = bm * bn * span / (2 * fit.macs)  # an SM multiplies as many bytes a cycle of all types
    if form.promoted:  # a warpgroup adds up while the other multiplies, if there is one
        # Factors of columns are read, those of two blocks are chosen from.
        added = bm * bn * (span / LINE) / _ADDS * (3 if t.each_column else 2 if t.parted else 1)
        tensor = max(tensor, (tensor + added) / min(v["warpgroups"], 2))
    # A product of 64 rows reads its operands from shared memory; the copies write them.
    rows, columns = t.a_read, t.b_read if form.kind == "gemm" else t.b_cols
    shared = (bm / 64 * (64 + bn) + rows + columns) * span / fit.shared
    if resident:
        columns = 0
    # Neighbouring SMs that read the same bytes share what L2 sends them; those of a split cluster read different ones.
    rate = fit.l2 if not split or t.streams else fit.l2_unshared
    # NOTE: a row of fewer than 128 bytes takes the copy engine as long as a whole one (2 cycles, seen with 64 bytes).
    a_span, b_span = span if form.a_columns else max(span, LINE), span if form.b_columns else max(span, LINE)
    if form.b_columns and v["slab_n"] == 32:
        b_span *= 2
    a_cost, b_cost = form.request_costs
    loads = (rows * a_span * a_cost / cast_n + columns * b_span * b_cost / cast_m) / rate
    lost = (fit.step_alone / v["products_m"], 0, fit.step_three)[v["warpgroups"] - 1]
    cycles = max(tensor, shared, loads) + fit.step + lost
    if form.blockwise:
        cycles *= _EACH if t.each_column else _PARTED if t.parted else 1.0
    if form.kind == "conv" and t.blocks * t.block_k > form.channels and (t.blocks > 1 or t.block_k > 16):
        cycles *= fit.beyond
    alone = (
        form.kind == "wrw"
        and (v["warpgroups"], v["products_m"], v["blocks_per_sm"], sliced) == (1, 1, 1, False)
        and bn <= 192
    )
    return cycles * fit.weights_alone if alone else cycles


def _dram_seconds(t: Sm90Tile, fit: TileFit, again: float) -> float:
    form = t.form
    return (form.moved_bytes + again + form.layers * form.rows * _torn_bytes(t, fit)) / t.target.bytes_per_s


def _read_again(t: Sm90Tile) -> float:
    """Bytes that later phases of backward data read again, where L2 has not kept them since the phase before."""
    form = t.form
    phases = form.layers // form.groups
    if form.kind != "conv" or phases == 1 or t.value["mix_layers"]:
        return 0.0
    read = prod(form.a.dims) * form.nbytes
    between = read + form.rows * form.cols * form.groups * dtype(form.out_dtype).nbytes
    return (phases - 1) * read * min(1.0, between / t.target.l2_bytes)


def _torn_bytes(t: Sm90Tile, fit: TileFit) -> float:
    """Bytes of DRAM a row for the sectors and lines that two tiles write."""
    if t.form.transposed or t.form.kind == "wrw":
        return 0
    tiles_n = t.tiles_n * t.cast_n
    edges = min(tiles_n, 9) - 1
    torn = _torn(edges, t.block_n * t.form.out_nbytes, fit.torn_sector, fit.torn_line)
    return torn * max(tiles_n - 1, 0) // max(edges, 1)


@lru_cache(maxsize=1024)
def _torn(edges: int, width: int, sector: float, line: float) -> float:
    """Bytes at the first ``edges`` edges of tiles of ``width`` bytes: those inside a sector or a line cost so many."""
    return sum(sector if edge % 32 else line if edge % 128 else 0 for edge in (i * width for i in range(1, edges + 1)))


def bound_by_memory(t: Sm90Tile, fit: TileFit) -> bool:
    return _dram_seconds(t, fit, _read_again(t)) > 0.6 * predicted_seconds(t, fit)
