"""Convolutions of few input channels: the window as units of four elements, and what a config means for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX, widest
from tilesmith.solvers.solver import Config, Configured, Rejected
from tilesmith.targets.target import CudaTarget

MAX_CHANNELS = 16
MAX_STEPS = 80  # the text of products is unrolled
_MAX_LOADS = 16  # units that a thread holds
_UNIT = 4  # elements


@dataclass(frozen=True)
class Unit:
    """Four elements of a window: taps of the filter from (d, r, s) on, channels from 4 * ``channels`` on."""

    d: int
    r: int
    s: int
    channels: int


def refused(g: ConvGeometry) -> Rejected | None:
    """Why the kernel does not compute ``g``, if it does not."""
    if g.x.dtype != g.w.dtype or g.x.dtype not in HALVES:
        return Rejected(reasons.DTYPE, f"{g.x.dtype} x {g.w.dtype}")
    if g.y.dtype not in (g.x.dtype, "fp32") or g.acc_dtype != "fp32":
        return Rejected(reasons.DTYPE, f"{g.y.dtype}, accumulated in {g.acc_dtype}")
    if g.c > MAX_CHANNELS:
        return Rejected(reasons.CHANNELS, f"{g.c} channels of x, at most {MAX_CHANNELS}")
    if not g.y.channels_last:
        return Rejected(reasons.LAYOUT, "y is not channels-last")
    if max(g.filter) > 255 or prod(g.filter) * -(-g.c // _UNIT) > 4 * _UNIT * MAX_STEPS:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    spans = (span_bytes(view.dtype, view.shape, view.strides) // 2 for view in (g.x, g.w, g.y))
    if max(spans) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    return None


@dataclass(frozen=True)
class FirstTile(Configured):
    """``g`` computed as ``config`` says; see the axes in ``solver``."""

    g: ConvGeometry
    config: Config
    target: CudaTarget

    @property
    def wgmma(self) -> bool:
        return bool(self.value["wgmma"])

    @property
    def warps(self) -> int:
        return self.value["warps"]

    @property
    def block_n(self) -> int:
        return self.value["block_n"]

    @property
    def parts(self) -> int:
        """Sixteens of pixels of a warp."""
        return self.value["parts"]

    @cached_property
    def pixels(self) -> int:
        return self.warps * self.parts * 16

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the results of a tile."""
        return self.pixels // self.value["tile_w"], self.value["tile_w"]

    @cached_property
    def taps(self) -> int:
        """Taps in a unit."""
        return taps_of(self.g.c)

    @cached_property
    def per_pixel(self) -> int:
        """Units of a pixel of the tile."""
        return -(-self.g.c // _UNIT)

    @cached_property
    def window(self) -> tuple[int, int, int]:
        """Planes, rows and columns of units of x that a tile reads; of planes only those with taps."""
        g, (h, w) = self.g, self.tile
        units = -(-g.filter[2] // self.taps)
        return (
            g.filter[0],
            (h - 1) * g.stride[1] + (g.filter[1] - 1) * g.dilation[1] + 1,
            (w - 1) * g.stride[2] + (units - 1) * self.taps * g.dilation[2] + 1,
        )

    @cached_property
    def units(self) -> tuple[Unit | None, ...]:
        """Units of the window in the order of products, four a product; None: no unit."""
        return units_of(self.g.filter, self.g.c)

    @cached_property
    def steps(self) -> int:
        return len(self.units) // 4

    def offset(self, unit: Unit | None) -> int:
        """Bytes of a unit from the window's first one in shared memory."""
        if unit is None:
            return 0
        g, (_, h, w) = self.g, self.window
        row = unit.d * h + unit.r * g.dilation[1]
        return ((row * w + unit.s * g.dilation[2]) * self.per_pixel + unit.channels) * 8

    def kept(self, unit: Unit | None) -> tuple[int, int]:
        """Masks of a unit's two words: elements that belong to a tap."""
        if unit is None:
            return 0, 0
        exist = [self.taps == 1 or unit.s + e // self.g.c < self.g.filter[2] for e in range(_UNIT)]
        low, high = (sum(0xFFFF << 16 * i for i in range(2) if exist[2 * word + i]) for word in range(2))
        return low, high

    @cached_property
    def tile_bytes(self) -> int:
        return -(-prod(self.window) * self.per_pixel * 8 // 128) * 128

    @cached_property
    def loads(self) -> int:
        """Units of a tile that a thread moves."""
        return -(-prod(self.window) * self.per_pixel // (32 * self.warps))

    @cached_property
    def shared_bytes(self) -> int:
        weights, biases = self.steps * self.block_n * 32, -(-self.block_n * 4 // 128) * 128
        row = self.block_n * dtype(self.g.y.dtype).nbytes + 16
        return weights + biases + 2 * self.tile_bytes + self.warps * 16 * row

    @cached_property
    def tiles(self) -> tuple[int, int]:
        """Tiles along the rows and columns of an image's results."""
        _, h, w = self.g.output
        return -(-h // self.tile[0]), -(-w // self.tile[1])

    @cached_property
    def all_tiles(self) -> int:
        return self.g.n * self.g.output[0] * prod(self.tiles)

    @cached_property
    def blocks_n(self) -> int:
        return -(-self.g.k // self.block_n)

    @cached_property
    def registers(self) -> int:
        """An estimate of a thread's."""
        sums, units = self.parts * self.block_n // 2, self.loads * (2 if self.vector == 4 else 4)
        return sums + units + self.parts * 2 + (64 if self.wgmma else 4 * self.parts + 8) + 40

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

    @cached_property
    def vector(self) -> int:
        """Elements of x that a thread reads at once: four or one."""
        g = self.g
        if g.c % _UNIT or g.x.strides[1] != 1:
            return 1
        steps = [s for s, size in zip(g.x.strides, g.x.shape, strict=True) if size > 1 and s != 1]
        return 4 if widest(4, steps) == 4 else 1

    @cached_property
    def out_vector(self) -> int:
        """Results that a thread stores at once."""
        view = self.g.y
        steps = [s for s, size in zip(view.strides, view.shape, strict=True) if size > 1]
        del steps[view.shape[0] > 1 : (view.shape[0] > 1) + (view.shape[1] > 1)]
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
        registers = t.registers_per_sm // (32 * self.warps * v["blocks_per_sm"])
        return self.registers <= min(registers, 240) and self.loads <= _MAX_LOADS


def taps_of(channels: int) -> int:
    """Taps of a row of the filter that share a unit."""
    return {1: 4, 2: 2}.get(channels, 1)


@lru_cache(maxsize=256)
def units_of(filter_: tuple[int, int, int], channels: int) -> tuple[Unit | None, ...]:
    """Units of a window, four a product: rows of the filter begin with a product where that costs none."""
    planes, rows, columns = filter_
    each = taps_of(channels)
    lines = [
        [Unit(d, r, s, u) for s in range(0, columns, each) for u in range(-(-channels // _UNIT))]
        for d in range(planes)
        for r in range(rows)
    ]
    apart = [unit for line in lines for unit in [*line, *([None] * (-len(line) % 4))]]
    flat = [unit for line in lines for unit in line]
    dense = [*flat, *([None] * (-len(flat) % 4))]
    return tuple(apart if len(apart) <= len(dense) else dense)
