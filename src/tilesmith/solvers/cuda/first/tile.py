"""The numbers that a config of the forward kernel gives for a problem."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.codegen.cuda.activation import LONG
from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.common.dense import MAX_INDEX, widest
from tilesmith.solvers.cuda.first.window import MAX_LOADS, Window, staged_row
from tilesmith.solvers.solver import cached_property, steady

_MANY_RESULTS = 128  # columns of all of a warp's parts


@dataclass(frozen=True)
class FirstTile(Window):
    """``g`` computed as ``config`` says; see the axes in ``solver``."""

    @property
    def wgmma(self) -> bool:
        return bool(self.value["wgmma"])

    @property
    def block_n(self) -> int:
        return self.value["block_n"]

    @property
    def parts(self) -> int:
        """Sixteens of pixels of a warp."""
        return self.value["parts"]

    @steady
    def pixels(self) -> int:
        return self.warps * self.parts * 16

    @steady
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the results of a tile."""
        return self.pixels // self.value["tile_w"], self.value["tile_w"]

    @steady
    def steps(self) -> int:
        return len(self.units) // 4

    @steady
    def in_turns(self) -> bool:
        """Whether the text has the results of one part alone: those of all, when they are long, are 16 kB."""
        many = self.parts > 1 and self.parts * self.block_n >= _MANY_RESULTS
        return many and self.g.epilogue.activation in LONG

    @steady
    def bias_unit(self) -> int:
        """The place among the products' units where a one meets the bias; -1: the bias is added behind the products.

        A product that lacks a unit adds the bias for nothing. It must be of the filter's type.
        """
        g = self.g
        free = g.epilogue.bias and g.y.dtype == g.w.dtype and None in self.units
        return self.units.index(None) if free else -1

    @steady
    def shared_bytes(self) -> int:
        weights, biases = self.steps * self.block_n * 32, -(-self.block_n * 4 // 128) * 128
        row = staged_row(self.block_n, self.g.y.dtype)
        return weights + biases + 2 * self.tile_bytes + self.warps * 16 * row

    @steady
    def blocks_n(self) -> int:
        return -(-self.g.k // self.block_n)

    @steady
    def registers(self) -> int:
        """An estimate of a thread's."""
        sums, units = self.parts * self.block_n // 2, self.loads * (4 if self.vector == 4 else 6)
        return sums + units + self.parts * 2 + (64 if self.wgmma else 4 * self.parts + 26) + 40

    @cached_property
    def per_sm(self) -> int:
        """Blocks that share an SM."""
        t = self.target
        shared = t.shared_bytes_per_sm // (self.shared_bytes + 1024)
        return min(shared, self.value["blocks_per_sm"], t.threads_per_sm // (32 * self.warps))

    @cached_property
    def blocks(self) -> int:
        """Blocks of the launch, which take tiles in turn."""
        each = max(1, self.target.cores * self.value["blocks_per_sm"] // self.blocks_n)
        return self.blocks_n * min(each, self.all_tiles)

    @steady
    def whole(self) -> bool:
        """Whether every result of every tile exists."""
        return not self.ragged and self.g.k % self.block_n == 0

    @steady
    def out_vector(self) -> int:
        """Results that a thread stores at once."""
        view = self.g.y
        steps = [s for i, (s, size) in enumerate(zip(view.strides, view.shape, strict=True)) if size > 1 and i != 1]
        return widest(min(8, 16 // dtype(view.dtype).nbytes), [view.shape[1], *steps])

    @cached_property
    def fits(self) -> bool:
        """Whether the config may be chosen."""
        t, v = self.target, self.value
        if self.wgmma and not (t.has_wgmma and self.warps % 4 == 0):
            return False
        if self.pixels % v["tile_w"] or v["block_n"] > max(8, -(-self.g.k // 32) * 32):
            return False
        if self.shared_bytes > t.shared_bytes_per_block or self.per_sm < v["blocks_per_sm"]:
            return False
        small = self.loads <= MAX_LOADS and self.reach <= MAX_INDEX
        return small and self.registers <= self.most_registers
