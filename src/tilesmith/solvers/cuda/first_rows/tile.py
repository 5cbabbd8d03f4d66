"""The numbers that a config of the forward kernel gives for a problem: products, shared memory, registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.common.dense import widest
from tilesmith.solvers.cuda.first.window import staged_row
from tilesmith.solvers.cuda.first_rows.window import MOST_STEPS, PIECE, RowsWindow, Word
from tilesmith.solvers.solver import cached_property, steady

_MOST_COLUMNS = 128  # of a block
_MOST_PIXELS = 4096  # of a tile
_MOST_GRID = 65535  # along the second and third axis


@dataclass(frozen=True)
class RowsTile(RowsWindow):
    """``g`` computed as ``config`` says; see the axes in ``solver``."""

    @property
    def parts(self) -> int:
        """Sixteens of pixels of a warp."""
        return self.value["parts"]

    @steady
    def words(self) -> tuple[Word | None, ...]:
        """Words of all variants in the order of products, eight a step; None: no word.

        Those with two taps come first: of most fours all lanes' words are whole, or none.
        """
        known = [self.words_of(variant) for variant in range(self.variants)]
        each = [sorted(words, key=lambda word: self.mask(word) != 0xFFFFFFFF) for words in known]
        length = 8 * self.steps
        return tuple(word for words in each for word in (*words, *([None] * (length - len(words)))))

    @steady
    def steps(self) -> int:
        """Products of 16 k of a variant."""
        return -(-self.most_words // 8)

    @steady
    def block_n(self) -> int:
        """Columns of a block."""
        return -(-self.g.k // self.blocks_n // 8) * 8 if self.blocks_n > 1 else -(-self.g.k // 8) * 8

    @steady
    def blocks_n(self) -> int:
        return -(-self.g.k // _MOST_COLUMNS)

    @steady
    def bias_in_products(self) -> bool:
        """Whether the last word of all variants' products is free: pixels have 1 there, and the filter the bias."""
        g, length = self.g, 8 * self.steps
        free = all(len(self.words_of(variant)) < length for variant in range(self.variants))
        return g.epilogue.bias and g.y.dtype == g.x.dtype and free

    @steady
    def biases(self) -> int:
        """Bytes of the biases that are added to sums."""
        return -(-self.block_n * 4 // 128) * 128 if self.g.epilogue.bias and not self.bias_in_products else 0

    @steady
    def filter_bytes(self) -> int:
        """Of a block of columns."""
        return self.variants * self.steps * self.block_n * 32

    @cached_property
    def shared_bytes(self) -> int:
        return self._shared_bytes(2 if self.stays else 1)

    def _shared_bytes(self, windows: int) -> int:
        window = -(-prod(self.window) * 16 // 128) * 128
        row = staged_row(self.block_n, self.g.y.dtype)
        return self.filter_bytes + self.biases + windows * window + self.warps * self.parts * 16 * row

    @steady
    def all_tiles(self) -> int:
        """Tiles, for each block of columns."""
        return prod(self.tiles) * self.g.n * self.g.output[0]

    @cached_property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return prod(self.grid)

    @cached_property
    def stays(self) -> bool:
        """Whether blocks take tiles in turn: where each has three or more, and an SM has no room for more of them.

        Where more of them share an SM than are asked for, or one replaces another, these were faster.
        """
        t, asked = self.target, self.value["blocks_per_sm"]
        together = min(
            t.shared_bytes_per_sm // (self._shared_bytes(1) + 1024), t.threads_per_sm // (32 * self.warps),
            t.registers_per_sm // (32 * self.warps * min(self.registers, self.most_registers)),
        )  # fmt: skip
        full = together <= asked and self.all_tiles * self.blocks_n > 2 * t.cores * asked
        return full and t.cores * asked >= self.blocks_n and self._share(self._shared_bytes(2))

    @cached_property
    def grid(self) -> tuple[int, int, int]:
        """Blocks by columns and tiles in a row, rows of tiles, planes of results; or by columns, as many as stay."""
        if self.stays:
            return self.target.cores * self.value["blocks_per_sm"] // self.blocks_n * self.blocks_n, 1, 1
        return self.blocks_n * self.tiles[1], self.tiles[0], self.g.n * self.g.output[0]

    @steady
    def tasks(self) -> int:
        """Warps' shares of a tile."""
        return prod(self.tile) // (16 * self.parts)

    @steady
    def packed_elements(self) -> int:
        return self.blocks_n * self.filter_bytes // 2

    @steady
    def out_vector(self) -> int:
        """Results that a thread stores at once."""
        view = self.g.y
        steps = [s for i, (s, size) in enumerate(zip(view.strides, view.shape, strict=True)) if size > 1 and i != 1]
        return widest(min(8, 16 // dtype(view.dtype).nbytes), [view.shape[1], *steps])

    @steady
    def whole(self) -> bool:
        """Whether every pixel of every tile exists."""
        return not (self.g.output[1] % self.tile[0] or self.g.output[2] % self.tile[1])

    @steady
    def dense(self) -> bool:
        """Whether a warp's results follow each other."""
        g, y = self.g, self.g.y
        lines = self.tile[1] % (16 * self.parts) == 0 or (
            self.tile[1] == g.output[2] and (g.output[1] == 1 or y.strides[3] == g.output[2] * g.k)
        )
        return self.blocks_n == 1 and y.strides[4] == g.k and g.output[2] > 1 and lines

    @cached_property
    def registers(self) -> int:
        """An estimate of a thread's."""
        return self._registers(self.at_once)

    def _registers(self, at_once: int) -> int:
        rounds = -(-self.steps // at_once)
        return self.parts * self.block_n // 2 + 8 * -(-self.steps // rounds) + 44

    @cached_property
    def at_once(self) -> int:
        """Products whose words a warp gathers together, of which it holds two rounds."""
        return 8 if self._registers(8) <= self.most_registers else 4

    @cached_property
    def most_registers(self) -> int:
        """Registers that a thread may have."""
        return min(self.target.registers_per_sm // (32 * self.warps * self.value["blocks_per_sm"]), 255) // 8 * 8

    @cached_property
    def fits(self) -> bool:
        """Whether the config may be chosen."""
        t, v, (h, w) = self.target, self.value, self.tile
        pixels = 16 * self.parts
        if self.parts % self.variants or w % self.variants or h * w % pixels or self.steps > MOST_STEPS:
            return False
        if h * w > _MOST_PIXELS or (w * self.step % PIECE and self.tiles[1] > 1):  # rows of x that begin within a piece
            return False
        if max(self.grid[1:]) > _MOST_GRID:
            return False
        if h > self.g.output[1] or w >= self.g.output[2] + pixels or self.warps > -(-self.tasks // 4) * 4:
            return False
        each = v["blocks_per_sm"]
        if each > -(-self.all_tiles * self.blocks_n // t.cores):
            return False
        if not self._share(self.shared_bytes) or 32 * self.warps * each > t.threads_per_sm:
            return False
        return self.registers <= self.most_registers

    def _share(self, shared: int) -> bool:
        """Whether the blocks of an SM may have so much shared memory each."""
        t = self.target
        fits = (shared + 1024) * self.value["blocks_per_sm"] <= t.shared_bytes_per_sm
        return fits and shared <= t.shared_bytes_per_block
