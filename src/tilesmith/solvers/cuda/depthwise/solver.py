"""Depthwise convolution: a thread gathers a small tile of results for a few channels, all of it unrolled.

Backward data is the same gather with another map from results to inputs; backward weights walks over tiles of dy and
adds up its threads and blocks in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from tilesmith.codegen.cuda.activation import activation_body
from tilesmith.codegen.cuda.mma import mma_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Parameter, Source, Space
from tilesmith.plan.records import Pointer as To
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.features import EPILOGUE, USUAL
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import MAX_INDEX, RESULTS, widest
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    Unranked,
    remembered,
    values_of,
)
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import DepthwiseFit

_TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "float"}
_MAX_TAPS = 128
_MAX_UNROLLED = 4096  # multiply-adds of a thread's tile
_MAX_SUMS = 112
_IN_REGISTERS = 56  # filter elements of a thread; more lie in shared memory
AXES = (
    Axis("channels_per_thread", (1, 2, 4, 8), "Channels of a thread, which move at once."),
    Axis("rows_per_thread", (1, 2, 3, 4, 6, 7, 8, 12, 14), "Rows of the results of a thread."),
    Axis("columns_per_thread", (1, 2, 3, 4, 6, 7, 8, 12), "Results of each of its rows."),
    Axis("threads", (64, 128, 256), "Threads of a block."),
    Axis("rows_ahead", (0, 1, 2), "Rows that are fetched before they are needed; 0 for backward weights."),
    Axis("filter_rows", (), "Rows of the filter that a thread of backward weights sums; 0 for the others."),
    Axis("blocks_per_sm", (0, 2, 4, 8, 16), "Blocks of backward weights on each SM, about; 0 for the others."),
)


@dataclass(frozen=True)
class DepthwiseTile:
    """``g`` computed as ``config`` says; see the axes above."""

    g: ConvGeometry
    config: Config
    target: CudaTarget

    @cached_property
    def value(self) -> dict[str, int]:
        return dict(self.config.values)

    @property
    def weights(self) -> bool:
        return self.g.direction == "wrw"

    @property
    def back(self) -> bool:
        return self.g.direction == "bwd"

    @cached_property
    def lanes(self) -> int:
        """Threads side by side along channels: the fewest idle ones."""
        vectors = self.g.c // self.value["channels_per_thread"]
        most = min(self.value["threads"], vectors, 64)
        return min(range(max(1, most // 2), most + 1), key=lambda n: (-(-vectors // n) * n, -n))

    @cached_property
    def slots(self) -> int:
        """Tiles that a block computes side by side."""
        return max(1, self.value["threads"] // self.lanes)

    @cached_property
    def channel_blocks(self) -> int:
        return -(-(self.g.c // self.value["channels_per_thread"]) // self.lanes)

    @cached_property
    def image(self) -> tuple[int, int]:
        """The tiled image: the result's, or dy's for ``wrw``."""
        size = self.g.input if self.back else self.g.output
        return size[1], size[2]

    @cached_property
    def tiles_h(self) -> int:
        return -(-self.image[0] // self.value["rows_per_thread"])

    @cached_property
    def tiles_w(self) -> int:
        return -(-self.image[1] // self.value["columns_per_thread"])

    @property
    def tiles(self) -> int:
        return self.g.n * self.tiles_h * self.tiles_w

    @cached_property
    def row_blocks(self) -> int:
        return -(-self.g.filter[1] // self.value["filter_rows"]) if self.weights else 1

    @cached_property
    def parts(self) -> int:
        """Blocks along tiles."""
        whole = -(-self.tiles // self.slots)
        if not self.weights:
            return whole
        wanted = self.target.cores * self.value["blocks_per_sm"] // (self.channel_blocks * self.row_blocks)
        return max(1, min(whole, wanted))

    @cached_property
    def in_shared(self) -> bool:
        return (
            not self.weights and self.g.filter[1] * self.g.filter[2] * self.value["channels_per_thread"] > _IN_REGISTERS
        )

    @cached_property
    def shared_bytes(self) -> int:
        if self.weights:
            return self.lanes * self.slots * self.value["channels_per_thread"] * 4
        return (
            self.g.filter[1] * self.g.filter[2] * self.lanes * self.value["channels_per_thread"] * 4
            if self.in_shared
            else 0
        )

    @cached_property
    def work(self) -> int:
        """Multiply-adds of a thread's tile."""
        v = self.value
        taps = (v["filter_rows"] if self.weights else self.g.filter[1]) * self.g.filter[2]
        strided = self.g.stride[1] * self.g.stride[2] if self.back else 1
        return v["rows_per_thread"] * v["columns_per_thread"] * v["channels_per_thread"] * taps // strided

    @cached_property
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        v, g = self.value, self.g
        words = v["channels_per_thread"] * dtype(g.x.dtype).nbytes / 4
        step = (1, 1) if self.back else (g.stride[1], g.stride[2])
        columns = (v["columns_per_thread"] - 1) * step[1] + (g.filter[2] - 1) * g.dilation[2] + 1
        if self.weights:
            sums = v["filter_rows"] * g.filter[2] * v["channels_per_thread"]
            return int(
                sums
                + v["rows_per_thread"] * v["columns_per_thread"] * (words + v["channels_per_thread"] / 2)
                + columns * words
                + 48
            )
        # From shared memory the compiler still fetches it far ahead.
        filter_ = g.filter[1] * g.filter[2] * v["channels_per_thread"] // (2 if self.in_shared else 1)
        return int(
            v["rows_per_thread"] * v["columns_per_thread"] * v["channels_per_thread"]
            + filter_
            + columns * words * (v["rows_ahead"] + 1)
            + 40
        )

    @cached_property
    def fits(self) -> bool:
        v, g = self.value, self.g
        if self.back and (v["rows_per_thread"] % g.stride[1] or v["columns_per_thread"] % g.stride[2]):
            return False
        if self.weights and (
            v["filter_rows"] * g.filter[2] * v["channels_per_thread"] > _MAX_SUMS or v["filter_rows"] > g.filter[1]
        ):
            return False
        # NOTE: beyond these heights the compiler gives up unrolling, and sums go through local memory: 2 to 10 times
        # slower (H200, NVRTC 13.0).
        tallest = 4 if g.filter[1] >= 5 else 8 if self.weights else 14
        if v["rows_per_thread"] > max(tallest, g.stride[1] if self.back else 1):
            return False
        taps = g.filter[1] * g.filter[2]
        if self.work > _MAX_UNROLLED or taps > _MAX_TAPS or self.registers > 200:
            return False
        if v["channels_per_thread"] > vector_of(g) or self.shared_bytes > 48 * 1024 or self.parts > MAX_INDEX:
            return False
        return self.channel_blocks <= 65535


