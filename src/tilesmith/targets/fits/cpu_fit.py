"""The record of constants measured on a CPU: each field has its unit and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tilesmith.targets.fits.units import Unit

C, R = Unit.CYCLES, Unit.PER_CYCLE


@dataclass(frozen=True)
class MemoryFit:
    """Bytes that one thread gets from where they stay."""

    l2: Annotated[float, R, "Bytes from the second-level cache."]
    l3: Annotated[float, R, "Bytes from the third-level cache."]
    dram: Annotated[float, R, "Bytes from memory."]


@dataclass(frozen=True)
class CoreFit:
    """The costs of starting and of waiting for one thread."""

    clock: Annotated[float, Unit.HERTZ, "The clock under load."]
    latency: Annotated[float, C, "Of a multiply-add, and what sums without a spare one lose when a load is late."]
    loads: Annotated[float, R, "Loads of a vector."]
    issued: Annotated[float, R, "Instructions."]
    tile: Annotated[float, C, "Of a tile beside its steps: call, pointers, the mispredicted ends of loops."]
    dots: Annotated[float, Unit.SHARE, "Products of pairs of bf16 that a core starts, over its multiply-adds."]


@dataclass(frozen=True)
class DenseFit(CoreFit, MemoryFit):
    """The kernel of dense problems (``solvers/c/dense/cost.py``)."""

    segment: Annotated[float, C, "Of a segment of taps."]
    item: Annotated[float, C, "Of an item: counting out where it lies, first touches."]
    copied: Annotated[float, R, "Bytes that are packed from contiguous channels."]
    gathered: Annotated[float, R, "Elements that are packed one by one."]


@dataclass(frozen=True)
class TilesFit(MemoryFit):
    """The kernel of matrix tiles (``solvers/c/tiles/cost.py``); a register has 1 KiB."""

    clock: Annotated[float, Unit.HERTZ, "The clock under load."]
    loaded: Annotated[float, C, "Of a register from the first-level cache."]
    tile: Annotated[float, C, "Of a tile beside its steps: call, pointers, sums that are written."]
    out: Annotated[float, C, "Of a vector of results from its sums to the result."]
    long: Annotated[float, C, "Of a vector's activation that has an exponential."]
    item: Annotated[float, C, "Of an item: counting out where it lies, first touches."]
    copied: Annotated[float, R, "Bytes that are packed."]
    pixel: Annotated[float, C, "Of a piece of contiguous channels that is packed, beside its bytes."]


@dataclass(frozen=True)
class GroupedFit(CoreFit, MemoryFit):
    """The kernels of narrow groups (``solvers/c/grouped/cost.py``)."""

    strip: Annotated[float, C, "Of a strip."]
    ahead: Annotated[float, Unit.SHARE, "How much faster memory is when it is asked early."]


@dataclass(frozen=True)
class WrwFit(CoreFit, MemoryFit):
    """The kernels of weight gradients (``solvers/c/wrw/cost.py``)."""

    row: Annotated[float, C, "Of a row of a strip."]
    copied: Annotated[float, R, "Bytes that are copied into strips."]


@dataclass(frozen=True)
class CpuFit:
    """The constants measured on one thread of ``card``; a part for each kernel."""

    card: str
    arch: str
    dense: DenseFit
    grouped: GroupedFit
    wrw: WrwFit
    tiles: TilesFit | None = None  # of a CPU that has them
