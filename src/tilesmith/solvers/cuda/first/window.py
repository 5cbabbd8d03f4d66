"""Convolutions of few input channels: the window as units of four elements, and what a config means for it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX, widest
from tilesmith.solvers.solver import Config, Configured, Rejected, cached_property, steady
from tilesmith.targets.target import CudaTarget

MAX_CHANNELS = 7  # from 8 on pixels are whole pieces of 16 bytes, and other kernels read them
MAX_STEPS = 80  # the text of products is unrolled
MAX_LOADS = 16  # units that a thread holds
_UNIT = 4  # elements


@dataclass(frozen=True)
class Unit:
    """Four elements of a window: taps of the filter from (d, r, s) on, channels from 4 * ``channels`` on."""

    d: int
    r: int
    s: int
    channels: int


def staged_row(columns: int, result: str) -> int:
    """Bytes of a pixel's staged results: an odd number of 16, so that eight pixels lie in different banks."""
    return (columns * dtype(result).nbytes // 16 | 1) * 16


def types_refused(g: ConvGeometry) -> Rejected | None:
    """Why kernels of few channels do not take the types or the channels of ``g``, if they do not."""
    other, result = (g.y, g.w) if g.direction == "wrw" else (g.w, g.y)
    if g.x.dtype != other.dtype or g.x.dtype not in HALVES:
        return Rejected(reasons.DTYPE, f"{g.x.dtype} x {other.dtype}")
    if result.dtype not in (g.x.dtype, "fp32") or g.acc_dtype != "fp32":
        return Rejected(reasons.DTYPE, f"{result.dtype}, accumulated in {g.acc_dtype}")
    if g.c > MAX_CHANNELS:
        return Rejected(reasons.CHANNELS, f"{g.c} channels of x, at most {MAX_CHANNELS}")
    return None


def size_refused(g: ConvGeometry) -> Rejected | None:
    """Why an index of 32 bits does not reach every element of ``g``, if it does not."""
    spans = (span_bytes(view.dtype, view.shape, view.strides) // 2 for view in (g.x, g.w, g.y))
    return Rejected(reasons.SIZE) if max(spans) > MAX_INDEX else None


def refused(g: ConvGeometry) -> Rejected | None:
    """Why the kernel does not compute ``g``, if it does not."""
    if found := types_refused(g):
        return found
    if not g.y.channels_last:
        return Rejected(reasons.LAYOUT, "y is not channels-last")
    if max(g.filter) > 255 or prod(g.filter) * -(-g.c // _UNIT) > 4 * _UNIT * MAX_STEPS:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    return size_refused(g)


@dataclass(frozen=True)
class Window(Configured):
    """The tile of x that a block holds, by a config's ``warps`` and the rows and columns of its results (``tile``)."""

    g: ConvGeometry
    config: Config
    target: CudaTarget
    varied = frozenset(("blocks_per_sm",))

    @property
    @abstractmethod
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the results of a tile."""

    @property
    def warps(self) -> int:
        return self.value["warps"]

    @steady
    def taps(self) -> int:
        """Taps in a unit."""
        return taps_of(self.g.c)

    @steady
    def per_pixel(self) -> int:
        """Units of a pixel of the tile."""
        return -(-self.g.c // _UNIT)

    @steady
    def window(self) -> tuple[int, int, int]:
        """Planes, rows and columns of units of x that a tile reads; of planes only those with taps."""
        g, (h, w) = self.g, self.tile
        units = -(-g.filter[2] // self.taps)
        return (
            g.filter[0],
            (h - 1) * g.stride[1] + (g.filter[1] - 1) * g.dilation[1] + 1,
            (w - 1) * g.stride[2] + (units - 1) * self.taps * g.dilation[2] + 1,
        )

    @steady
    def units(self) -> tuple[Unit | None, ...]:
        """Units of the window in the order of products, four a product; None: no unit."""
        return units_of(self.g.filter, self.g.c)

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

    @steady
    def tile_bytes(self) -> int:
        return -(-prod(self.window) * self.per_pixel * 8 // 128) * 128

    @steady
    def loads(self) -> int:
        """Units of a tile that a thread moves."""
        return -(-prod(self.window) * self.per_pixel // (32 * self.warps))

    @steady
    def tiles(self) -> tuple[int, int]:
        """Tiles along the rows and columns of an image's results."""
        _, h, w = self.g.output
        return -(-h // self.tile[0]), -(-w // self.tile[1])

    @steady
    def all_tiles(self) -> int:
        return self.g.n * self.g.output[0] * prod(self.tiles)

    @steady
    def vector(self) -> int:
        """Elements of x that a thread reads at once: four or one."""
        g = self.g
        if g.c % _UNIT or g.x.strides[1] != 1:
            return 1
        steps = [s for s, size in zip(g.x.strides, g.x.shape, strict=True) if size > 1 and s != 1]
        return 4 if widest(4, steps) == 4 else 1

    @steady
    def ragged(self) -> bool:
        """Whether tiles reach beyond the image of the results."""
        return bool(self.g.output[1] % self.tile[0] or self.g.output[2] % self.tile[1])

    @steady
    def reach(self) -> int:
        """Elements from the first to the last of a tile, those beyond the image included."""
        steps = (self.g.x.strides[axis] if self.g.x.shape[axis] > 1 else 0 for axis in (2, 3, 4))
        spread = (self.g.dilation[0], 1, 1)
        return sum(size * apart * step for size, apart, step in zip(self.window, spread, steps, strict=True))

    @cached_property
    def most_registers(self) -> int:
        """Registers that a thread may have; SMs grant them to four warps at a time."""
        threads = -(-self.warps // 4) * 128 * self.value["blocks_per_sm"]
        return min(self.target.registers_per_sm // threads, 255) // 8 * 8 + 7

    @property
    def text_numbers(self) -> dict[str, int]:
        """Constants of ``units.cu``."""
        planes, rows, columns = self.window
        numbers = {
            "C": self.g.c, "S": self.g.filter[2], "TAPS": self.taps, "PER_PIXEL": self.per_pixel, "IN_D": planes,
            "IN_H": rows, "IN_W": columns, "TILE_H": self.tile[0], "TILE_W": self.tile[1], "WARPS": self.warps,
            "VECTOR": self.vector, "MIN_BLOCKS": self.value["blocks_per_sm"],
        }  # fmt: skip
        for name, values in (("STRIDE", self.g.stride), ("DILATION", self.g.dilation)):
            numbers |= {f"{name}_{axis}": value for axis, value in zip("DHW", values, strict=True)}
        return numbers


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


@lru_cache(maxsize=256)
def real_units(filter_: tuple[int, int, int], channels: int) -> int:
    """How many of a window's units are some."""
    return sum(unit is not None for unit in units_of(filter_, channels))
