"""The launches of the sm_90a kernel: tensor maps, arguments, and the sum over slices."""

from __future__ import annotations

from tilesmith.codegen.cuda.hopper import hopper_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Im2col, Integer, Launch, Parameter, Pointer, Source, Space, Step, TensorMap
from tilesmith.solvers.cuda.form_sm90 import Tiled, Window
from tilesmith.solvers.cuda.source_sm90 import _TYPES, tile_arguments, tile_source
from tilesmith.solvers.cuda.tile_sm90 import Sm90Tile

_REDUCE_THREADS = 256

_REDUCE = """\
namespace @SYM@_scope {
constexpr int SLICES = @SLICES@;
typedef @OUT@ Out;
// Rows of the filter may have a pitch; the partial sums lie densely.
extern "C" __global__ void __launch_bounds__(256) @SYM@(const float *from, Out *to, ts_i64 count, ts_i64 row,
                                                        ts_i64 pitch) {
  const ts_i64 i = ((ts_i64)blockIdx.x * 256 + threadIdx.x) * 4;
  if (i >= count) return;
  float4 sum = *(const float4 *)(from + i);
#pragma unroll
  for (int s = 1; s < SLICES; s++) {
    const float4 v = *(const float4 *)(from + s * count + i);
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  Out *at = to + i / row * pitch + i % row;
  ts_store_pair(at, sum.x, sum.y);
  ts_store_pair(at + 2, sum.z, sum.w);
}
} // namespace @SYM@_scope
"""


def tile_draft(t: Sm90Tile) -> Draft:
    """The kernel, and after it the sum of its slices when there are several."""
    form, v = t.form, t.value
    sliced = v["slices"] > 1
    out = Pointer(Space.WORKSPACE) if sliced else form.out
    arguments = tile_arguments(t, out)
    source = tile_source(t, arguments)
    maps = _maps(t)
    launch = Launch(
        0, source.symbol, (t.grid, 1, 1), (*maps, *(a.parameter for a in arguments)), (t.threads, 1, 1),
        (v["split"], 1, 1), t.shared_bytes,
    )  # fmt: skip
    if not sliced:
        return Draft((source,), (launch,))
    count = form.rows * len(form.taps.offset) * form.channels
    reduce_source, step = _sum_of_slices(t, count)
    return Draft((source, reduce_source), (launch, step), workspace_bytes=v["slices"] * count * 4)


def _sum_of_slices(t: Sm90Tile, count: int) -> tuple[Source, Step]:
    form = t.form
    text = _REDUCE.replace("@SLICES@", str(t.value["slices"])).replace("@OUT@", _TYPES[form.out_dtype])
    tile = f"s{t.value['slices']}"
    source = make_source("cuda", "sumslices", form.out_dtype, tile, t.target.arch, hopper_prelude(), text)
    row = len(form.taps.offset) * form.channels
    parameters: tuple[Parameter, ...] = (
        Pointer(Space.WORKSPACE), form.out, Integer(count), Integer(row), Integer(form.placed.row),
    )  # fmt: skip
    blocks = -(-count // (4 * _REDUCE_THREADS))
    return source, Launch(1, source.symbol, (blocks, 1, 1), parameters, (_REDUCE_THREADS, 1, 1))


def _maps(t: Sm90Tile) -> tuple[TensorMap, ...]:
    form = t.form
    a, b = _load(t, form.a, t.block_m, form.a_columns), _load(t, form.b, t.block_n, form.b_columns)
    if t.store != "MAPPED" or form.mapped is None:
        return (a, b, a, a)  # the kernel does not read the last two
    tail = t.block_n % 64
    return a, b, _store(form.mapped, form.out_dtype, 64), _store(form.mapped, form.out_dtype, tail or 64)


def _load(t: Sm90Tile, operand: Tiled | Window, extent: int, by_columns: bool) -> TensorMap:
    """The map that loads ``extent`` rows of one step; rows that are contiguous come in slabs of 64."""
    if isinstance(operand, Window):
        return _window(t, operand, 64 if by_columns else t.block_k, t.block_k if by_columns else extent)
    inner, across = (64, t.block_k) if by_columns else (t.block_k, extent)
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
