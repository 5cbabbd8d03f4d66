"""Applies a config of the dp4a kernel to a problem: tiles, blocks, words of memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.solver import Config, Configured, cached_property
from tilesmith.targets.target import CudaTarget

_MOST_REGISTERS = 160  # the compiler takes up to 1.3 times as many as are counted here
_MOST_UNROLLED = 2048  # instructions of a thread's tile


@dataclass(frozen=True)
class Dp4aTile(Configured):
    """``g`` computed as ``config`` says; see the axes in ``solver``."""

    g: ConvGeometry
    config: Config
    target: CudaTarget

    @property
    def fours(self) -> int:
        """Words of four taps in a row of the filter: the last one ends with zeros."""
        return -(-self.g.filter[2] // 4)

    @property
    def pixels(self) -> int:
        """Pixels in a row of x that a thread reads."""
        g = self.g
        return (self.value["columns_per_thread"] - 1) * g.stride[2] + (g.filter[2] - 1) * g.dilation[2] + 1

    @property
    def rows(self) -> int:
        """Rows of x that a thread reads, those between dilated taps included."""
        g = self.g
        return (self.value["rows_per_thread"] - 1) * g.stride[1] + (g.filter[1] - 1) * g.dilation[1] + 1

    @property
    def words(self) -> int:
        """Words of four pixels of a channel, as far as a product with a zero tap reaches."""
        g = self.g
        last = (self.value["columns_per_thread"] - 1) * g.stride[2] + (4 * self.fours - 1) * g.dilation[2]
        return last // 4 + 2

    @cached_property
    def tiles(self) -> tuple[int, int]:
        """Tiles along H and W of the result."""
        _, h, w = self.g.output
        return -(-h // self.value["rows_per_thread"]), -(-w // self.value["columns_per_thread"])

    @property
    def threads(self) -> int:
        """Threads that compute something: channels are the fastest axis."""
        return self.g.n * self.tiles[0] * self.tiles[1] * (self.g.c // self.value["channels_per_thread"])

    @property
    def blocks(self) -> int:
        return -(-self.threads // self.value["threads"])

    @property
    def products(self) -> int:
        """dp4a instructions of a thread."""
        v = self.value
        return v["rows_per_thread"] * v["columns_per_thread"] * v["channels_per_thread"] * self.g.filter[1] * self.fours

    @property
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        v = self.value
        sums = v["rows_per_thread"] * v["columns_per_thread"] * v["channels_per_thread"]
        return sums + self.pixels * v["channels_per_thread"] // 4 + 4 * self.words + 4 * self.fours + 32

    @property
    def packed_bytes(self) -> int:
        """The packed filter: for each row and each four of its taps a word for each channel."""
        return self.g.filter[1] * self.fours * self.g.c * 4

    def fits(self, vector: int) -> bool:
        """Whether the config may be chosen where ``vector`` channels can move at once."""
        v, small = self.value, self.registers <= _MOST_REGISTERS and self.products <= _MOST_UNROLLED
        least = v["rows_per_thread"] == v["columns_per_thread"] == 1 and v["channels_per_thread"] == 4
        return v["channels_per_thread"] <= vector and (small or least)
