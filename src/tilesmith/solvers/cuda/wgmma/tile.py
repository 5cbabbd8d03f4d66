"""The resources of a config of the sm_90a kernel for a problem: tiles, stages, memory, blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.codegen.cuda.activation import LONG, SHORT
from tilesmith.codegen.cuda.hopper import product_widths
from tilesmith.solvers.cuda.common.form import Sm90Form, Tiled
from tilesmith.solvers.cuda.common.planes import leaves_out, multiplies_padding
from tilesmith.solvers.cuda.common.tile import WarpgroupTile, most_sums
from tilesmith.solvers.solver import Config, cached_property, steady
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_BARRIERS = 512
# NOTE: where the next kernel begins after a block's last copies, calls in a row gain 3 % after short sums and 2 % after
# longer ones (on an H100); long sums of tiles of 64 x 128 lost, up to 8 %.
SHORT_SUMS, NARROW = 1280, 45
MAX_STAGES = 24
# Blocks of a cluster below and beside one another, by `cluster_m`: two digits, but for the first three.
CLUSTERS = {1: (1, 1), 2: (2, 1), 4: (2, 2), 24: (2, 4), 41: (4, 1), 42: (4, 2)}
# NOTE: all that blocks have under way together should not be too much for L2: with steps of 64, 144 KB on an SM were
# 2-12 % faster than 216 KB on an H200 (128 x 4096 x 14336, 64 x 11008 x 4096, 384 x 128 x 147456), and 96 KB 4-20 %
# slower. Deeper steps are few, and two are always held: there, and for few rows of k-major operands, all that fit is
# up to 8 % faster (1 and 16 x 4096 x 4096).
_STREAM_BYTES = 163840
# Rows of up to so many columns leave from registers: two stores for each 8 columns of 16 rows, where a walk over the
# rows takes a hundred instructions, however short they are (64 to 3 channels of 16x256x256 on an H200: 34.6 us, and
# 81.6).
FEW_COLUMNS = 16
APART_BYTES = 16384  # up to which a cluster's sums have memory of their own, beside the ring


def streams(form: Sm90Form, target: CudaTarget) -> bool:
    """Whether reading and writing each element once takes a GEMM longer than its products do."""
    return form.kind == "gemm" and form.intensity * target.bytes_per_s < peak_flops(form, target) / 1.3


def peak_flops(form: Sm90Form, target: CudaTarget) -> float:
    """Operations a second of the tensor cores."""
    if form.dtype == "tf32":
        return target.tf32_flops
    if form.dtype == "int8":
        return target.int8_flops
    return target.fp8_flops if form.nbytes == 1 else target.bf16_flops


@dataclass(frozen=True)
class Sm90Tile(WarpgroupTile):
    """``form`` computed as ``config`` says; see the axes in ``space``."""

    form: Sm90Form
    config: Config
    target: CudaTarget
    varied = frozenset(("block_n", "stages", "cluster_k", "split_k", "mix_layers", "resident", "cluster_m"))

    @steady
    def streams(self) -> bool:
        return streams(self.form, self.target)

    @steady
    def mean_steps(self) -> float:
        """Steps along k of a tile, of the mean layer."""
        return sum(self.layer_steps) / len(self.layer_steps)

    @steady
    def block_m(self) -> int:
        return 64 * self.value["products_m"] * (1 if self.pingpong else self.warpgroups)

    @cached_property
    def block_n(self) -> int:
        return self.value["block_n"]

    @steady
    def span(self) -> int:
        """Bytes of a step along k of one row."""
        return self.block_k * self.form.nbytes

    @cached_property
    def product_n(self) -> int:
        """Columns of an instruction: of sums that are promoted, half of many."""
        return self.block_n // 2 if self.form.promoted and self.block_n > 128 else self.block_n

    @steady
    def chunk(self) -> int:
        """Columns of results that pass through shared memory at once."""
        return 128 // self.form.out_nbytes

    @steady
    def a_read(self) -> int:
        """Rows that a step copies: of a matrix with fewer than a tile, those that exist (64 at a time by columns)."""
        return self.block_m if self.form.kind != "gemm" or self.form.a_columns else min(self.block_m, self.form.rows)

    @steady
    def a_rows(self) -> int:
        """Rows that a stage has room for: swizzled eight at a time."""
        return -(-self.a_read // 8) * 8

    @cached_property
    def b_cols(self) -> int:
        """Columns that a stage has room for: those that are contiguous come in whole slabs."""
        slab = self.value["slab_n"] if self.form.b_columns else 1
        return -(-self.block_n // slab) * slab

    @cached_property
    def b_read(self) -> int:
        """Columns that a step copies, by all blocks of a cluster together."""
        if self.form.b_columns:
            return self.b_cols
        few = self.form.kind == "gemm" and self.value["cluster_m"] == 1
        return min(self.block_n, self.form.cols) if few else self.block_n

    @cached_property
    def cast(self) -> int:
        """Blocks of a cluster that share operands."""
        return self.cast_m * self.cast_n

    @cached_property
    def cast_m(self) -> int:
        """Blocks below one another, which share their columns."""
        return CLUSTERS[self.value["cluster_m"]][0]

    @cached_property
    def cast_n(self) -> int:
        """Blocks beside one another, which share their rows."""
        return CLUSTERS[self.value["cluster_m"]][1]

    @cached_property
    def in_turns(self) -> tuple[bool, bool]:
        """Whether the blocks that share rows, and columns, bring all of them in turns: parts would not be whole.

        Swizzles repeat every eight rows, and contiguous rows or columns come in slabs.
        """
        of_a = self.block_m * self.form.nbytes // 128 if self.form.a_columns else self.block_m // 8
        of_b = self.b_cols // self.value["slab_n"] if self.form.b_columns else self.block_n // 8
        return of_a % self.cast_n != 0, of_b % self.cast_m != 0

    @cached_property
    def beyond_ring(self) -> int:
        """Bytes that products of rows without room read behind the last stage."""
        part = min(self.span, 128)
        read = self.a_rows * (self.span - part) + self.block_m * part
        return max(0, read - self.stage_bytes)

    @cached_property
    def stages(self) -> int:
        """Stages of the ring; a config's 0 stands for as many as are worth it, ``MAX_STAGES`` for all that fit."""
        if 0 < self.value["stages"] < MAX_STAGES:
            return self.value["stages"]
        fixed = self._staging_bytes + self._kept_bytes + self.bias_bytes + self.beyond_ring + _BARRIERS + 512
        room = self._shared_limit - fixed
        if not self.value["stages"] and self.streams:
            room = min(room, _STREAM_BYTES // self.value["blocks_per_sm"])
        # A block that has several tiles reads ahead of the one that it computes.
        alone = self.tiles * self.value["cluster_k"] * self.cast <= self.slots
        each = self.stage_bytes + self._factor_bytes
        return min(room // each, MAX_STAGES, max(2, *self.layer_steps) if alone else MAX_STAGES)

    @cached_property
    def _b_bytes(self) -> int:
        """Bytes of a step's columns."""
        return self.b_cols * self.span

    @cached_property
    def stage_bytes(self) -> int:
        return self.a_rows * self.span + (0 if self.value["resident"] else self._b_bytes)

    @cached_property
    def _factor_bytes(self) -> int:
        """Bytes of a step's factors: of all rows, and of all columns or of the blocks that they may lie in."""
        if not self.form.blockwise or self.form.factors is None:
            return 0
        share = self.form.factors[1].share
        columns = self.block_n if share == 1 else self.block_n // share + 2
        return self.span // 128 * (self.block_m + columns) * 4

    @cached_property
    def _kept_bytes(self) -> int:
        """Bytes of the columns that stay for all tiles of a block, and of their alignment."""
        return self.layer_steps[0] * self._b_bytes + 1024 if self.value["resident"] else 0

    @cached_property
    def store(self) -> str:
        form, split = self.form, self.value["cluster_k"] > 1
        if self.value["split_k"] > 1:
            return "PARTIAL"
        apart = form.out_nbytes == 1 and (form.transposed or self.block_n % 16 != 0)
        if form.mapped is not None and self.value["slab_n"] == 64 and not split and not apart:
            return "MAPPED"
        placed = form.placed
        if form.out_nbytes != 2 or (split and form.halo) or (form.kind == "wrw" and not split):
            return "DIRECT"
        if form.transposed:
            whole = split and placed.row == 1 and form.rows % 8 == 0
            steps: tuple[int, ...] = (placed.layer, placed.column)
        else:
            whole = placed.column == 1 and (form.channels if form.kind == "wrw" else form.cols) % 8 == 0
            steps = placed.pixels or (placed.layer, placed.row, placed.tap)
        if whole and all(step % 8 == 0 for step in steps):
            return "ROWS"
        alone = split or form.transposed or form.residual is not None or form.beta  # results are finished one by one
        if placed.column != 1 or alone or form.cols <= FEW_COLUMNS:
            return "DIRECT"
        # 16 rows of all columns lie in one piece, of whole pieces of 16 bytes.
        in_one = form.layers == 1 and placed.pixels is None and placed.row == form.cols <= self.block_n
        return "RUN" if in_one and form.kind == "gemm" and self.value["blocks_per_sm"] == 1 else "LINES"

    @cached_property
    def staged(self) -> bool:
        """Whether bulk copies bring the residual, into the memory that results leave from."""
        form = self.form
        whole = self.store == "MAPPED" and form.dtype != "int8" and form.scale is None
        return form.residual is not None and whole and not form.beta

    @property
    def store_buffers(self) -> int:
        """Stores that a warp has under way; of a staged residual, all that a tile has, or some that take turns where
        they are floats; of runs, one, held apart."""
        if self.store == "RUN":
            return 1
        if not self.staged:
            return self.value["store_buffers"]
        # NOTE: four for each of 12 warps leave the ring fewer stages: TF32 3x3 with 256 channels took 53.3 us, and 49.9
        # where each result read its residual. Two have not been timed.
        return self.chunks if self.form.out_nbytes < 4 else min(self.chunks, 4 if self.warpgroups < 3 else 2)

    @property
    def chunks(self) -> int:
        """Parts of a thread's results that pass through shared memory one after the other."""
        return self.value["products_m"] * -(-self.block_n // self.chunk)

    @cached_property
    def turns(self) -> int:
        """Parts of a thread's results, of which the text has one where results are long and many: all take 14 kB."""
        form, rows, activation = self.form, self.value["products_m"], self.form.epilogue.activation
        alone = form.beta != 0.0 or (form.residual is not None and not self.staged)
        repaired = form.halo and activation not in SHORT
        columns = rows * self.block_n
        causes = alone + (activation in LONG)
        few = columns < (256, 160, 128)[causes]
        if few or form.kind == "wrw" or self.parts > 1 or not (causes or repaired):
            return 1
        # Whole rows of a tile, or whole chunks of them. Repairing takes 2 kB.
        counts = (4, 2, 3) if columns >= 256 and causes + form.halo > 1 else (2, 3, 4)
        return next((count for count in counts if count % rows == 0 and self._has_parts(count // rows)), 1)

    @property
    def one_at_once(self) -> bool:
        """Whether each unit is finished by itself, where all long results of columns are in the text: 10.5 kB else."""
        form = self.form
        return form.transposed and form.beta != 0.0 and form.epilogue.activation in LONG and self.turns == 1

    def _has_parts(self, count: int) -> bool:
        """Whether rows fall into ``count`` parts of whole chunks, or of whole units where they leave from registers."""
        whole = 8 if self.store == "DIRECT" else self.chunk
        return count == 1 or (self.store != "RUN" and self.block_n % (count * whole) == 0)

    @cached_property
    def bias_bytes(self) -> int:
        """Shared memory of the columns' bias, floats for each warpgroup."""
        form = self.form
        grouped = self.store in ("MAPPED", "ROWS", "LINES", "RUN") and self.value["cluster_k"] == 1
        alone = form.dtype == "int8" or form.scale is not None  # finished with what lies in global memory
        if form.bias is None or form.bias_of_rows or alone or not grouped:
            return 0
        return self.warpgroups * self.block_n * 4

    @steady
    def even(self) -> bool:
        """Whether neighbouring results are finished and stored as pairs, which lie on pairs in memory."""
        placed, form = self.form.placed, self.form
        cols = form.channels if form.kind == "wrw" else form.cols
        steps = (*(placed.pixels or (placed.layer, placed.row)), placed.tap if form.kind == "wrw" else 0)
        return placed.column == 1 and cols % 2 == 0 and all(step % 2 == 0 for step in steps)

    @cached_property
    def fixed_bytes(self) -> int:
        """Shared memory without what stays: the same for all sizes of a problem."""
        ring = -(-(self.stages * self.stage_bytes + self.beyond_ring) // 1024) * 1024
        return ring + self._staging_bytes + self.bias_bytes + _BARRIERS + self.stages * self._factor_bytes

    @cached_property
    def shared_bytes(self) -> int:
        return self.fixed_bytes + self._kept_bytes

    @steady
    def _shared_limit(self) -> int:
        of_sm = self.target.shared_bytes_per_sm // self.value["blocks_per_sm"] - 1024  # the system takes 1 KB a block
        return min(of_sm, self.target.shared_bytes_per_block)

    @cached_property
    def read_once(self) -> tuple[bool, bool]:
        """Whether A's, and B's, elements need not stay in L2: those that a GEMM bound by memory has most of.

        What all layers share is read for each of them.
        """
        form = self.form
        if not self.streams:
            return False, False
        own_a, own_b = (isinstance(x, Tiled) and x.dims[2] == max(form.layers, form.images) for x in (form.a, form.b))
        a, b = form.rows, form.cols  # elements, over the length of the sums
        return own_a and 2 * a >= b and self.cast_n == 1, own_b and 2 * b >= a and self.cast_m == 1

    @cached_property
    def partial_quads(self) -> int:
        """Groups of four partial sums in a slice: tiles are kept whole."""
        tiles = self.tiles_m * self.cast_m * self.tiles_n * self.form.layers
        return tiles * self.block_m * self.block_n // 4

    @cached_property
    def _staging_bytes(self) -> int:
        if self.value["cluster_k"] > 1:
            return -(-self.exchanged_bytes // 1024) * 1024 if self.exchanged_bytes <= APART_BYTES else 0
        staged = self.store in ("MAPPED", "ROWS", "LINES", "RUN")
        run = 16 * self.form.cols * self.form.out_nbytes if self.store == "RUN" else 0  # a warp's rows
        return self.warpgroups * 4 * (self.store_buffers * 2048 + run) * staged

    @cached_property
    def exchanged_bytes(self) -> int:
        """Shared memory of a block's partial sums and of those that its cluster sends it."""
        split = self.value["cluster_k"]
        units = self.warpgroups * 4 * self.value["products_m"] * self.block_n // 8
        return (2 * split - 1) * -(-units // split) * 512 if split > 1 else 0

    @cached_property
    def tiles_m(self) -> int:
        """Tiles along rows; a cluster that shares columns counts as one."""
        return -(-self.form.rows // (self.block_m * self.cast_m))

    @cached_property
    def tiles_n(self) -> int:
        """Tiles along columns; a cluster that shares rows counts as one."""
        return -(-self.cols // (self.block_n * self.cast_n))

    @steady
    def cols(self) -> int:
        """Columns of the result; those of ``wrw`` count whole slabs of channels."""
        form, slab = self.form, self.value["slab_n"]
        return len(form.taps.offset) * self.blocks * slab if form.kind == "wrw" else form.cols

    @steady
    def blocks(self) -> int:
        """Blocks of channels in a tap (slabs of columns for ``wrw``)."""
        form = self.form
        return -(-form.channels // (self.value["slab_n"] if form.kind == "wrw" else self.block_k))

    @steady
    def layer_steps(self) -> tuple[int, ...]:
        """Steps along k of a tile, by layer (one for all layers of a GEMM)."""
        form = self.form
        if form.kind != "conv":
            return (form.images * -(-form.reduced // form.images // self.block_k),)
        return tuple(max(1, count * self.blocks) for count in form.taps.counts)

    @cached_property
    def left_out(self) -> float:
        """The share of the steps that tiles leave out: of parts of sums, and of columns that stay, none."""
        whole = self._leaves_out and self.parts == 1 and not self.value["resident"]
        return self._leaves_out if whole else 0.0

    @steady
    def _leaves_out(self) -> float:
        return leaves_out(self.form, self.target) if self.form.kind == "conv" else 0.0

    @property
    def looks(self) -> bool:
        """Whether a kernel before the convolution has to look for Inf and NaN in what the tiles leave out."""
        return self.left_out > 0 and multiplies_padding(self.form)

    @cached_property
    def parts(self) -> int:
        return self.value["cluster_k"] * self.value["split_k"]

    @cached_property
    def tiles(self) -> int:
        """Tiles of the launch, slices counted, splits not; a cluster that shares operands has one."""
        return self.tiles_m * self.tiles_n * self.form.layers * self.value["split_k"]

    @steady
    def slots(self) -> int:
        """Blocks that run at once."""
        return self.target.cores * self.value["blocks_per_sm"]

    @cached_property
    def grid(self) -> int:
        split, most = self.value["cluster_k"], self.at_once
        if self.value["resident"]:  # every block stays with its columns
            most = max(1, most // self.tiles_n) * self.tiles_n
        return self.tiles * split if split > 1 else min(self.tiles, most) * self.cast

    @cached_property
    def at_once(self) -> int:
        """Blocks, or clusters that share operands, that run at once: a cluster lies in one part of the chip."""
        pairs = self.slots // self.cast
        if self.cast <= 2:
            return pairs
        return max(1, min(pairs, fit_of(self.target).tile.clusters[self.value["blocks_per_sm"] - 1][self.cast - 2]))

    @cached_property
    def once(self) -> bool:
        """Whether a block has one tile, and all of its sums: its place in the grid says which.

        The tiles that are walked together have an axis of the grid, so they divide the rows. NOTE: 2 instead of 4 of 14
        rows took 1.42 times as long (2176 x 896 x 1920 on an H100).
        """
        form = self.form
        whole = form.kind == "gemm" and form.layers == form.images == 1 and self.parts == 1 and not form.blockwise
        alone = not self.value["resident"] and self.tiles <= self.at_once
        return whole and alone and self.tiles_m % self.walked == 0

    @cached_property
    def early(self) -> bool:
        """Whether the next kernel may begin after each block's last copies; when all have ended otherwise."""
        if self.form.kind != "gemm" or self.parts > 1:
            return False
        if self.cast > 1 or self.form.reduced <= SHORT_SUMS or self.streams:
            return True
        return self.block_m * self.block_n >= NARROW * (self.block_m + self.block_n)

    @cached_property
    def walked(self) -> int:
        """Rows of tiles that are walked together."""
        return min(self.value["group_m"], self.tiles_m)

    @cached_property
    def sums(self) -> int:
        short = self.product_n // 2 if self.form.promoted else 0
        factors = self.product_n // 4 if self.each_column else 0
        return self.value["products_m"] * self.block_n // 2 + short + factors

    @steady
    def each_column(self) -> bool:
        """Whether a product's columns have a factor each."""
        factors = self.form.factors
        return factors is not None and self.form.blockwise and factors[1].share == 1

    @cached_property
    def parted(self) -> bool:
        """Whether a product may have columns of two blocks, each with a factor of its own."""
        factors = self.form.factors
        return factors is not None and self.form.blockwise and factors[1].share % self.product_n != 0

    @cached_property
    def _exists(self) -> bool:
        """Whether there are such products, whatever is shared, split and kept."""
        v, form, wgs = self.value, self.form, self.warpgroups
        if self.sums > most_sums(wgs, v["blocks_per_sm"], form.promoted) or self.block_m > 256:
            return False
        if self.product_n not in product_widths(form.dtype) or self.block_n % self.product_n:
            return False
        if self.pingpong and (form.promoted or wgs < 2 or self.sums > 128):
            return False
        if form.nbytes != 2 and form.b_columns:  # the swapped form has them as rows
            return False
        if form.kind == "wrw" and self.block_n % v["slab_n"]:
            return False
        # Boxes of a columns operand begin every 64 columns: a half-used last slab costs a whole one.
        return not form.b_columns or self.block_n % 32 == 0

    @cached_property
    def fits(self) -> bool:
        """Whether such a kernel exists."""
        v = self.value
        if not self._exists or (self.pingpong and v["cluster_k"] > 1):
            return False
        if (v["resident"] and not self._can_keep) or (self.cast > 1 and not self._can_cast):
            return False
        if v["split_k"] > 1 and not self._can_slice:
            return False
        if v["store_buffers"] > 2 and (self.store != "MAPPED" or self.staged):
            return False
        if self.pingpong and self.form.out_nbytes != 2 and self.store != "MAPPED":
            return False
        if self.stages < 2 or self.shared_bytes > self._shared_limit:
            return False
        if APART_BYTES < self.exchanged_bytes > self.stages * self.stage_bytes:
            return False
        return self.parts <= min(self.layer_steps)

    @property
    def _can_slice(self) -> bool:
        """The kernel that sums slices repairs nothing."""
        return not self.form.halo and self.form.placed.pixels is None and self.partial_quads < 2**31

    @property
    def _can_keep(self) -> bool:
        """Whether the columns may stay: one filter or matrix for all tiles of a block, which walk along rows."""
        form, v = self.form, self.value
        one = form.kind != "wrw" and (form.layers == 1 or (isinstance(form.b, Tiled) and form.b.dims[2] == 1))
        if form.kind == "conv" and form.layers > 1:
            return False
        walks = v["group_m"] == 1 and self.tiles_n <= self.target.cores and self.tiles > self.slots
        return one and walks and self.parts == 1 and self.cast == 1

    @property
    def _can_cast(self) -> bool:
        """Whether blocks of a cluster have rows and columns to share."""
        form, v = self.form, self.value
        if form.kind == "wrw" or v["cluster_k"] > 1 or (form.kind == "conv" and any(self.in_turns)):
            return False
        if self.cast_n > 1 and (form.kind != "gemm" or v["split_k"] > 1 or form.cols <= self.block_n):
            return False
        return self.cast_m == 1 or form.rows > self.block_m
