"""The launches of the sm_90a kernel: tensor maps, arguments, and the sum over slices."""

from __future__ import annotations

from tilesmith.plan.records import Draft, Im2col, Launch, TensorMap
from tilesmith.solvers.cuda.common.form import Tiled, Window
from tilesmith.solvers.cuda.wgmma.source import SUM_THREADS, passed, sum_groups, sum_source, tile_arguments, tile_source
from tilesmith.solvers.cuda.wgmma.tile import Sm90Tile


def tile_draft(t: Sm90Tile) -> Draft:
    """The kernel, and after it the sum of its slices when there are several."""
    v = t.value
    arguments = tile_arguments(t)
    source, parameters = tile_source(t, arguments), passed(arguments)
    launch = Launch(
        0, source.symbol, (t.grid, 1, 1), (*_maps(t), *parameters), (t.threads, 1, 1),
        (v["cluster_k"] * v["cluster_m"], 1, 1), t.shared_bytes, programmatic=True,
    )  # fmt: skip
    if v["split_k"] == 1:
        return Draft((source,), (launch,))
    adding = sum_source(t, arguments)
    blocks = -(-t.partial_quads * sum_groups(t) // SUM_THREADS)
    step = Launch(1, adding.symbol, (blocks, 1, 1), parameters, (SUM_THREADS, 1, 1), programmatic=True)
    return Draft((source, adding), (launch, step), workspace_bytes=v["split_k"] * t.partial_quads * 16)


def _maps(t: Sm90Tile) -> tuple[TensorMap, ...]:
    form = t.form
    a, b = (
        _load(t, form.a, t.a_read, form.a_columns),
        _load(t, form.b, t.b_read // t.value["cluster_m"], form.b_columns),
    )
    if t.store != "MAPPED" or form.mapped is None:
        return (a, b, a, a)  # the kernel does not read the last two
    tail = t.block_n % 64
    if form.transposed:  # rows are the contiguous axis, and a warpgroup stores them together
        boxes = [(64, columns, 1) for columns in (64, tail or 64)]
        return a, b, *(_tiled(form.mapped, form.out_dtype, box, 128) for box in boxes)
    return a, b, _store(form.mapped, form.out_dtype, 64), _store(form.mapped, form.out_dtype, tail or 64)


def _load(t: Sm90Tile, operand: Tiled | Window, extent: int, by_columns: bool) -> TensorMap:
    """The map that loads ``extent`` rows of one step; rows that are contiguous come in slabs of 64."""
    if isinstance(operand, Window):
        return _window(t, operand, t.value["slab_n"] if by_columns else t.block_k, t.block_k if by_columns else extent)
    inner, across = (64, t.block_k) if by_columns else (min(t.block_k, 64), extent)
    box = (inner, across, 1) if operand.across == 1 else (inner, 1, across)
    return _tiled(operand, t.form.dtype, box, inner * 2)


def _store(result: Tiled, dtype: str, columns: int) -> TensorMap:
    box = (columns, 16, 1) if result.across == 1 else (columns, 1, 16)
    return _tiled(result, dtype, box, 128)


def _tiled(operand: Tiled, dtype: str, box: tuple[int, int, int], swizzle: int) -> TensorMap:
    strides = tuple(2 * stride for stride in operand.strides)
    return TensorMap(operand.pointer, dtype, operand.dims, strides, box, (1, 1, 1), swizzle)


def _window(t: Sm90Tile, window: Window, channels: int, pixels: int) -> TensorMap:
    sizes = window.dims[1:-1]
    upper = tuple(
        corner + (base - 1) * step + 1 - size
        for corner, base, step, size in zip(window.corner, window.base, window.step, sizes, strict=True)
    )
    strides = tuple(2 * stride for stride in window.strides)
    im2col = Im2col(window.corner, upper, channels, pixels)
    return TensorMap(
        window.pointer, t.form.dtype, window.dims, strides, (), (1, *window.step, 1), channels * 2, im2col
    )  # fmt: skip
