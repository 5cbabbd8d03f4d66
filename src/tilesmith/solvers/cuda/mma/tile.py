"""The resources of a config of the portable kernel for a problem: tiles, warps, stages, memory, blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.solvers.cuda.common.dense import BYTES, Lines
from tilesmith.solvers.cuda.common.tile import BlockTile
from tilesmith.solvers.solver import cached_property, steady

_MASK_TAPS = 32  # taps of a phase up to which a register says which of them lie in the image
MAX_STAGES = 5
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_MAX_GRID = 2**31 - 1
_MAX_WORKSPACE = 2**31


@dataclass(frozen=True)
class MmaTile(BlockTile):
    """A config of the portable kernel."""

    varied = frozenset(("stages", "split_k", "group_m"))

    @steady
    def warp_m(self) -> int:
        return self.block_m // self.value["warps_m"]

    @steady
    def warp_n(self) -> int:
        return self.block_n // self.value["warps_n"]

    @steady
    def warps(self) -> int:
        return self.value["warps_m"] * self.value["warps_n"]

    @steady
    def threads(self) -> int:
        return self.warps * 32

    @cached_property
    def split(self) -> int:
        return self.value["split_k"]

    @property
    def exact(self) -> bool:
        return self.form.exact

    @steady
    def widened(self) -> bool:
        """Whether fp8 is multiplied in fp16."""
        return self.form.dtype in BYTES

    @property
    def element_bytes(self) -> int:
        return self.form.element_bytes

    @steady
    def compares(self) -> bool:
        """Whether each load compares positions; else a register holds a bit for each tap."""
        form = self.form
        return form.kind in ("fwd", "bwd") and form.length // form.padded > _MASK_TAPS

    @steady
    def stage_bytes(self) -> int:
        return (self.block_m + self.block_n) * self.block_k * self.element_bytes

    @cached_property
    def table_offset(self) -> int:
        """Where the ring, which later holds sums on their way out, ends."""
        return max(self.value["stages"] * self.stage_bytes, self._staged_bytes)

    @steady
    def _staged_bytes(self) -> int:
        return 0 if self.exact else self.warps * 16 * (self.warp_n + 8) * 4

    @cached_property
    def shared_bytes(self) -> int:
        return self.table_offset + (5 * self.form.taps + self.block_m) * 4

    @steady
    def tiles_m(self) -> int:
        return -(-self.form.rows // self.block_m)

    @steady
    def tiles_n(self) -> int:
        return -(-self.form.columns // self.block_n)

    @steady
    def steps(self) -> int:
        """Steps along k of the longest phase, before they are split."""
        return max(1, -(-self.form.length // self.block_k))

    @steady
    def splits(self) -> tuple[int, ...]:
        """The parts that are worth it: splitting serves to fill the machine, no more."""
        most = min(self.steps, 6 * self.target.cores // self.tiles)
        return tuple(n for n in SPLITS if n <= max(1, most))

    @cached_property
    def grid(self) -> int:
        return self.tiles * self.split

    @steady
    def tiles(self) -> int:
        return self.tiles_m * self.tiles_n * self.form.layers

    @steady
    def pitch(self) -> int:
        """Columns of a row of partial sums."""
        return -(-self.form.columns // 4) * 4

    @steady
    def sum_bytes(self) -> int:
        """Workspace of a part of the sums."""
        return self.form.layers * self.form.rows * self.pitch * 4

    @cached_property
    def partial_bytes(self) -> int:
        """Workspace of the partial sums."""
        return self.split * self.sum_bytes if self.split > 1 else 0

    @steady
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        warp_m, warp_n = self.warp_m, self.warp_n
        held = sum(
            self._load_registers(*operand) for operand in ((self.form.a, self.block_m), (self.form.b, self.block_n))
        )
        sums = warp_m * warp_n // 32
        fragments = warp_m // 4 * 4 + warp_n // 8 * 4 if self.exact else (warp_m // 16 * 4 + warp_n // 8 * 2) * 2
        if self.widened:  # fp16 of one half of a step
            fragments += warp_m // 16 * 4 + warp_n // 8 * 2
        if self.element_bytes == 1:  # what is put in order by bytes
            held += 8 * (not self.form.a.by_k) + 8 * (not self.form.b.by_k)
        if self.element_bytes == 4 and not self.exact:  # addresses of single words
            held += 8 * (not self.form.a.by_k) + 8 * (not self.form.b.by_k)
        if self.form.kind == "wrw":  # places of a chunk's parts
            held += 3 * (16 // self.element_bytes // self.form.b.vector - 1)
        return sums + fragments + held + 56 + self._pixel_registers

    def _load_registers(self, operand: Lines, extent: int) -> int:
        """Of loads that are narrower than a chunk; those without asynchronous copies are held, several to a word."""
        size = operand.vector * self.element_bytes
        if size == 16:
            return 0
        words = -(-extent * self.block_k * self.element_bytes // 16 // self.threads) * 4
        return 4 if size >= 4 else words * 6 if size == 1 else words + 4

    @steady
    def _pixel_registers(self) -> int:
        lines = -(-self.block_m * self.block_k * self.element_bytes // 16 // self.threads)
        return lines * (4 if self.compares else 2)

    @steady
    def min_blocks(self) -> int:
        """How many blocks are asked to share an SM's registers; more than two was never worth spilling for."""
        return 2 if self.threads <= 256 and self.registers <= 120 * 256 // max(self.threads, 128) else 1

    @cached_property
    def blocks_per_sm(self) -> int:
        """Blocks that share an SM, as memory and (estimated) registers allow."""
        t = self.target
        by_memory = t.shared_bytes_per_sm // (self.shared_bytes + 1024)
        return max(1, min(self._most_blocks, by_memory))

    @steady
    def _most_blocks(self) -> int:
        """Blocks for which an SM has the registers and threads."""
        t = self.target
        by_registers = t.registers_per_sm // (self.threads * min(255, self.registers))
        return min(by_registers, t.threads_per_sm // self.threads, t.blocks_per_sm)

    @steady
    def _exists(self) -> bool:
        """Whether there are such products, in however many stages and parts."""
        v, form = self.value, self.form
        warp_m, warp_n = self.warp_m, self.warp_n
        if self.block_m % v["warps_m"] or self.block_n % v["warps_n"] or self.warps > 8:
            return False
        least_n = 32 if self.exact and not form.b.by_k else 8 if self.exact else 16
        if warp_m % 16 or warp_n % least_n or not warp_m or not warp_n:
            return False
        chunk = 16 // self.element_bytes
        for operand, extent in ((form.a, self.block_m), (form.b, self.block_n)):
            chunks = (self.block_k if operand.by_k else extent) // chunk
            if chunks > self.threads or self.threads % chunks or extent % chunk:
                return False
        return self.registers <= 270 and form.layers * form.rows < _MAX_GRID

    @cached_property
    def fits(self) -> bool:
        """Whether such a kernel exists."""
        if not self._exists or self.shared_bytes > self.target.shared_bytes_per_block:
            return False
        return self.split <= self.steps and self.grid <= _MAX_GRID and self.partial_bytes <= _MAX_WORKSPACE
