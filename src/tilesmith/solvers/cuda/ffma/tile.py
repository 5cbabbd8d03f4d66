"""The resources of a config of the exact fp32 kernel for a problem: tiles, warps, registers, memory, blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.epilogue import IDENTITY
from tilesmith.solvers.cuda.common.dense import Lines, widest
from tilesmith.solvers.cuda.common.tile import BlockTile
from tilesmith.solvers.solver import cached_property, steady

_MAX_GRID = 2**31 - 1
_MOST_SHARED_STEPS = 2**31 - 1  # the kernel counts them in 32 bits
_MAX_WORKSPACE = 2**31
_MAX_WARPS = 8
_MAX_SUMS = 128
_COPY_THREADS = 128  # a warpgroup, where one copies for the others
COPY_REGISTERS = 40  # of each of its threads
_MOST_REGISTERS = 240  # that setmaxnreg gives where that warpgroup is beside two others
_OTHER_REGISTERS = 24  # addresses and counters: what ptxas was seen to manage with
_LEAST_REGISTERS = 96  # with fewer, narrow copies spilled
_THREAD = (4, 8, 12, 16)
_VECTOR = 4  # results that are stored at once from registers
_LANES_M, _LANES_N = 4, 8
SUM_THREADS = 256


@dataclass(frozen=True)
class FfmaTile(BlockTile):
    """A config of the exact fp32 kernel."""

    varied = frozenset(("stages", "split_k", "stream_k"))

    @steady
    def thread_m(self) -> int:
        """Rows of the results of a thread."""
        return self.block_m // (self.value["warps_m"] * _LANES_M)

    @steady
    def thread_n(self) -> int:
        """Columns of the results of a thread."""
        return self.block_n // (self.value["warps_n"] * _LANES_N)

    @steady
    def warps(self) -> int:
        return self.value["warps_m"] * self.value["warps_n"] * self.value["warps_k"]

    @steady
    def producers(self) -> bool:
        """Whether a warpgroup of its own copies the operands."""
        return bool(self.value["producers"])

    @steady
    def threads(self) -> int:
        return self.warps * 32 + _COPY_THREADS * self.producers

    @property
    def stream(self) -> bool:
        return bool(self.value["stream_k"])

    @cached_property
    def partial(self) -> bool:
        """Whether blocks share tiles, whose parts a second kernel adds."""
        return self.stream or self.value["split_k"] > 1

    @steady
    def stage_bytes(self) -> int:
        return sum(self.block_k * (extent + 4 * lines.by_k) * 4 for lines, extent, _ in self._operands)

    @cached_property
    def barriers_at(self) -> int:
        """Where the barriers of the stages lie: behind the ring, and the results that take its place."""
        return max(self.value["stages"] * self.stage_bytes, self._gathered_rows * (self.block_n + 4) * 4)

    @cached_property
    def shared_bytes(self) -> int:
        return self.barriers_at + (16 * self.value["stages"] if self.producers else 0)

    @steady
    def fused(self) -> bool:
        """Whether a result is more than a sum that is scaled."""
        return self.form.beta != 0.0 or self.form.epilogue != IDENTITY

    @steady
    def _gathered_rows(self) -> int:
        """Rows of results that are in shared memory at a time: all of them where warps add their sums there, 16 of each
        warp where a loop finishes them, none where they are stored from registers."""
        if self.value["warps_k"] > 1:
            return self.value["warps_k"] * self.block_m
        return 16 * self.value["warps_m"] if self.fused or self.form.out_vector < _VECTOR else 0

    @steady
    def tiles_m(self) -> int:
        return -(-self.form.rows // self.block_m)

    @steady
    def tiles_n(self) -> int:
        return -(-self.form.cols // self.block_n)

    @steady
    def tiles(self) -> int:
        """Tiles of all layers."""
        return self.tiles_m * self.tiles_n * self.form.layers

    @steady
    def steps(self) -> int:
        """Steps along k of a tile."""
        return -(-self.form.channels // self.block_k)

    @cached_property
    def grid(self) -> int:
        """Blocks: those of one wave with stream-k, else one for each part of each tile."""
        return self.target.cores * self.blocks_per_sm if self.stream else self.tiles * self.value["split_k"]

    @cached_property
    def waves(self) -> int:
        """Whole tiles of each block ahead of those that blocks share.

        Those that are shared are at least half as many as the blocks: few steps of a tile do not pay for its sum.
        """
        if not self.stream:
            return 0
        whole, rest = divmod(self.tiles, self.grid)
        return whole - 1 if whole > 0 and 2 * rest < self.grid else whole

    @cached_property
    def shared_tiles(self) -> int:
        """Tiles that blocks share; without stream-k all of them."""
        return self.tiles - self.waves * self.grid

    @property
    def shared_steps(self) -> int:
        """Steps of the tiles that blocks share."""
        return self.shared_tiles * self.steps

    @cached_property
    def partial_bytes(self) -> int:
        """Workspace of the partial sums."""
        return self.grid * (1 + self.stream) * self.block_m * self.block_n * 4 if self.partial else 0

    @cached_property
    def sum_blocks(self) -> int:
        """Blocks of the kernel that adds partial sums."""
        return self.shared_tiles * -(-self.block_m * self.block_n // 4 // SUM_THREADS)

    @steady
    def copies(self) -> tuple[int, int]:
        """Copy instructions of a thread in a step, for A and for B."""
        a, b = (self._copies(*operand) for operand in self._operands)
        return a, b

    @steady
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        fragments = 2 * (self.thread_m + self.thread_n)
        return max(_LEAST_REGISTERS, self.thread_m * self.thread_n + fragments + _OTHER_REGISTERS)

    @steady
    def min_blocks(self) -> int:
        """How many blocks are asked to share an SM's registers."""
        taken = self.warps * 32 * -(-self.registers // 8) * 8 + _COPY_THREADS * COPY_REGISTERS * self.producers
        return max(1, min(8, self.target.registers_per_sm // taken))

    @steady
    def multiplying_registers(self) -> int:
        """Of a thread that multiplies, where others copy: what those leave of the block's registers."""
        launched = self.target.registers_per_sm // self.min_blocks // self.threads // 8 * 8
        left = (launched * self.threads - _COPY_THREADS * COPY_REGISTERS) // (self.warps * 32)
        return min(_MOST_REGISTERS, left // 8 * 8)

    @cached_property
    def blocks_per_sm(self) -> int:
        """Blocks that share an SM, as memory and registers allow."""
        t = self.target
        by_memory = t.shared_bytes_per_sm // (self.shared_bytes + 1024)
        return max(1, min(self.min_blocks, by_memory, t.threads_per_sm // self.threads))

    @steady
    def exists(self) -> bool:
        """Whether there are such products, in however many stages and parts."""
        v = self.value
        if self.warps > _MAX_WARPS or self.block_m % (v["warps_m"] * 16) or self.block_n % (v["warps_n"] * 32):
            return False
        if self.thread_m not in _THREAD or self.thread_n not in _THREAD or self.thread_m * self.thread_n > _MAX_SUMS:
            return False
        if self.producers and not self._may_produce:
            return False
        if self.block_k % v["warps_k"] or self.block_k // v["warps_k"] % 2 or self.registers > 255:
            return False
        return all(self._shared_evenly(*operand) for operand in self._operands)

    @steady
    def _may_produce(self) -> bool:
        """Whether a warpgroup may copy: beside warpgroups, pieces of 16 bytes where it need not transpose them."""
        if not self.target.has_cluster or self.warps % 4 or self.multiplying_registers < self.registers:
            return False
        return all(lines.by_k or vector == _VECTOR for lines, _, vector in self._operands)

    @cached_property
    def fits(self) -> bool:
        """Whether such a kernel exists."""
        v = self.value
        if not self.exists or self.shared_bytes > self.target.shared_bytes_per_block:
            return False
        if self.stream and (v["split_k"] > 1 or self.tiles % self.grid == 0):
            return False
        if self.stream and not self.grid <= self.shared_steps <= _MOST_SHARED_STEPS:
            return False
        if v["split_k"] > self.steps or max(self.grid, self.sum_blocks) > _MAX_GRID:
            return False
        return self.partial_bytes <= _MAX_WORKSPACE

    @steady
    def vectors(self) -> tuple[int, int]:
        """Floats that move at once, of A and of B: none of them may lie beyond the last row (column)."""
        form = self.form
        a, b = (
            1 if lines.by_k else widest(lines.vector, [extent])
            for lines, extent in ((form.a, form.rows), (form.b, form.cols))
        )
        return a, b

    @steady
    def _operands(self) -> tuple[tuple[Lines, int, int], tuple[Lines, int, int]]:
        """Of A and B: how they lie, the extent of a tile, the floats that move at once."""
        a, b = self.vectors
        return (self.form.a, self.block_m, a), (self.form.b, self.block_n, b)

    def _workers(self, lines: Lines) -> int:
        """Warps, or threads, that share the copies of an operand."""
        threads = _COPY_THREADS if self.producers else self.threads
        return threads // 32 if lines.by_k else threads

    def _across(self, lines: Lines, extent: int, vector: int) -> int:
        """What a worker copies at once, in a line of the tile."""
        return extent // (4 if lines.by_k else vector)

    def _copies(self, lines: Lines, extent: int, vector: int) -> int:
        work = self._across(lines, extent, vector) * self.block_k // (8 if lines.by_k else 1)
        return -(-work // self._workers(lines))

    def _shared_evenly(self, lines: Lines, extent: int, vector: int) -> bool:
        """Whether each worker copies at the same places of every line."""
        across, workers = self._across(lines, extent, vector), self._workers(lines)
        whole = 1 << (across - 1).bit_length()
        return across % workers == 0 or whole % workers == 0 or workers % whole == 0
