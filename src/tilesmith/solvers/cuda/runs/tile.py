"""The numbers that configs of both kernels give for a problem: tiles, memory, registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.common.dense import widest
from tilesmith.solvers.cuda.runs.form import RunsForm
from tilesmith.solvers.solver import Config, Configured, cached_property, steady
from tilesmith.targets.target import CudaTarget

FILTER_PARTS = 4  # of the ring of the filter's parts, with bulk copies
_PART_BYTES = (12288, 6144)  # of a part: the larger one where the ring fits, and less for several sixteens of a run
_BARRIERS = 16  # bytes of two


def _lines(nbytes: int) -> int:
    return ceil(nbytes / 128) * 128


@dataclass(frozen=True)
class _Tile(Configured):
    """``form`` computed as ``config`` says, with ``warps`` and ``tile_w`` results of a row."""

    form: RunsForm
    config: Config
    target: CudaTarget
    varied = frozenset(("blocks_per_sm",))

    @steady
    def products_n(self) -> int:
        return self.value["block_n"] // 8

    @steady
    def blocks_n(self) -> int:
        return ceil(self.form.g.k / self.value["block_n"])

    @steady
    def chunks(self) -> int:
        """Copies of a row."""
        span = (self.value["tile_w"] - 1) * self.form.step + 16 * self.form.k_steps
        return ceil(2 * span / self.form.copy)

    @steady
    def row_bytes(self) -> int:
        return ceil(self.chunks * self.form.copy / 16) * 16

    @steady
    def whole_pieces(self) -> bool:
        """Whether rows may come by bulk copies: their pieces of 16 bytes are whole."""
        return self.target.has_cluster and self.form.copy == 16 and self.form.row % 8 == 0

    @steady
    def tiles_w(self) -> int:
        return ceil(self.form.g.output[2] / self.value["tile_w"])

    @steady
    def images(self) -> int:
        return self.form.g.n * self.form.g.output[0]

    def holds(self, shared: int) -> bool:
        """Whether the blocks of an SM may have so much shared memory each."""
        t = self.target
        whole = (shared + 1024) * self.value["blocks_per_sm"]
        return shared <= t.shared_bytes_per_block and whole <= t.shared_bytes_per_sm

    def fits_sm(self, warps: int, shared: int, registers: int) -> bool:
        """Whether so many blocks share an SM."""
        t, each = self.target, self.value["blocks_per_sm"]
        if not 1 <= warps <= 16 or not self.holds(shared):
            return False
        most = min(255, t.registers_per_sm // (ceil(warps * each / 4) * 128) // 8 * 8)
        return 32 * warps * each <= t.threads_per_sm and registers <= most


@dataclass(frozen=True)
class RunsTile(_Tile):
    """Forward: a warp has ``rows`` rows of ``parts`` times 16 results, and every ``warps_k``-th sixteen of a run."""

    @steady
    def grid_of_warps(self) -> tuple[int, int]:
        """Warps along the rows and columns of a tile."""
        v = self.value
        return v["tile_h"] // v["rows"], v["tile_w"] // (16 * v["parts"])

    @steady
    def warps(self) -> int:
        h, w = self.grid_of_warps
        return h * w * self.value["warps_k"]

    @steady
    def rows_bytes(self) -> int:
        """Of the rows of a stage."""
        return (self.value["tile_h"] + self.form.taps - 1) * self.row_bytes

    @steady
    def sum_bytes(self) -> int:
        """Of a tile's sums, which lie behind the stages, or with bulk copies in the last one's place."""
        return self.value["tile_h"] * self.value["tile_w"] * self.staged_pitch * 4

    @cached_property
    def part_k(self) -> int:
        """Sixteens of a run that a part of the filter has, which comes by one bulk copy."""
        large, small = (self._part_of(nbytes) for nbytes in _PART_BYTES)
        return large if self.holds(self._bulk_bytes(large)) else small

    def _part_of(self, nbytes: int) -> int:
        each, sharers = self.quads * 512, self.value["warps_k"]
        return sharers * max(1, min(ceil(self.form.k_steps / sharers), nbytes // (each * sharers)))

    @steady
    def _bulk_stage(self) -> int:
        return _lines(max(self.rows_bytes, self.sum_bytes) + _BARRIERS)

    def _bulk_bytes(self, part_k: int) -> int:
        parts = FILTER_PARTS * (part_k * self.quads * 512 + _BARRIERS)
        return self.value["stages"] * self._bulk_stage + _lines(parts)

    @cached_property
    def bulk(self) -> bool:
        """Whether rows and the filter come by bulk copies: where pieces are whole, and a ring of the filter fits."""
        return self.whole_pieces and self.holds(self._bulk_bytes(self.part_k))

    @cached_property
    def stage_bytes(self) -> int:
        return self._bulk_stage if self.bulk else _lines(self.rows_bytes)

    @steady
    def staged_pitch(self) -> int:
        """Sums from pixel to pixel: four rows of pairs lie in different banks."""
        n = self.value["block_n"]
        return n if n % 16 else n + 8

    @cached_property
    def shared_bytes(self) -> int:
        return self._bulk_bytes(self.part_k) if self.bulk else self.value["stages"] * self.stage_bytes + self.sum_bytes

    @steady
    def quads(self) -> int:
        """Sixteens of bytes of the filter that a lane takes for 16 elements of a run."""
        return ceil(self.form.taps * self.products_n / 2)

    @steady
    def packed_quads(self) -> int:
        return self.blocks_n * self.form.steps * self.form.k_steps * self.quads * 32

    @steady
    def tiles_h(self) -> int:
        return ceil(self.form.g.output[1] / self.value["tile_h"])

    @steady
    def tiles(self) -> int:
        return self.images * self.tiles_h * self.tiles_w

    @cached_property
    def blocks(self) -> int:
        """Blocks of the launch, which take tiles in turn."""
        each = max(1, self.target.cores * self.value["blocks_per_sm"] // self.blocks_n)
        return self.blocks_n * min(each, self.tiles)

    @steady
    def out_vector(self) -> int:
        """Results that a thread stores at once."""
        view = self.form.g.y
        steps = [s for axis, (s, n) in enumerate(zip(view.strides, view.shape, strict=True)) if n > 1 and axis != 1]
        return widest(min(8, 16 // dtype(view.dtype).nbytes), [view.shape[1], *steps])

    @steady
    def sums(self) -> int:
        """Registers of sums of a thread."""
        return self.value["rows"] * self.value["parts"] * self.products_n * 4

    @cached_property
    def fits(self) -> bool:
        v = self.value
        if v["tile_h"] % v["rows"] or v["tile_w"] % (16 * v["parts"]) or v["warps_k"] > self.form.k_steps:
            return False
        if v["block_n"] >= self.form.g.k + 8 or self.sums > 128:
            return False
        return self.fits_sm(self.warps, self.shared_bytes, self.sums + 8 * self.quads + 56)


@dataclass(frozen=True)
class RunsWeightsTile(_Tile):
    """Backward weights: a warp has every ``warps_e``-th sixteen of the elements of a run, in one phase."""

    @property
    def bulk(self) -> bool:
        """Whether rows come by bulk copies."""
        return self.whole_pieces

    @steady
    def warps(self) -> int:
        return self.value["warps_a"] * self.value["warps_e"]

    @steady
    def tiles_m(self) -> int:
        """Sixteens of a run that a warp has."""
        return ceil(self.form.k_steps / self.value["warps_e"])

    @steady
    def dy_bytes(self) -> int:
        """Of a row of dy, as products take it."""
        return self.value["tile_w"] * self.value["block_n"] * 2

    @steady
    def dy_words(self) -> int:
        """Of all rows of dy, as products take them."""
        rows = self.images * self.form.g.output[1] * self.tiles_w
        return rows * self.blocks_n * self.dy_bytes // 4

    @property
    def workspace_bytes(self) -> int:
        return self.partial_bytes + 4 * self.dy_words

    @steady
    def stage_bytes(self) -> int:
        operands = self.value["warps_a"] * self.row_bytes + self.form.taps * self.dy_bytes
        return _lines(operands + (_BARRIERS if self.bulk else 0))

    @steady
    def shared_bytes(self) -> int:
        return self.value["stages"] * self.stage_bytes

    @steady
    def groups(self) -> int:
        """Blocks that share neither phases nor channels of dy."""
        return ceil(self.form.steps / self.value["warps_a"]) * self.blocks_n

    @steady
    def bands(self) -> int:
        """Rows of a phase."""
        return self.form.g.output[1] + self.form.taps - 1

    @steady
    def items(self) -> int:
        return self.images * self.bands * self.tiles_w

    @cached_property
    def slices(self) -> int:
        """Blocks that share the rows of a group."""
        return min(self.items, max(1, self.target.cores * self.value["blocks_per_sm"] // self.groups))

    @steady
    def sums(self) -> int:
        """Registers of sums of a thread."""
        return self.form.taps * self.tiles_m * self.products_n * 4

    @cached_property
    def partial_bytes(self) -> int:
        return self.slices * self.groups * self.warps * self.sums * 128

    @steady
    def ragged(self) -> bool:
        return self.form.g.output[2] % 16 != 0

    @cached_property
    def fits(self) -> bool:
        v = self.value
        if v["warps_e"] > self.form.k_steps or v["warps_a"] > self.form.steps:
            return False
        if v["block_n"] >= self.form.g.k + 8 or self.sums > 160:
            return False
        registers = self.sums + 2 * self.form.taps * self.products_n + 60
        return self.fits_sm(self.warps, self.shared_bytes, registers)
