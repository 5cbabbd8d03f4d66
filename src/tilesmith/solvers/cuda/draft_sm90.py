"""The launches of the sm_90a kernel: tensor maps, arguments, and the sum over slices."""

from __future__ import annotations

from tilesmith.codegen.cuda.hopper import hopper_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Im2col, Integer, Launch, Parameter, Pointer, Source, Space, Step, TensorMap
from tilesmith.solvers.cuda.form_sm90 import Tiled, Window
from tilesmith.solvers.cuda.source_sm90 import TYPES, tile_arguments, tile_source
from tilesmith.solvers.cuda.tile_sm90 import Sm90Tile

_REDUCE_THREADS = 256

_REDUCE = """\
namespace @SYM@_scope {
constexpr int SLICES = @SLICES@;
typedef @OUT@ Out;
// Partial sums lie densely, results with a pitch from row to row and from layer to layer.
extern "C" __global__ void __launch_bounds__(256) @SYM@(const float *from, Out *to, ts_i64 count, ts_i64 row,
                                                        ts_i64 pitch, ts_i64 rows, ts_i64 layer) {
  const ts_i64 i = ((ts_i64)blockIdx.x * 256 + threadIdx.x) * 4;
  ts_wait_previous();
  if (i >= count) return;
  float4 parts[SLICES < 8 ? SLICES : 8], sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int first = 0; first < SLICES; first += 8) {
#pragma unroll
    for (int s = 0; s < 8; s++)
      if (first + s < SLICES) parts[s] = __ldcs((const float4 *)(from + (first + s) * count + i));
#pragma unroll
    for (int s = 0; s < 8; s++)
      if (first + s < SLICES) sum.x += parts[s].x, sum.y += parts[s].y, sum.z += parts[s].z, sum.w += parts[s].w;
  }
  const ts_i64 line = i / row, of = line / rows;
  Out *at = to + of * layer + (line - of * rows) * pitch + (i - line * row);
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
        (v["split"] * v["cast"], 1, 1), t.shared_bytes,
    )  # fmt: skip
    if not sliced:
        return Draft((source,), (launch,))
    count = form.layers * t.partial_rows * t.partial_row
    reduce_source, step = _sum_of_slices(t, count)
    return Draft((source, reduce_source), (launch, step), workspace_bytes=v["slices"] * count * 4)


def _sum_of_slices(t: Sm90Tile, count: int) -> tuple[Source, Step]:
    form = t.form
    text = _REDUCE.replace("@SLICES@", str(t.value["slices"])).replace("@OUT@", TYPES[form.out_dtype])
    tile = f"s{t.value['slices']}"
    source = make_source("cuda", "sumslices", form.out_dtype, tile, t.target.arch, hopper_prelude(), text)
    pitch = form.placed.column if form.transposed else form.placed.row
    numbers = (count, t.partial_row, pitch, t.partial_rows, form.placed.layer)
    parameters: tuple[Parameter, ...] = (Pointer(Space.WORKSPACE), form.out, *(Integer(n) for n in numbers))
    blocks = -(-count // (4 * _REDUCE_THREADS))
    launch = Launch(
        1, source.symbol, (blocks, 1, 1), parameters, (_REDUCE_THREADS, 1, 1), programmatic=True
    )  # fmt: skip
    return source, launch


def _maps(t: Sm90Tile) -> tuple[TensorMap, ...]:
    form = t.form
    a, b = _load(t, form.a, t.block_m, form.a_columns), _load(t, form.b, t.block_n // t.value["cast"], form.b_columns)
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
        return _window(t, operand, t.value["slab"] if by_columns else t.block_k, t.block_k if by_columns else extent)
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
