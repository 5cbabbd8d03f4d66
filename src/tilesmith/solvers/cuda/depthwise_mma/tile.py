"""The resources of a config of depthwise convolution on tensor cores: tiles, memory, registers, blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilesmith.codegen.cuda.activation import LONG
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry, TensorView, Triple
from tilesmith.solvers.cuda.common.dense import MAX_INDEX
from tilesmith.solvers.cuda.common.depthwise import DepthwiseConfigured
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CudaTarget

PLANE_CHANNELS = 4  # of a warp
HALF_COLUMNS = 16  # of one half of a product's rows
_MAX_HELD = 56  # registers of a thread for the filter; a larger one lies in shared memory
_MAX_SUMS = 136
_MAX_PRODUCTS = 336  # of a stage that are in the text: 384 added 11 kB to a package
_OTHER_REGISTERS = 44
_MAX_COPIES = 12  # of a thread for a row of inputs, where several rows are in the text


@dataclass(frozen=True)
class DepthwiseMmaTile(DepthwiseConfigured):
    """``g`` computed as ``config`` says; see the axes in ``solver``."""

    g: ConvGeometry
    config: Config
    target: CudaTarget

    @cached_property
    def image(self) -> Triple:
        """The size of ``result``."""
        return self.g.input if self.back else self.g.output

    @cached_property
    def planes(self) -> int:
        return self.value["block_c"] // PLANE_CHANNELS

    @property
    def threads(self) -> int:
        return self.planes * 32

    @cached_property
    def halves(self) -> int:
        """Of a product's rows, that lie side by side."""
        return self.value["block_w"] // HALF_COLUMNS

    @property
    def products(self) -> int:
        """That a warp starts with one operand of the filter."""
        return self.value["products_m"]

    @cached_property
    def units(self) -> int:
        """Pieces of rows of results that a block computes at once."""
        return 2 * self.products // self.halves

    @cached_property
    def steps(self) -> int:
        """Products along a row of the filter: each takes four pixels of inputs."""
        return _steps(self.g)

    @cached_property
    def live(self) -> int:
        """Rows of results to which a row of inputs adds."""
        g = self.g
        return (self.filter_rows - 1) * g.dilation[1] // g.stride[1] + 1

    @cached_property
    def filter_rows(self) -> int:
        """That a block computes with."""
        return self.value["filter_rows"] if self.weights else self.g.filter[1]

    @cached_property
    def passes(self) -> int:
        """Blocks that share the rows of the filter."""
        return -(-self.g.filter[1] // self.filter_rows)

    @cached_property
    def taps(self) -> int:
        """Operands of the filter."""
        return self.g.filter[0] * self.filter_rows * self.steps

    @cached_property
    def held(self) -> bool:
        """Whether registers hold the filter."""
        return 2 * self.taps <= _MAX_HELD

    @cached_property
    def sums(self) -> int:
        """Registers of a thread for sums."""
        return 4 * (self.taps if self.weights else self.live * self.products)

    @cached_property
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        other = 2 * self.live * self.products if self.weights else 2 * self.taps if self.held else 4
        return self.sums + other + 4 * self.products + _OTHER_REGISTERS

    @cached_property
    def groups(self) -> int:
        """Rows of results of a stage."""
        return self.value["group_rows"]

    @cached_property
    def once_in_text(self) -> bool:
        """Whether copies are once in the text: beside four rows of long results or of many products."""
        long = self.g.epilogue.residual or self.g.epilogue.activation in LONG
        return self.groups >= 4 and (long or not self.held)

    @cached_property
    def in_turns(self) -> bool:
        """Whether the results of one product alone are in the text, which those of the others follow."""
        many = self.g.epilogue.residual and self.groups * self.products > 8
        return self.g.epilogue.activation in LONG or many

    @cached_property
    def rows_in(self) -> int:
        """Rows of inputs by which the results advance one row."""
        return self.g.filter[0] * self.g.stride[1]

    @cached_property
    def pixels(self) -> int:
        """Inputs that a unit reads of a row."""
        return (8 * self.halves - 1) * 2 * self.g.stride[2] + 4 * self.steps

    @cached_property
    def row_bytes(self) -> int:
        return self.units * self.planes * plane_bytes(self.pixels)

    @cached_property
    def result_bytes(self) -> int:
        """Of a row of results in shared memory: what is stored, or of dy."""
        columns = self.units * self.value["block_w"]
        if self.weights:
            return self.units * self.planes * plane_bytes(self.value["block_w"])
        return columns * (self.value["block_c"] * dtype(self.result.dtype).nbytes + 8)

    @cached_property
    def shared_bytes(self) -> int:
        stage, stages = self.groups * self.rows_in * self.row_bytes, self.value["stages"]
        if self.weights:
            ring = stages * (stage + self.groups * self.result_bytes)
            return max(ring, self.planes * self.g.filter[0] * self.filter_rows * self.g.filter[2] * 16)
        columns = 4 * self.steps + self.g.stride[2]
        table = 0 if self.held else self.planes * self.g.filter[0] * self.g.filter[1] * columns * 16
        return stages * stage + 2 * self.groups * self.result_bytes + table

    @cached_property
    def column_blocks(self) -> int:
        return -(-self.image[2] // self.value["block_w"])

    @cached_property
    def all_units(self) -> int:
        return self.g.n * self.image[0] * self.column_blocks

    @cached_property
    def teams(self) -> int:
        """Sets of units that are computed at once."""
        return -(-self.all_units // self.units)

    @cached_property
    def channel_blocks(self) -> int:
        return -(-self.g.c // self.value["block_c"])

    @cached_property
    def strip_rows(self) -> int:
        """Rows of results of a strip."""
        return -(-self.image[1] // self.value["strips"])

    @cached_property
    def strips(self) -> int:
        return -(-self.image[1] // self.strip_rows)

    @cached_property
    def resident(self) -> int:
        """Blocks on an SM, for which the registers of a thread are bounded."""
        t, registers = self.target, -(-self.registers // 8) * 8
        return min(
            t.registers_per_sm // (registers * self.threads),
            t.shared_bytes_per_sm // (self.shared_bytes + 1024),
            t.threads_per_sm // self.threads,
            t.blocks_per_sm,
        )

    @cached_property
    def parts(self) -> int:
        """Blocks of one set of channels: for ``wrw`` each takes several strips."""
        whole = self.teams * self.strips
        if not self.weights:
            return whole
        wanted = self.target.cores * self.resident // (self.channel_blocks * self.passes)
        # All take the same number of strips, or one less.
        return -(-whole // -(-whole // max(1, min(whole, wanted))))

    @cached_property
    def partial_bytes(self) -> int:
        """Of the sums of all blocks of backward weights."""
        return self.parts * prod(self.g.filter) * self.g.c * 4

    @cached_property
    def fits(self) -> bool:
        v, g = self.value, self.g
        if 2 * self.products % self.halves or self.sums > _MAX_SUMS or self.registers > 255:
            return False
        per_row = g.filter[0] * self.filter_rows * self.products * self.groups
        per_row *= self.steps if self.held or self.weights else 1
        if self.groups > 1 and self.units * self.pixels > 32 * _MAX_COPIES:
            return False
        if per_row > _MAX_PRODUCTS or self.shared_bytes > self.target.shared_bytes_per_block:
            return False
        # A narrower block, or a smaller one, computes the same.
        if v["block_w"] >= self.image[2] + HALF_COLUMNS * (1 + self.halves % 2) or v["strips"] > self.image[1]:
            return False
        if v["block_c"] >= g.c + 16 or self.strips != v["strips"] or v["filter_rows"] > g.filter[1]:
            return False
        return self.resident > 0 and self.teams * self.channel_blocks <= MAX_INDEX and self.strips <= 65535


def row_counts(g: ConvGeometry) -> tuple[int, ...]:
    """Numbers of filter rows that a block of backward weights may sum: even shares, the few largest that fit."""
    shares = sorted({-(-g.filter[1] // count) for count in range(1, g.filter[1] + 1)}, reverse=True)
    return tuple(rows for rows in shares if 4 * g.filter[0] * rows * _steps(g) <= _MAX_SUMS)[:4]


def _steps(g: ConvGeometry) -> int:
    return -(-(g.stride[2] + (g.filter[2] - 1) * g.dilation[2] + 1) // 4)


def upright(g: ConvGeometry) -> ConvGeometry:
    """``g``, its rows and columns exchanged where the filter has so many rows that their sums need too many registers.

    Pixels are copied four channels at a time, so that neighbours along either axis serve alike.
    """
    rows = (g.filter[1] - 1) * g.dilation[1] // g.stride[1] + 1
    if g.direction == "wrw" or 4 * rows <= _MAX_SUMS or g.filter[2] >= g.filter[1]:
        return g
    sizes = ("input", "filter", "output", "stride", "padding", "padding_high", "dilation")
    turned: dict[str, Any] = {name: _exchanged(getattr(g, name)) for name in sizes}
    turned |= {name: _turned(getattr(g, name)) for name in ("x", "w", "y")}
    return replace(g, **turned)


def _turned(view: TensorView) -> TensorView:
    (n, c, *shape), (step_n, step_c, *strides) = view.shape, view.strides
    d, h, w = _exchanged((shape[0], shape[1], shape[2]))
    step_d, step_h, step_w = _exchanged((strides[0], strides[1], strides[2]))
    return replace(view, shape=(n, c, d, h, w), strides=(step_n, step_c, step_d, step_h, step_w))


def _exchanged(values: Triple) -> Triple:
    d, h, w = values
    return d, w, h


def plane_bytes(pixels: int) -> int:
    """Of a plane of four channels: an odd number of 16-byte pieces, so that planes differ in their banks."""
    pieces = -(-pixels // 2)
    return (pieces if pieces % 2 else pieces + 1) * 16
