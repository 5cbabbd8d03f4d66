"""The numbers that a config of backward weights gives for a problem."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.solvers.cuda.common.dense import widest
from tilesmith.solvers.cuda.first_rows.window import RowsWindow, Word
from tilesmith.solvers.solver import cached_property, steady

EIGHTS = (2, 4, 8, 16)  # of channels of dy of a block
_MOST_SUMS = 128  # registers of a thread
_WORDS = 8  # of a matrix: 16 rows of a product


@dataclass(frozen=True)
class RowsWeightsTile(RowsWindow):
    """Backward weights of ``g`` computed as ``config`` says; see the axes in ``solver``."""

    @property
    def group(self) -> int:
        """Matrices of eight words of a warp."""
        return self.value["group"]

    @steady
    def matrices(self) -> int:
        """Of a variant."""
        return -(-self.most_words // _WORDS)

    @steady
    def words(self) -> tuple[Word | None, ...]:
        """Words of all variants in the order of matrices; None: no word."""
        each = [self.words_of(variant) for variant in range(self.variants)]
        length = self.matrices * _WORDS
        return tuple(word for words in each for word in (*words, *([None] * (length - len(words)))))

    def element(self, word: Word | None) -> int:
        """A word's first element among those of all runs, and one more; bits 30 and 31: which halves belong to taps."""
        if word is None:
            return 0
        mask = self.mask(word)
        place = (word.d * self.g.filter[1] + word.r) * self.run + word.element + 1
        return place | (mask & 1) << 30 | (mask >> 31) << 31

    @steady
    def unit_warps(self) -> int:
        """Warps that together have all words of all variants."""
        return self.variants * -(-self.matrices // self.group)

    @steady
    def elements(self) -> int:
        """Of all runs."""
        return len(self.rows) * self.run

    @steady
    def tiles_n(self) -> int:
        """Eights of channels of dy of a block."""
        return min(self.value["tiles_n"], -(-self.g.k // 8))

    @steady
    def blocks_m(self) -> int:
        return -(-self.g.k // (8 * self.tiles_n))

    @steady
    def all_tiles(self) -> int:
        return self.g.n * self.g.output[0] * prod(self.tiles)

    @cached_property
    def slices(self) -> int:
        """Blocks that share the pixels of a block of channels."""
        most = max(1, self.target.cores * self.value["blocks_per_sm"] // self.blocks_m)
        turns = -(-self.all_tiles // min(self.all_tiles, most))
        return -(-self.all_tiles // turns)  # with fewer blocks there are fewer sums to add

    @steady
    def sums_bytes(self) -> int:
        """Of a block."""
        return self.elements * self.tiles_n * 32

    @cached_property
    def partial_bytes(self) -> int:
        return self.slices * self.blocks_m * self.sums_bytes

    @steady
    def shared_bytes(self) -> int:
        dy = prod(self.tile) * (self.tiles_n | 1) * 16
        stage = -(-(prod(self.window) * 16 + dy + 16) // 128) * 128
        return max(2 * stage, self.elements * (self.tiles_n * 8 + 4) * 4)  # sums have a pitch of their own

    @steady
    def dy_vector(self) -> int:
        """Elements of dy that a copy moves."""
        view = self.g.y
        steps = [s for i, (s, size) in enumerate(zip(view.strides, view.shape, strict=True)) if size > 1 and i != 1]
        return widest(8, [view.shape[1], *steps])

    @steady
    def ragged(self) -> bool:
        """Whether tiles reach beyond the image of the results."""
        return bool(self.g.output[1] % self.tile[0] or self.g.output[2] % self.tile[1])

    @steady
    def registers(self) -> int:
        """An estimate of a thread's."""
        return self.group * self.tiles_n * 4 + (self.tiles_n + 1) // 2 * 4 + self.group + 48

    @cached_property
    def fits(self) -> bool:
        """Whether the config may be chosen."""
        t, v, (h, w) = self.target, self.value, self.tile
        each, pixels = v["blocks_per_sm"], 16 * self.variants
        if w % pixels or h > self.g.output[1] or w >= self.g.output[2] + pixels or self.group > self.matrices:
            return False
        if self.warps % self.unit_warps or self.warps // self.unit_warps > h * w // pixels:
            return False
        enough = next((n for n in EIGHTS if 8 * n >= self.g.k), EIGHTS[-1])
        if v["tiles_n"] > enough or self.group * self.tiles_n * 4 > _MOST_SUMS:
            return False
        if each > -(-self.all_tiles * self.blocks_m // t.cores):
            return False
        shared = (self.shared_bytes + 1024) * each <= t.shared_bytes_per_sm
        if not shared or self.shared_bytes > t.shared_bytes_per_block or 32 * self.warps * each > t.threads_per_sm:
            return False
        threads = -(-self.warps // 4) * 128 * each
        return self.registers <= min(t.registers_per_sm // threads, 255) // 8 * 8 + 7
