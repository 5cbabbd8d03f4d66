"""The resources of a config for groups of rows: tiles, stages, memory, blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilesmith.plan.records import Pointer
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX, slot
from tilesmith.solvers.cuda.common.form import Mapped, aligned, steps_along, stores_whole
from tilesmith.solvers.cuda.common.tile import WarpgroupTile, most_sums
from tilesmith.solvers.solver import Config, Rejected, cached_property
from tilesmith.targets.target import CudaTarget

MAX_GROUPS = 1024  # their rows and tiles stand in shared memory
_BARRIERS = 512
_MAX_STAGES = 24
BLOCK_K = 64


@dataclass(frozen=True)
class GroupsForm:
    """``a`` has k x rows, ``b`` k x columns x groups (columns first if they are contiguous), the contiguous axis first.

    ``result`` is what a tensor map can store, None if none can.
    """

    g: GemmGeometry
    a: Mapped
    b: Mapped
    by_columns: bool
    result: Mapped | None
    ends: Pointer
    out: Pointer


@lru_cache(maxsize=256)
def groups_form(g: GemmGeometry) -> GroupsForm | Rejected:
    """The problem as the kernel sees it, or why it cannot."""
    if g.a.dtype not in HALVES or (g.b.dtype, g.c.dtype, g.acc_dtype) != (g.a.dtype, g.a.dtype, "fp32"):
        types = f"{g.a.dtype} x {g.b.dtype} -> {g.c.dtype}, accumulated in {g.acc_dtype}"
        return Rejected(reasons.DTYPE, types)
    if g.groups > MAX_GROUPS:
        return Rejected(reasons.GROUPS, f"{g.groups} groups, {MAX_GROUPS} at most")
    if max(g.m, g.n, g.k) > MAX_INDEX or (g.m // 8 + g.groups + 1) * (g.n // 64 + 1) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    (a_row,) = steps_along((g.m,), (g.a.strides[1],))
    by_columns = g.b.strides[2] == 1
    inner, outer, line = (g.n, g.k, g.b.strides[1]) if by_columns else (g.k, g.n, g.b.strides[2])
    b_steps = steps_along((outer, g.groups), (line, g.b.strides[0]))
    for name, steps in (("a", (a_row,)), ("b", b_steps)):
        if not aligned(*steps):
            return Rejected(reasons.LAYOUT, f"rows of {name} are no multiples of 16 bytes")
    a = Mapped(slot(0), (g.k, g.m, 1), (a_row, 8))
    b = Mapped(slot(1), (inner, outer, g.groups), b_steps)
    (c_row,) = steps_along((g.m,), (g.c.strides[1],))
    result = Mapped(slot(3), (g.n, g.m, 1), (c_row, 8)) if aligned(c_row) and stores_whole(g.n) else None
    return GroupsForm(g, a, b, by_columns, result, slot(2), slot(3))


@dataclass(frozen=True)
class GroupsTile(WarpgroupTile):
    """``form`` computed as ``config`` says; see the axes in ``solver``."""

    form: GroupsForm
    config: Config
    target: CudaTarget

    @property
    def block_rows(self) -> int:
        return self.value["block_m"]

    @cached_property
    def block_columns(self) -> int:
        return 64 * self.value["products_n"] * (1 if self.pingpong else self.warpgroups)

    @cached_property
    def chunk(self) -> int:
        """Rows of results that pass through shared memory at once."""
        return max(rows for rows in range(8, 65, 8) if self.block_rows % rows == 0)

    @property
    def block_k(self) -> int:
        return BLOCK_K

    @property
    def sums(self) -> int:
        return self.value["products_n"] * self.block_rows // 2

    @cached_property
    def stage_bytes(self) -> int:
        return (self.block_rows + self.block_columns) * BLOCK_K * 2

    @cached_property
    def _beside_ring(self) -> int:
        return self.warpgroups * 2 * self.chunk * 128 + _BARRIERS

    @cached_property
    def table_bytes(self) -> int:
        """The rows and tiles of the groups."""
        return 8 * (self.form.g.groups + 1)

    @cached_property
    def stages(self) -> int:
        """All stages that fit: blocks read ahead over the ends of tiles."""
        room = self.target.shared_bytes_per_block - self._beside_ring - self.table_bytes
        return min(room // self.stage_bytes, _MAX_STAGES)

    @cached_property
    def fixed_bytes(self) -> int:
        """Shared memory without the table."""
        return self.stages * self.stage_bytes + self._beside_ring

    @cached_property
    def steps(self) -> int:
        return -(-self.form.g.k // BLOCK_K)

    @cached_property
    def tiles_n(self) -> int:
        return -(-self.form.g.n // self.block_columns)

    @cached_property
    def most_tiles(self) -> int:
        """Tiles of the most unfavourable groups: each but the first may begin one."""
        g = self.form.g
        return (-(-g.m // self.block_rows) + min(g.groups, g.m) - 1) * self.tiles_n

    @cached_property
    def grid(self) -> int:
        return min(self.most_tiles, self.target.cores)

    @cached_property
    def read_once(self) -> bool:
        """Whether most of b is read for one tile of rows: it is then the first to leave L2."""
        return self.form.g.m <= self.form.g.groups * self.block_rows

    @cached_property
    def fits(self) -> bool:
        """Whether such a kernel exists."""
        if self.pingpong and self.warpgroups != 2:
            return False
        return self.sums <= most_sums(self.warpgroups, 1) and self.block_columns <= 256 and self.stages >= 2