def vector_of(g: ConvGeometry) -> int:
    """How many channels can move at once."""
    found = 8
    for view in (g.x, g.y):
        sizes, strides = (view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:])
        steps = [stride for size, stride in zip(sizes, strides, strict=True) if size > 1]
        found = min(found, widest(16 // dtype(view.dtype).nbytes, [g.c, *steps]))
    return found


class DepthwiseCudaSolver(Unranked):
    """One input and one output channel a group, channels-last, images in two dimensions, sums in fp32."""

    name = "cuda_depthwise"
    revision = 1
    features = USUAL | EPILOGUE | {"fwd", "bwd", "wrw", "groups", "stride", "padding", "padding_high", "dilation"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        g = problem
        if g.direction not in ("fwd", "bwd", "wrw"):
            return Rejected(reasons.DIRECTION, g.direction)
        if not g.groups == g.c == g.k or g.c == 1:
            return Rejected(reasons.GROUPS, f"{g.groups} groups of {g.c} and {g.k} channels")
        operand, filter_, result = {"fwd": (g.x, g.w, g.y), "bwd": (g.y, g.w, g.x), "wrw": (g.x, g.y, g.w)}[g.direction]
        if operand.dtype != filter_.dtype or operand.dtype not in RESULTS or result.dtype not in RESULTS:
            return Rejected(reasons.DTYPE, f"{operand.dtype} x {filter_.dtype} -> {result.dtype}")
        if g.acc_dtype != "fp32":
            return Rejected(reasons.DTYPE, f"accumulated in {g.acc_dtype}")
        if max(g.x.vector, g.w.vector, g.y.vector) > 1 or not (g.x.channels_last and g.y.channels_last):
            return Rejected(reasons.LAYOUT, "channels are not contiguous")
        if (g.input[0], g.filter[0], g.output[0], g.padding[0]) != (1, 1, 1, 0):
            return Rejected(reasons.FILTER, "three spatial dimensions")
        if max(abs(view.strides[0]) for view in (g.x, g.y)) > MAX_INDEX:
            return Rejected(reasons.SIZE)
        if next(_candidates(g, target), None) is None:
            return Rejected(reasons.FILTER, f"filter {g.filter}, stride {g.stride}, dilation {g.dilation}")
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        g = _conv(problem)
        weights = g.direction == "wrw"
        axes = values_of(AXES) | {
            "channels_per_thread": tuple(v for v in (1, 2, 4, 8) if v <= vector_of(g)),
            "rows_ahead": (0,) if weights else (1, 2),
            "filter_rows": tuple(range(1, g.filter[1] + 1)) if weights else (0,),
            "blocks_per_sm": (2, 4, 8, 16) if weights else (0,),
        }
        return SearchSpace(axes, lambda config: DepthwiseTile(g, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return _default(_conv(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return depthwise_seconds(self.tile(problem, config, target), fit_of(target).depthwise)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> DepthwiseTile:
        """What ``config`` means for ``problem``: what its time is estimated from."""
        return DepthwiseTile(_conv(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        t = self.tile(problem, config, target)
        return _weights_draft(t) if t.weights else _gather_draft(t)


def _conv(problem: Geometry) -> ConvGeometry:
    assert isinstance(problem, ConvGeometry)
    return problem


def _candidates(g: ConvGeometry, target: CudaTarget) -> Iterator[Config]:
    weights, stride = g.direction == "wrw", (g.stride[1], g.stride[2]) if g.direction == "bwd" else (1, 1)
    heights = sorted({h for h in (1, 2, 3, 4, 6, 7, 8, 12, 14) if h % stride[0] == 0})
    widths = sorted({w for w in (1, 2, 3, 4, 6, 7, 8, 12) if w % stride[1] == 0})
    for vec in (v for v in (1, 2, 4, 8) if v <= vector_of(g)):
        for th in heights:
            for tw in widths:
                for threads in (128, 256):
                    for rows in {g.filter[1], (g.filter[1] + 1) // 2, 1} if weights else (0,):
                        config = Config(
                            (("channels_per_thread", vec), ("rows_per_thread", th), ("columns_per_thread", tw),
                             ("threads", threads), ("rows_ahead", 0 if weights else 1), ("filter_rows", rows),
                             ("blocks_per_sm", 4 if weights else 0))
                        )  # fmt: skip
                        t = DepthwiseTile(g, config, target)
                        # With two paths, for whole tiles and for others, the estimate is low for wide filters.
                        if t.fits and (not weights or g.filter[2] < 7 or t.registers <= 124):
                            yield config


def _default(g: ConvGeometry, target: CudaTarget) -> Config:
    fit = fit_of(target).depthwise
    return min(_candidates(g, target), key=lambda config: depthwise_seconds(DepthwiseTile(g, config, target), fit))


def depthwise_seconds(t: DepthwiseTile, fit: DepthwiseFit) -> float:
    """Loads through the L1 cache, multiply-adds, DRAM: the slowest, by waves of blocks."""
    g, v, target = t.g, t.value, t.target
    size = dtype(g.x.dtype).nbytes
    step = (1, 1) if t.back else (g.stride[1], g.stride[2])
    taps = v["filter_rows"] if t.weights else g.filter[1]
    reach = (1 / g.stride[1], 1 / g.stride[2]) if t.back else (1.0, 1.0)
    rows = (v["rows_per_thread"] * reach[0] - 1) * step[0] + (taps - 1) * g.dilation[1] * reach[0] + 1
    columns = (v["columns_per_thread"] * reach[1] - 1) * step[1] + (g.filter[2] - 1) * g.dilation[2] * reach[1] + 1
    vectors = rows * columns + v["rows_per_thread"] * v["columns_per_thread"] * (2 if g.epilogue.residual else 1)
    warps = t.tiles * t.channel_blocks * t.row_blocks * t.lanes / 32
    per_thread = min(255, t.registers)
    resident = min(target.registers_per_sm // (per_thread * 32), target.threads_per_sm // 32)
    # A load instruction moves vec * size * 32 bytes.
    loads = vectors * max(4.0, v["channels_per_thread"] * size * 32 / fit.l1)
    issue = (t.work * fit.issue + vectors * (6 + v["channels_per_thread"]) + 60) / 4
    if t.in_shared:
        issue += t.work / v["columns_per_thread"] / v["channels_per_thread"] / 4
    hidden = float(min(1.0, resident / fit.hiding) ** 0.5)
    cycles = warps / target.cores * max(loads, issue) / hidden + fit.start
    waves = warps / target.cores / resident
    if not t.weights and waves > 1:
        cycles *= ceil(waves) / waves if waves < 4 else 1.0
    idle = (t.tiles_h * v["rows_per_thread"] * t.tiles_w * v["columns_per_thread"]) / (t.image[0] * t.image[1])
    pixels = g.n * (g.input[1] * g.input[2] + g.output[1] * g.output[2])
    moved = pixels * g.c * size * (1.0 if idle < 2 else 1.1)
    busy, moving = cycles / (fit.clock * target.clock_hz), moved / (fit.bandwidth * target.bytes_per_s)
    seconds = max(busy, moving) + fit.overlap * min(busy, moving)  # the two overlap, but not quite
    if t.weights:
        partial = t.parts * g.filter[1] * g.filter[2] * g.c * 4
        seconds += fit.second_kernel + 2 * partial / (fit.partial_bandwidth * target.bytes_per_s)
    return seconds


@lru_cache(maxsize=4)
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.cu").read_text()


def _constants(t: DepthwiseTile, out: str) -> str:
    g, v = t.g, t.value
    numbers = {
        "R": g.filter[1], "S": g.filter[2], "STRIDE_H": g.stride[1], "STRIDE_W": g.stride[2], "PAD_H": g.padding[1],
        "PAD_W": g.padding[2], "DILATION_H": g.dilation[1], "DILATION_W": g.dilation[2], 
        "TH": v["rows_per_thread"], "TW": v["columns_per_thread"],
        "VEC": v["channels_per_thread"], "AHEAD": v["rows_ahead"], "TAP_ROWS": v["filter_rows"],
        "MIN_BLOCKS": 1,
    }  # fmt: skip
    flags = {
        "BACK": t.back, "BIAS": g.epilogue.bias, "RESIDUAL": g.epilogue.residual, "IN_SHARED": t.in_shared,
    }  # fmt: skip
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()]
    operand = g.y if t.back else g.x
    return "\n".join([*lines, f"typedef {_TYPES[operand.dtype]} Element;", f"typedef {_TYPES[out]} Out;"])


def _source(t: DepthwiseTile, op: str, out: str, text: str) -> Source:
    text = text.replace("@CONSTANTS@", _constants(t, out)).replace("@OUT@", _TYPES[out])
    text = text.replace("@ACTIVATION@", activation_body(t.g.epilogue))
    tile = "x".join(str(value) for _, value in t.config.values)
    return make_source("cuda", op, t.g.x.dtype, tile, t.target.arch, mma_prelude(), text)


def _steps(view: TensorView) -> tuple[int, int, int]:
    n, _, _, h, w = view.strides
    return n, h, w


def _numbers(*values: int) -> tuple[Parameter, ...]:
    return tuple(Integer(value) for value in values)


def _gather_draft(t: DepthwiseTile) -> Draft:
    g = t.g
    source, result = (g.y, g.x) if t.back else (g.x, g.y)
    text = _source(t, f"depthwise{g.direction}", result.dtype, _text("kernel"))
    out = To(Space.SLOT, 2 + g.epilogue.bias + g.epilogue.residual)
    bias = To(Space.SLOT, 2) if g.epilogue.bias else out
    residual = To(Space.SLOT, 2 + g.epilogue.bias) if g.epilogue.residual else out
    parameters = (
        To(Space.SLOT, 0), To(Space.SLOT, 1), bias, residual, out,
        *_numbers(g.c, t.tiles, t.tiles_h, t.tiles_w, *source.shape[3:], *result.shape[3:], *_steps(source),
                  *_steps(result), g.w.strides[0], *g.w.strides[3:]),
    )  # fmt: skip
    grid = (t.parts, t.channel_blocks, 1)
    launch = Launch(0, text.symbol, grid, parameters, (t.lanes, t.slots, 1), shared_bytes=t.shared_bytes)
    return Draft((text,), (launch,))


def _weights_draft(t: DepthwiseTile) -> Draft:
    g = t.g
    first = _source(t, "depthwisewrw", g.w.dtype, _text("wrw"))
    second = _source(t, "depthwisesum", g.w.dtype, _text("sum"))
    taps = g.filter[1] * g.filter[2]
    partial = To(Space.WORKSPACE)
    parameters = (
        To(Space.SLOT, 0), To(Space.SLOT, 1), partial,
        *_numbers(g.c, t.tiles, t.tiles_h, t.tiles_w, *g.x.shape[3:], *g.y.shape[3:], *_steps(g.x), *_steps(g.y)),
    )  # fmt: skip
    totals = (
        partial, To(Space.SLOT, 2),
        *_numbers(t.parts, taps * g.c, g.c, g.filter[2], g.w.strides[0], *g.w.strides[3:]),
    )  # fmt: skip
    grid = (t.parts, t.channel_blocks, t.row_blocks)
    return Draft(
        (first, second),
        (
            Launch(0, first.symbol, grid, parameters, (t.lanes, t.slots, 1), shared_bytes=t.shared_bytes),
            Launch(1, second.symbol, (-(-taps * g.c // 32), 1, 1), totals, (32, 8, 1)),
        ),
        workspace_bytes=t.parts * taps * g.c * 4,
    )
