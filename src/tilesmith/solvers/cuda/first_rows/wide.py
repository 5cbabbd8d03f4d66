"""The numbers that a config of backward weights by warpgroups gives for a problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.conv_form import even_pixels
from tilesmith.solvers.cuda.common.form import aligned, steps_along
from tilesmith.solvers.cuda.first_rows.weights import RowsWeightsTile
from tilesmith.solvers.cuda.first_rows.window import Word, refused
from tilesmith.solvers.solver import Rejected, cached_property, steady

_MOST_SUMS = 128  # registers of a thread
_MOST_STAGES = 6
_MOST_BOX = 256  # elements of an axis that a copy moves
_MOST_STEP = 8  # between the elements of an axis that a copy moves
_BARRIERS = 256  # bytes
_WORDS = 8  # of a matrix, which lanes read at once
_NEAR = 40  # words that are looked at, so that a long filter costs little
_PART = 8  # eights of channels in 128 bytes, the longest row of a swizzled copy


def wide_refused(g: ConvGeometry) -> Rejected | None:
    """Why the kernel does not compute ``g``, if it does not."""
    if found := refused(g):
        return found
    if not even_pixels(g.y):
        return Rejected(reasons.LAYOUT, "pixels of y are no multiples of 16 bytes")
    sizes, strides = (g.x.shape[0], *g.x.shape[2:4]), (g.x.strides[0], *g.x.strides[2:4])
    if not aligned(*steps_along(sizes, strides)) or g.input[2] * g.c % 2:
        return Rejected(reasons.LAYOUT, "rows of x are no multiples of 16 bytes")
    if g.filter[0] > 1 and g.dilation[0] > _MOST_STEP:
        return Rejected(reasons.DILATION, f"dilation {g.dilation}")
    return None


def _banks(places: Iterable[int]) -> list[int]:
    """How many of ``places`` lie in each bank of shared memory. Equal places count once: they are read together."""
    found = [0] * 32
    for place in set(places):
        found[place % 32] += 1
    return found


@dataclass(frozen=True)
class WideRowsTile(RowsWeightsTile):
    """Backward weights of ``g`` computed as ``config`` says; see the axes in ``solver``."""

    @property
    def warpgroups(self) -> int:
        return self.value["warpgroups"]

    @property
    def warps(self) -> int:
        return 4 * self.warpgroups

    @steady
    def units(self) -> int:
        """Warpgroups that together have all words of all variants."""
        return self.variants * -(-self.matrices // (4 * self.group))

    @steady
    def words(self) -> tuple[Word | None, ...]:
        """Words of all variants in the order of matrices, so that few of a matrix lie in one bank; None: no word."""
        length, found = 8 * self.matrices, list[Word | None]()
        for variant in range(self.variants):
            words = self.words_of(variant)
            words = min(words, self._apart(words), key=self.turns)
            found += [*words, *([None] * (length - len(words)))]
        return tuple(found)

    def _lanes(self, word: Word) -> list[int]:
        """Where the lanes that read a word, each for another pixel, find it: in units of four bytes."""
        return [self.offset(word) // 4 + place * self.variants * self.step for place in range(4)]

    def turns(self, words: list[Word]) -> int:
        """Turns of shared memory in which the words are read, eight at once."""
        eights = (words[i : i + _WORDS] for i in range(0, len(words), _WORDS))
        return sum(max(_banks(at for word in eight for at in self._lanes(word))) for eight in eights)

    def _apart(self, words: list[Word]) -> list[Word]:
        """Another order: each time the next of the words that costs no more turns than others."""
        lanes = {word: self._lanes(word) for word in words}
        order, rest, read = list[Word](), list(words), list[int]()
        while rest:
            if len(order) % _WORDS == 0:
                read = []
            near = rest[:_NEAR]
            turns = [max(_banks([*read, *lanes[word]])) for word in near]
            best = near[turns.index(min(turns))]
            read += lanes[best]
            order.append(best)
            rest.remove(best)
        return order

    @steady
    def tiles_n(self) -> int:
        """Eights of channels of dy of a block: blocks have as many each."""
        eights, blocks = -(-self.g.k // 8), -(-self.g.k // self.value["channels"])
        return -(-eights // blocks)

    @steady
    def parts(self) -> int:
        """Rows of at most 128 bytes in which a pixel's channels lie."""
        return -(-self.tiles_n // _PART)

    @steady
    def columns(self) -> int:
        """Of a product: the channels of a block."""
        return 8 * self.tiles_n

    @steady
    def span(self) -> int:
        """Bytes of a pixel's channels in a part, as copies swizzle them."""
        return next((span for span in (32, 64) if span >= 2 * self.columns), 128)

    @steady
    def paired(self) -> bool:
        """Whether a step has eight pixels each of two rows."""
        return self.tile[1] // self.variants % 16 != 0

    @steady
    def steps(self) -> int:
        """Of 16 pixels of a variant."""
        return prod(self.tile) // (16 * self.variants)

    @steady
    def splits(self) -> int:
        """Warpgroups that share words, each with steps of its own."""
        return self.warpgroups // self.units

    @steady
    def batch(self) -> int:
        """Steps whose products begin together; 0: the tile has no such count.

        NOTE: with an odd count of turns beyond one NVRTC 13.0 serialises the products.
        """
        steps = self.steps // self.splits
        counts = (n for n in ((4, 2, 1) if self.group == 1 else (1,)) if steps % n == 0)
        return next((n for n in counts if steps // n == 1 or steps // n % 2 == 0), 0)

    @steady
    def stage_bytes(self) -> int:
        dy = prod(self.tile) * self.parts * self.span
        return -(-(dy + prod(self.window) * 16) // 1024) * 1024

    @cached_property
    def stages(self) -> int:
        """As many as fit, but no more than a block has tiles."""
        t = self.target
        room = min(t.shared_bytes_per_block, t.shared_bytes_per_sm // self.value["blocks_per_sm"] - 1024) - _BARRIERS
        return min(room // self.stage_bytes, _MOST_STAGES, max(2, -(-self.all_tiles // self.slices)))

    @cached_property
    def shared_bytes(self) -> int:
        sums = self.elements * (self.tiles_n * 8 + 4) * 4  # with a pitch of their own
        return max(self.stages * self.stage_bytes, sums) + _BARRIERS

    @steady
    def registers(self) -> int:
        """An estimate of a thread's."""
        return self.group * (self.tiles_n * 4 + self.batch * 8 + 1) + 26

    @cached_property
    def fits(self) -> bool:
        """Whether the config may be chosen."""
        t, v, (h, w) = self.target, self.value, self.tile
        each, width = v["blocks_per_sm"], w // self.variants
        if w % (8 * self.variants) or (self.paired and h % 2) or w > _MOST_BOX:
            return False
        if h > self.g.output[1] + h % 2 or w >= self.g.output[2] + 8 * self.variants:
            return False
        planes, rows, pieces = self.window
        if max((planes - 1) * self.g.dilation[0] + 1, rows, pieces * 4) > _MOST_BOX:
            return False
        if self.group * 4 >= self.matrices + 4 or self.group * self.tiles_n * 4 > _MOST_SUMS:
            return False
        if self.warpgroups % self.units or self.steps % self.splits or width < 8:
            return False
        if not self.batch:
            return False
        if v["channels"] > 32 and v["channels"] // 2 >= self.g.k:  # fewer would do
            return False
        if each > -(-self.all_tiles * self.blocks_m // t.cores):
            return False
        if self.stages < 2 or (self.shared_bytes + 1024) * each > t.shared_bytes_per_sm:
            return False
        if self.shared_bytes > t.shared_bytes_per_block or 32 * self.warps * each > t.threads_per_sm:
            return False
        return self.registers <= min(t.registers_per_sm // (32 * self.warps * each), 255) // 8 * 8
