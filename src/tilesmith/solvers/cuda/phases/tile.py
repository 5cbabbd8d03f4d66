"""Applies a config of the phases kernel to a problem: tiles, products, shared memory, registers, blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import Triple
from tilesmith.solvers.cuda.phases.form import PhasesForm, Steps
from tilesmith.solvers.solver import Config, Configured, cached_property, steady
from tilesmith.targets.target import CudaTarget

_MOST_SUMS = 128  # registers of a thread's sums
_MOST_REGISTERS = 236
_MOST_UNROLLED = 640  # products of a warp, all of them unrolled
_MOST_UNROLLED_WIDE = 256  # products of a warpgroup
_MOST_WIDE = 256  # its columns
_MOST_GRID = 2**31 - 1
_MOST_CHUNKS = 8  # blocks of channels that are there at once
_MOST_FETCHED = 2**19  # pieces of 16 bytes whose elements are fetched one by one


def window_of(form: PhasesForm, box: Triple, taps_on_n: bool) -> Triple:
    """Inputs that the positions of a box see."""
    (d, h, w), (td, th, tw) = box, form.taps
    return d + td - 1, h if taps_on_n else h + th - 1, w + tw - 1


def product_rows(form: PhasesForm, box: Triple, taps_on_n: int, wgmma: bool) -> int:
    """Rows of the product of a box. A warpgroup has those between lines of positions, too."""
    if not taps_on_n and not wgmma:
        return prod(box)
    d, high, wide = window_of(form, box, bool(taps_on_n))
    if taps_on_n:
        return d * high * wide - (form.taps[2] - 1 if taps_on_n == 2 else 0)
    return ((box[0] - 1) * high + box[1] - 1) * wide + box[2]


def fills(rows: int, warps: int, wgmma: bool) -> bool:
    """Whether so many rows are enough for so many warps along them, of which four multiply together (``wgmma``)."""
    return rows > 16 * (warps - (4 if wgmma else 1))


@dataclass(frozen=True)
class PhasesTile(Configured):
    """``form`` computed as ``config`` says; see the axes in ``solver``. ``wgmma``: four warps multiply together."""

    form: PhasesForm
    config: Config
    target: CudaTarget
    wgmma: bool = False
    varied = frozenset(("strip_h", "stages", "blocks_per_sm"))

    @steady
    def taps_on_n(self) -> bool:
        return bool(self.value["taps_on_n"])

    @steady
    def rows_on_n(self) -> bool:
        """Whether columns are rows of taps: a row's taps are summed in the product."""
        return self.value["taps_on_n"] == 2

    @steady
    def box(self) -> Triple:
        """Positions of a tile along each axis."""
        v = self.value
        return v["tile_d"], v["tile_h"], v["tile_w"]

    @steady
    def window(self) -> Triple:
        """Inputs that they see."""
        return window_of(self.form, self.box, self.taps_on_n)

    @cached_property
    def strip(self) -> int:
        """Rows of positions that a block computes one after the other."""
        return self.value["strip_h"] if self.taps_on_n else self.box[1]

    @cached_property
    def turns(self) -> int:
        """Boxes of a strip: with taps as columns it begins ahead, with the rows that its first results need."""
        return -(-(self.strip + self.form.taps[1] - 1) // self.box[1]) if self.taps_on_n else 1

    @steady
    def least_turns(self) -> int:
        """Turns of all tiles whose strips have all rows."""
        more = self.form.taps[1] - 1 if self.taps_on_n else 0
        return self._strips_of * -(-(self.form.base[1] + more) // self.box[1])

    @property
    def block_c(self) -> int:
        return self.value["block_c"]

    @steady
    def pieces(self) -> int:
        """Pieces of 16 bytes of a pixel in shared memory."""
        return self.block_c // 8

    @steady
    def chunks(self) -> int:
        """Blocks of channels."""
        return -(-self.form.channels // self.block_c)

    @steady
    def taps(self) -> int:
        """Taps that are summed in the product."""
        return self.form.taps[2] if self.rows_on_n else 1 if self.taps_on_n else prod(self.form.taps)

    @steady
    def steps(self) -> int:
        """Steps of 16 products of a block of channels."""
        return (self.taps * self.pieces + 1) // 2

    @steady
    def rows(self) -> int:
        """Rows of the product."""
        return product_rows(self.form, self.box, self.value["taps_on_n"], self.wgmma)

    @steady
    def columns(self) -> int:
        """Columns of a block that mean something."""
        if self.rows_on_n:
            return prod(self.form.filter[:2]) * self.form.row_columns
        if self.taps_on_n:
            return prod(self.form.filter) * self.form.cols
        return self.value["phase_rows"] * self.form.row_columns

    @steady
    def block_n(self) -> int:
        unit = 8 * self.value["warps_n"]
        return -(-self.columns // unit) * unit

    @steady
    def blocks_n(self) -> int:
        return 1 if self.taps_on_n else self.form.phase_rows // self.value["phase_rows"]

    @steady
    def products(self) -> tuple[int, int]:
        """Products of 16 rows, and of 8 columns, of a warp."""
        v = self.value
        return -(-self.rows // (16 * v["warps_m"])), self.block_n // (8 * v["warps_n"])

    @steady
    def warps(self) -> int:
        return self.value["warps_m"] * self.value["warps_n"]

    @steady
    def threads(self) -> int:
        return self.warps * 32

    @cached_property
    def tiles_of(self) -> Triple:
        """Tiles along each axis."""
        box = (self.box[0], self.strip, self.box[2])
        d, h, w = (-(-size // tile) for size, tile in zip(self.form.base, box, strict=True))
        return d, h, w

    @cached_property
    def tiles(self) -> int:
        """Tiles of positions, whatever their columns."""
        return self._strips_of * -(-self.form.base[1] // self.strip)

    @steady
    def _strips_of(self) -> int:
        """Rows of tiles that lie below one another."""
        (d, _, w), (deep, _, wide) = self.form.base, self.box
        return self.form.outer * -(-d // deep) * -(-w // wide)

    @steady
    def results(self) -> int:
        """Results of a tile of one box."""
        form = self.form
        return prod(self.box) * (prod(form.stride) * form.cols if self.taps_on_n else self.columns)

    @steady
    def share(self) -> float:
        """The share of the products that are multiplied."""
        n = self.products[1]
        return sum(mask.bit_count() for mask in self.used) / (self.steps * n) if self.steps else 0.0

    @steady
    def used(self) -> tuple[int, ...]:
        """Of each step a bit for each product of 8 columns: whether any warp finds weights there in any block."""
        every = (1 << self.products[1]) - 1
        whole = all(r % u == 0 for r, u in zip(self.form.filter, self.form.stride, strict=True))
        if self.wgmma or self.taps_on_n or whole:
            return (every,) * self.steps
        of_tap = _columns_of_taps(self.form, self.value["phase_rows"], self.products[1])
        masks = []
        for step in range(self.steps):
            taps = {piece // self.pieces for piece in (2 * step, 2 * step + 1)}
            mask = 0
            for tap in taps:
                mask |= of_tap[tap] if tap < self.taps else 0
            masks.append(mask)
        return tuple(masks)

    @steady
    def out_vector(self) -> int:
        """Results that a thread stores at once."""
        if not self.taps_on_n:
            return self.form.out_vector(self.form.row_columns)
        return min(2, self.form.out_vector(self.box[2] * self.form.row_columns))

    @steady
    def stored_lines(self) -> int:
        """Rows of results, or parts of long ones, that a warp stores one after another where bulk copies do not."""
        if self.bulk or self.taps_on_n:
            return 0
        width, lanes = self.box[2], self.form.row_columns // self.out_vector
        span = 32 // lanes
        hops = -(-width // span) if span * lanes >= 24 else -(-width * lanes // 32)
        under_way = 8 if self.out_vector * dtype(self.form.out_dtype).nbytes < 16 else 4
        rows = self.results // (width * self.form.row_columns)
        return -(-rows // self.warps) * -(-hops // under_way)

    @cached_property
    def padded(self) -> bool:
        """Whether the input's pixels are first copied to pieces of 16 bytes.

        Where they are no multiples of 4 bytes, no asynchronous copy reads them: a block fetches their elements one by
        one, waits for them, and does so again for each of its phases.
        """
        form = self.form
        sizes, steps = (form.outer, *form.size), form.source
        dense = all(sizes[i] == 1 or steps[i] == steps[i + 1] * sizes[i + 1] for i in range(3))
        fetched = self.tiles * self.turns * self.blocks_n * self.chunks * prod(self.window) * self.pieces
        return form.in_vector == 1 and dense and fetched > _MOST_FETCHED

    @cached_property
    def source_steps(self) -> Steps:
        """The steps of the input that the kernel reads."""
        form = self.form
        if not self.padded:
            return form.source
        (d, h, w), pixel = form.size, form.padded
        return d * h * w * pixel, h * w * pixel, w * pixel, pixel

    # --- memory ---

    @steady
    def window_bytes(self) -> int:
        if self.wgmma:
            _, high, wide = self.window
            d, h, w = (1, 1, self.taps) if self.taps_on_n else self.form.taps
            pixels = self.products[0] * self.value["warps_m"] * 16 + ((d - 1) * high + h - 1) * wide + w - 1
            return -(-(pixels | 1) * self.pieces * 16 // 128) * 128
        pitch = self.block_c * 2 + (0 if self.pieces % 2 else 16)
        return -(-prod(self.window) * pitch // 128) * 128

    @steady
    def filter_bytes(self) -> int:
        """The filter of a block of columns and of channels in shared memory."""
        if self.wgmma:
            return self.block_n * self.steps * 32
        return -(-(self.block_n + 8) * (self.steps * 32 + 16) // 128) * 128

    @steady
    def staged_size(self) -> int:
        """Bytes of a staged result: sums are not rounded where something is added to them."""
        late = self.taps_on_n or self.form.epilogue.residual
        return 4 if late else dtype(self.form.out_dtype).nbytes

    @steady
    def bulk(self) -> bool:
        """Whether rows of results are staged as they lie, and bulk copies store them.

        Positions are whole pieces of 16 bytes there, and what eight lanes write lies in four pairs of banks at least.
        """
        form, size = self.form, dtype(self.form.out_dtype).nbytes
        row = form.row_columns * size
        if self.taps_on_n or form.epilogue.residual or not form.dense_rows or not self.target.has_cluster:
            return False
        if self.value["phase_rows"] > 1 or self.block_n != form.row_columns or row % 16 or row % 64 == 0:
            return False
        sizes = (form.outer, *form.out_size[:2])
        steps = [step for step, count in zip(form.result[:3], sizes, strict=True) if count > 1]
        return self.skew % 4 == 0 and not any(step * size % 16 for step in steps)

    @steady
    def skew(self) -> int:
        """Bytes from a piece of 16 to where a tile's rows of results begin."""
        form = self.form
        begin = (form.first[2] * form.stride[2] - form.pad[2]) * form.cols
        return begin * dtype(form.out_dtype).nbytes % 16

    @steady
    def staged_pitch(self) -> int:
        """Elements between staged rows: what lanes write together lies in different banks."""
        if self.bulk:
            return self.form.row_columns
        return self.block_n + (8 if self.block_n % 16 == 0 else 0)

    @steady
    def staged_bytes(self) -> int:
        rows = self.products[0] * self.value["warps_m"] * 16
        if self.taps_on_n:
            d, h, w = self.window
            rows = d * (h + self.form.taps[1] - 1) * w
        return rows * self.staged_pitch * self.staged_size + (16 if self.bulk else 0)

    def _bytes(self, resident: bool) -> int:
        filter_ = self.filter_bytes
        stages = self.chunks if self.whole else self.value["stages"]
        ring, kept = stages * (self.window_bytes + (0 if resident else filter_)), self.chunks * filter_ * resident
        barriers = 8 * _MOST_CHUNKS if self.bulk_in else 0
        return kept + (max(ring, self.staged_bytes) if self.whole else ring + self.staged_bytes) + barriers

    @property
    def whole(self) -> bool:
        """Whether all blocks of channels of a tile are in shared memory at once, and its results take their place."""
        return self.value["stages"] == 1

    @property
    def bulk_in(self) -> bool:
        """Whether bulk copies bring windows: whole pixels, all that a block reads of a tile at once."""
        pieces = self.form.in_vector == 8 and self.form.channels % self.block_c == 0
        return self.whole and self.target.has_cluster and pieces

    @property
    def rows_as_they_lie(self) -> bool:
        """Whether pixels have the same pitch in shared memory as in memory."""
        return self.pieces % 2 == 1 and self.form.channels == self.block_c == self.form.source[3]

    @cached_property
    def resident(self) -> bool:
        """Whether a block keeps its filter in shared memory: where that leaves room for the blocks of an SM."""
        return self.chunks == 1 or self._bytes(True) <= self._most_bytes

    @cached_property
    def _most_bytes(self) -> int:
        t = self.target
        return min(t.shared_bytes_per_sm // self.value["blocks_per_sm"] - 1024, t.shared_bytes_per_block)

    @cached_property
    def shared_bytes(self) -> int:
        return self._bytes(self.resident)

    @steady
    def packed_elements(self) -> int:
        return self.blocks_n * self.chunks * self.block_n * self.steps * 16

    @steady
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        m, n = self.products
        return m * n * 4 + 60 + (0 if self.wgmma else -(-n // 2) * 4 + m * 4 + 4)

    # --- blocks ---

    @cached_property
    def most_blocks(self) -> int:
        """Blocks that find room on an SM."""
        target = self.target
        least = self._bytes(True) if self.chunks == 1 else min(self._bytes(True), self._bytes(False))
        by_memory = target.shared_bytes_per_sm // (least + 1024)
        by_registers = target.registers_per_sm // (self.threads * (self.registers + 8))
        return min(by_memory, by_registers, target.threads_per_sm // self.threads, 24 // self.warps)

    @cached_property
    def grid(self) -> int:
        """Blocks: each keeps its columns, and walks over tiles."""
        resident = self.target.cores * self.value["blocks_per_sm"]
        return self.blocks_n * max(1, min(self.tiles, resident // self.blocks_n))

    @steady
    def exists(self) -> bool:
        """Whether there are such products, however many blocks, stages and rows of a strip there are."""
        v, form = self.value, self.form
        if self.rows_on_n and form.taps[2] == 1:
            return False
        if v["phase_rows"] != 1 if self.taps_on_n else form.phase_rows % v["phase_rows"]:
            return False
        (d, h, w), base = self.box, form.base
        if d > base[0] or h > base[1] or w > base[2]:
            return False
        if self.warps > 16 or not fills(self.rows, v["warps_m"], self.wgmma) or self.columns <= 8 * (v["warps_n"] - 1):
            return False
        m, n = self.products
        if self.wgmma:
            if v["warps_m"] % 4 or 8 * n > _MOST_WIDE:
                return False
            if m * self.steps > _MOST_UNROLLED_WIDE:
                return False
        elif m * n * self.steps > _MOST_UNROLLED:
            return False
        return m * n * 4 <= _MOST_SUMS and n <= 32 and self.packed_elements < _MOST_GRID

    @cached_property
    def fits(self) -> bool:
        """Whether such a kernel exists."""
        v, target = self.value, self.target
        if (v["strip_h"] > 0) != self.taps_on_n or not self.exists:
            return False
        # Products of a strip's last rows are kept where the next window would be.
        if self.whole and (self.wgmma or self.turns > 1 or self.chunks > _MOST_CHUNKS):
            return False
        threads = self.threads * v["blocks_per_sm"]
        if self.registers > min(_MOST_REGISTERS, target.registers_per_sm // threads - 8):
            return False
        if threads > target.threads_per_sm or self.shared_bytes > self._most_bytes:
            return False
        return self.tiles * self.blocks_n < _MOST_GRID


@lru_cache(maxsize=256)
def _columns_of_taps(form: PhasesForm, phase_rows: int, wide: int) -> tuple[int, ...]:
    """Of each tap of a window the products of 8 columns, of ``wide`` of a warp, in which it exists for some column."""
    masks = []
    for at in product(*(range(taps) for taps in form.taps)):
        mask = 0
        for phase in product(*(range(stride) for stride in form.stride)):
            met = zip(phase, form.stride, form.taps, at, form.filter, strict=True)
            if all(p + u * (t - 1 - i) < r for p, u, t, i, r in met):
                row = (phase[0] * form.stride[1] + phase[1]) % phase_rows
                first = row * form.row_columns + phase[2] * form.cols
                for tile in range(first // 8, (first + form.cols - 1) // 8 + 1):
                    mask |= 1 << tile % wide
        masks.append(mask)
    return tuple(masks)
