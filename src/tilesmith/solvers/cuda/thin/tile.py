"""The numbers that a config gives for a product with few channels on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.thin.form import ThinForm
from tilesmith.solvers.cuda.thin.reading import Reading, padding
from tilesmith.solvers.solver import Config, Configured, cached_property, steady
from tilesmith.targets.target import CudaTarget

_MAX_HELD = 64  # registers of the filter that a thread may hold
_MAX_SUMS = 128  # registers of a thread's sums of weights
# Of the turns of shared memory, what runs may take. An H100 was faster with 0.31 to 0.91 of them, slower with 0.95 up.
_WORTH = 0.93


@lru_cache(maxsize=256)
def _parts(first: int, second: int) -> tuple[int, int]:
    m, n = -(-first // 16), -(-second // 8)
    for count in (1, 2, 4, 8, 16):
        found = [
            (-(-m // a) * 2 + -(-n // (count // a)), a, count // a)
            for a in (1, 2, 4, 8)
            if count % a == 0 and -(-m // a) * -(-n // (count // a)) * 4 <= _MAX_SUMS
        ]
        if found:
            return min(found)[1:]
    raise ValueError(f"{first} x {second} results are too many")


@lru_cache(maxsize=256)
def _reading(widths: tuple[int, int], tile: tuple[int, int], team: int) -> Reading:
    """By runs where that takes clearly fewer turns."""
    singly, runs = (Reading(widths, tile, team, way) for way in (False, True))
    return runs if runs.turns <= _WORTH * singly.turns else singly


@dataclass(frozen=True)
class ThinTile(Configured):
    """``form`` computed as ``config`` says; see the axes in ``solver``."""

    form: ThinForm
    config: Config
    target: CudaTarget
    varied = frozenset(("blocks_per_sm",))

    @property
    def weights(self) -> bool:
        return self.form.kind == "weights"

    @property
    def warps(self) -> int:
        return self.value["warps"]

    @property
    def slab(self) -> int:
        """Rows that a warp takes at a time."""
        return self.value["stage_rows"]

    @property
    def stages(self) -> int:
        return self.value["stages"]

    @property
    def threads(self) -> int:
        return self.warps * 32

    @steady
    def pads(self) -> tuple[int, int]:
        """Elements between rows in shared memory."""
        form = self.form
        if self.weights:
            return self.reading.pads
        size = dtype(form.out_dtype).nbytes
        return padding(form.first, 2, 32), padding(form.second, size, 8 * size)

    @steady
    def widths(self) -> tuple[int, int]:
        """Bytes of a slab's rows of ``first`` and of ``second``."""
        form = self.form
        size = 2 if self.weights else dtype(form.out_dtype).nbytes
        first, second = (form.first + self.pads[0]) * 2, (form.second + self.pads[1]) * size
        return -(-self.slab * first // 16) * 16, -(-self.slab * second // 16) * 16

    @steady
    def stage_bytes(self) -> int:
        return sum(self.widths) if self.weights else self.widths[0]

    # --- rows ---

    @steady
    def products(self) -> tuple[int, int]:
        """Products of 16 along k, and of 8 columns, of a row."""
        return -(-self.form.first // 16), -(-self.form.second // 8)

    @property
    def held(self) -> bool:
        """Whether every thread keeps its part of the filter in registers."""
        return self.products[0] * self.products[1] * 2 <= _MAX_HELD

    # --- weights ---

    @steady
    def parts(self) -> tuple[int, int]:
        """Parts of the result in rows and columns: one, or one for each of a block's warps."""
        return _parts(self.form.first, self.form.second)

    @property
    def team(self) -> int:
        """Warps that share a slab."""
        return self.parts[0] * self.parts[1]

    @steady
    def tile(self) -> tuple[int, int]:
        """Products of 16 rows, and of 8 columns, of a warp."""
        return -(-self.form.first // (16 * self.parts[0])), -(-self.form.second // (8 * self.parts[1]))

    @steady
    def sums(self) -> int:
        return self.tile[0] * self.tile[1] * 4

    @steady
    def reading(self) -> Reading:
        return _reading((self.form.first, self.form.second), self.tile, self.team)

    # --- both ---

    @property
    def rings(self) -> int:
        """Rings of a block: of each warp, or one."""
        return 1 if self.weights and self.team > 1 else self.warps

    @cached_property
    def blocks(self) -> int:
        slabs = -(-self.form.length // self.slab)
        return max(1, min(self.target.cores * self.value["blocks_per_sm"], -(-slabs // self.rings)))

    @cached_property
    def partial_bytes(self) -> int:
        return self.blocks * self.team * self.sums * 128 if self.weights else 0

    @steady
    def shared_bytes(self) -> int:
        ring = self.rings * self.stages * self.stage_bytes
        if self.weights:  # reads go beyond a row, as far as whole products do
            beyond = 2 * max(16 * self.tile[0] * self.parts[0], 8 * self.tile[1] * self.parts[1])
            return max(ring + beyond, self.warps * self.sums * 128 if self.team == 1 else 0)
        steps, tiles = self.products
        pitch = 16 * steps + 16 * (steps % 2 == 0)
        filter_, biases = tiles * 16 * pitch, -(-tiles * 32 // 128) * 128
        return filter_ + biases + ring + 128 + self.warps * self.widths[1]

    @steady
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        parts = self.slab // 16
        if self.weights:
            return self.sums + self.reading.runs * self.tile[0] * 4 + self.tile[1] * 2 + 44
        steps, tiles = self.products
        held = steps * tiles * 2
        beside = held + max(0, held - 32) if self.held else 24 * (parts + 1)
        return parts * (tiles * 4 + 6) + beside + (44 if tiles <= 8 else 56)

    @cached_property
    def fits(self) -> bool:
        if self.weights and self.team > 1 and self.team != self.warps:
            return False
        return self._has_room

    @property
    def _has_room(self) -> bool:
        """Whether so many blocks have the registers, threads and memory that they need."""
        v, t = self.value, self.target
        if self.registers > min(255, t.registers_per_sm // (self.threads * v["blocks_per_sm"])):
            return False
        if self.threads * v["blocks_per_sm"] > t.threads_per_sm or v["blocks_per_sm"] > t.blocks_per_sm:
            return False
        of_sm = t.shared_bytes_per_sm // v["blocks_per_sm"] - 1024
        return self.shared_bytes <= min(of_sm, t.shared_bytes_per_block)
