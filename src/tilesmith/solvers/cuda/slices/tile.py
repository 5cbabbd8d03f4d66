"""Applies a config of the slices kernel to a problem: units of 64 rows, columns, shared memory, registers, blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import Triple
from tilesmith.solvers.cuda.phases.form import PhasesForm
from tilesmith.solvers.cuda.slices.form import slices_form
from tilesmith.solvers.solver import Config, Configured, cached_property, steady
from tilesmith.targets.target import CudaTarget

_ROWS = 64  # of a unit: a product of a warpgroup
_MOST_COLUMNS = 256  # of a product
_MOST_SUMS = 160  # registers of a thread's sums
_MOST_REGISTERS = 232
_OTHER_REGISTERS = 64
_MOVING_REGISTERS = 96
_MOST_LINES = 40  # of a warpgroup's window, whose products are unrolled
_MOST_GRID = 2**31 - 1


@dataclass(frozen=True)
class SlicesTile(Configured):
    """``base`` computed as ``config`` says; see the axes in ``solver``."""

    base: PhasesForm
    config: Config
    target: CudaTarget
    varied = frozenset(("strips", "stages", "blocks_per_sm"))

    @steady
    def form(self) -> PhasesForm:
        """Axes as the kernel has them: it goes along the first one."""
        return slices_form(self.base, self.value["streamed"]).phases

    @steady
    def lead(self) -> Triple:
        """Taps ahead of the filter that do not exist."""
        return slices_form(self.base, self.value["streamed"]).lead

    # --- products ---

    @steady
    def each(self) -> int:
        """Columns of a tap along the first axis of each of the four lanes that share a row."""
        d, h, w = self.form.stride
        return -(-d * h * w * self.form.cols // 4)

    @steady
    def block_n(self) -> int:
        """Columns of one tap along the second axis."""
        return -(-self.form.taps[0] * self.each // 2) * 8

    @steady
    def tile_w(self) -> int:
        """Positions of a line: those that leave few rows of a unit empty, and few lines of it to read."""
        base, taps = self.form.base[2], self.form.taps

        def cost(wide: int) -> float:
            lines = self._lines_of(wide)
            reads = 16 * lines + taps[1] * self.block_n / 4
            return -(-base // wide) / lines * max(reads, taps[1] * self.block_n / 2) * (1 + 0.1 * (taps[2] - 1) / wide)

        least = -(-base // _ROWS)
        return min((-(-base // parts) for parts in range(least, least + 8)), key=cost)

    def _lines_of(self, wide: int) -> int:
        return min(_ROWS // wide, self.form.base[1], self.form.taps[1])

    @steady
    def lines(self) -> int:
        """Lines of positions of a unit."""
        return self._lines_of(self.tile_w)

    @steady
    def tile_h(self) -> int:
        return self.value["units"] * self.lines

    @steady
    def most_units(self) -> int:
        """Units of a warpgroup."""
        return -(-self.value["units"] // self.value["warpgroups"])

    @steady
    def lines_read(self) -> int:
        """Lines of 64 rows that all warpgroups read in a step of 16 products."""
        groups = self.value["warpgroups"]
        return (self.value["units"] - groups) * self.lines + groups * self.form.taps[1]

    @property
    def block_c(self) -> int:
        return self.value["block_c"]

    @steady
    def chunks(self) -> int:
        """Blocks of channels."""
        return -(-self.form.channels // self.block_c)

    @steady
    def steps(self) -> int:
        """Steps of 16 products of a line and a block of channels."""
        return self.form.taps[2] * self.block_c // 16

    @steady
    def threads(self) -> int:
        return self.value["warpgroups"] * 128 + 128  # of which the last ones move windows and results

    # --- memory ---

    @steady
    def window(self) -> tuple[int, int]:
        return self.tile_h + self.form.taps[1] - 1, self.tile_w + self.form.taps[2] - 1

    @steady
    def stage_bytes(self) -> int:
        apart = max(1, 64 // self.block_c)  # as the kernel's PLANE
        plane = -(-(prod(self.window) - apart) // 8) * 8 + apart
        return -(-plane * self.block_c * 2 // 128) * 128

    @steady
    def filter_bytes(self) -> int:
        return self.chunks * self.steps * self.form.taps[1] * self.block_n * 32

    @steady
    def staged_size(self) -> int:
        """Bytes of a staged result: sums are not rounded where something is added to them."""
        return 4 if self.form.epilogue.residual else dtype(self.form.out_dtype).nbytes

    @steady
    def staged_pitch(self) -> int:
        """Elements between staged rows of results."""
        return -(-self.tile_w * self.form.row_columns // 8) * 8

    @cached_property
    def shared_bytes(self) -> int:
        form = self.form
        rows = self.tile_h * form.stride[0] * form.stride[1]
        return (
            self.value["stages"] * self.stage_bytes + self.filter_bytes
            + rows * self.staged_pitch * self.staged_size
        )  # fmt: skip

    @steady
    def out_vector(self) -> int:
        """Results that a thread stores at once."""
        form = self.form
        return form.out_vector(self.tile_w * form.row_columns if form.dense_rows else form.row_columns)

    @steady
    def copies(self) -> int:
        """Copies of a thread to a window."""
        pieces = prod(self.window) * self.block_c
        return -(-pieces // (128 * (8 if self.form.in_vector == 1 else self.form.in_vector)))

    @steady
    def most_places(self) -> int:
        """Copies of a thread whose places it keeps in registers; single elements pass through registers themselves."""
        return 24 if self.form.in_vector > 1 else 0

    @steady
    def registers(self) -> int:
        """An estimate of a thread's registers: of those that multiply, and of those that move windows."""
        places = self.copies if self.copies <= self.most_places else 0
        return max(self.most_units * self.block_n // 2 + _OTHER_REGISTERS, _MOVING_REGISTERS + places)

    # --- blocks ---

    @cached_property
    def strip(self) -> int:
        """Slices of positions that a block goes through."""
        return -(-self.form.base[0] // self.value["strips"])

    @cached_property
    def tiles_of(self) -> Triple:
        """Tiles along each axis."""
        _, h, w = self.form.base
        return self.value["strips"], -(-h // self.tile_h), -(-w // self.tile_w)

    @cached_property
    def tiles(self) -> int:
        d, h, w = self.tiles_of
        return self.form.outer * d * h * w

    @cached_property
    def grid(self) -> int:
        return min(self.tiles, self.target.cores * self.value["blocks_per_sm"])

    @cached_property
    def slices(self) -> int:
        """Slices of the input that a tile reads, most of all."""
        form, first = self.form, self.form.first[0]
        end, most = first + form.base[0], 0
        for begin in range(first, end, self.strip):
            from_, to = begin - form.taps[0] + 1, min(begin + self.strip, end)
            most = max(most, to - from_ if form.turned else min(to, form.size[0]) - max(from_, 0))
        return most

    @steady
    def exists(self) -> bool:
        """Whether there are such products, however many blocks, stages and strips there are."""
        v, form = self.value, self.form
        if v["units"] < v["warpgroups"] or (v["units"] - 1) * self.lines >= form.base[1]:
            return False
        if self.block_c > -(-form.channels // 16) * 16 or self.most_units * self.block_n // 2 > _MOST_SUMS:
            return False
        if (self.most_units - 1) * self.lines + form.taps[1] > _MOST_LINES:
            return False
        return self.block_n <= _MOST_COLUMNS

    @cached_property
    def fits(self) -> bool:
        """Whether such a kernel exists."""
        if not self.exists or self.strip * (self.value["strips"] - 1) >= self.form.base[0]:
            return False
        target, blocks = self.target, self.value["blocks_per_sm"]
        if self.registers > min(_MOST_REGISTERS, target.registers_per_sm // (self.threads * blocks) - 8):
            return False
        if self.shared_bytes > min(target.shared_bytes_per_sm // blocks - 1024, target.shared_bytes_per_block):
            return False
        return self.threads * blocks <= target.threads_per_sm and self.tiles < _MOST_GRID
