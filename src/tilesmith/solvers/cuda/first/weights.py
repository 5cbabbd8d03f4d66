"""The numbers that a config of backward weights gives for a problem."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.solvers.cuda.common.dense import MAX_INDEX, widest
from tilesmith.solvers.cuda.first.window import MAX_LOADS, Unit, Window, real_units
from tilesmith.solvers.solver import cached_property, steady

_WARP_UNITS = 8  # of a group


@dataclass(frozen=True)
class WeightsTile(Window):
    """Backward weights of ``g`` computed as ``config`` says; see the axes in ``wrw_solver``."""

    @steady
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the pixels of dy that a tile sums over."""
        return self.value["tile_h"], self.value["tile_w"]

    @steady
    def pixels(self) -> int:
        return prod(self.tile)

    @property
    def parts(self) -> int:
        """Sixteens of channels of dy of a block."""
        return self.value["parts"]

    @property
    def groups(self) -> int:
        """Eights of units of a warp."""
        return self.value["groups"]

    @steady
    def elements(self) -> int:
        """Elements of a unit that are ever weights."""
        return 3 if self.g.c == 3 else 4

    @steady
    def unit_warps(self) -> int:
        """Warps that together have all units."""
        return -(-real_units(self.g.filter, self.g.c) // (_WARP_UNITS * self.groups))

    @steady
    def columns(self) -> tuple[Unit | None, ...]:
        """Units in the order of warps."""
        real = tuple(unit for unit in self.units if unit is not None)
        return real + (None,) * (self.unit_warps * self.groups * _WARP_UNITS - len(real))

    @steady
    def splits(self) -> int:
        """Warps that share units, each with steps of its own."""
        return self.warps // self.unit_warps

    @steady
    def quads(self) -> int:
        """Fours of sums of a block."""
        return self.unit_warps * self.parts * self.groups * self.elements * 32

    @steady
    def shared_bytes(self) -> int:
        dy = -(-self.pixels * (self.parts * 32 + 16) // 128) * 128
        return max(2 * (self.tile_bytes + dy), self.quads * 16 if self.splits > 1 else 0)

    @steady
    def blocks_m(self) -> int:
        return -(-self.g.k // (16 * self.parts))

    @cached_property
    def slices(self) -> int:
        """Blocks that share the pixels of a block of channels."""
        return min(self.all_tiles, max(1, self.target.cores * self.value["blocks_per_sm"] // self.blocks_m))

    @cached_property
    def partial_bytes(self) -> int:
        return self.slices * self.blocks_m * self.quads * 16

    @steady
    def dy_vector(self) -> int:
        """Elements of dy that a copy moves."""
        view = self.g.y
        steps = [s for i, (s, size) in enumerate(zip(view.strides, view.shape, strict=True)) if size > 1 and i != 1]
        return widest(8, [view.shape[1], *steps])

    @steady
    def registers(self) -> int:
        """An estimate of a thread's."""
        sums = self.parts * self.groups * self.elements * 4
        units = self.loads * (4 if self.vector == 4 else 6)
        return sums + units + self.parts * 4 + 12 + self.groups + 56

    @cached_property
    def fits(self) -> bool:
        """Whether the config may be chosen."""
        t, v = self.target, self.value
        each = v["blocks_per_sm"]
        if self.warps % self.unit_warps or self.splits > self.pixels // 16 or self.pixels % 16:
            return False
        if self.parts > 1 and 16 * self.parts >= self.g.k + 16:
            return False
        shared = (self.shared_bytes + 1024) * each
        if self.shared_bytes > t.shared_bytes_per_block or shared > t.shared_bytes_per_sm:
            return False
        if 32 * self.warps * each > t.threads_per_sm:
            return False
        small = self.loads <= MAX_LOADS and self.reach <= MAX_INDEX
        return small and self.registers <= self.most_registers
