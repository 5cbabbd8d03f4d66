"""Convolutions of few input channels: rows of x as they lie in memory, and words of two elements of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import widest
from tilesmith.solvers.cuda.first.window import size_refused, types_refused
from tilesmith.solvers.solver import Config, Configured, Rejected, steady
from tilesmith.targets.target import CudaTarget

MOST_STEPS = 40  # the text of products is unrolled
_MOST_ROW = (1 << 18) - 2  # elements of a row of the filter, in a packed word
PIECE = 8  # elements of 16 bytes


@dataclass(frozen=True)
class Word:
    """Two elements of a run in row ``r`` of plane ``d`` of the filter, from ``element`` on; -1: one ahead of it."""

    d: int
    r: int
    element: int


def refused(g: ConvGeometry) -> Rejected | None:
    """Why the kernel does not compute ``g``, if it does not."""
    if found := types_refused(g):
        return found
    if not (g.y.channels_last and g.x.channels_last) or (g.input[2] > 1 and g.x.strides[4] != g.c):
        return Rejected(reasons.LAYOUT, "x has gaps between pixels, or y is not channels-last")
    if g.dilation[2] > 1 and g.filter[2] > 1:
        return Rejected(reasons.DILATION, f"dilation {g.dilation}")
    if g.filter[0] > 63 or g.filter[1] > 255 or g.filter[2] * g.c > _MOST_ROW:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    if prod(g.filter[:2]) * (g.filter[2] * g.c // 2) > 8 * MOST_STEPS:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    return size_refused(g)


@dataclass(frozen=True)
class RowsWindow(Configured):
    """The rows of x that a tile of results reads."""

    g: ConvGeometry
    config: Config
    target: CudaTarget
    varied = frozenset(("blocks_per_sm",))

    @property
    def warps(self) -> int:
        return self.value["warps"]

    @steady
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the results of a tile."""
        return self.value["tile_h"], self.value["tile_w"]

    @steady
    def step(self) -> int:
        """Elements from a pixel's run to the next one's."""
        return self.g.stride[2] * self.g.c

    @steady
    def variants(self) -> int:
        """2 where runs begin at even and at odd elements."""
        return 1 + self.step % 2

    @steady
    def shift(self) -> int:
        """Elements of a row of the window ahead of the first run: rows begin where pieces of 16 bytes do."""
        return -self.g.padding[2] * self.g.c % PIECE

    @steady
    def run(self) -> int:
        """Elements of a row of the filter."""
        return self.g.filter[2] * self.g.c

    @steady
    def rows(self) -> tuple[tuple[int, int], ...]:
        """Planes and rows of the filter."""
        return tuple((d, r) for d in range(self.g.filter[0]) for r in range(self.g.filter[1]))

    def _early(self, variant: int) -> int:
        """1 where a run's first word begins one element ahead of it."""
        return (self.shift + variant * self.step) % 2

    def words_of(self, variant: int) -> list[Word]:
        """Words of the window's runs."""
        return [Word(d, r, e) for d, r in self.rows for e in range(-self._early(variant), self.run, 2)]

    @steady
    def most_words(self) -> int:
        """Words of the variant that has most."""
        early = max(map(self._early, range(self.variants)))
        return prod(self.g.filter[:2]) * -(-(self.run + early) // 2)

    def mask(self, word: Word | None) -> int:
        """Which halves of a word belong to taps."""
        if word is None:
            return 0
        return sum(0xFFFF << 16 * i for i in range(2) if 0 <= word.element + i < self.run)

    @steady
    def window(self) -> tuple[int, int, int]:
        """Planes, rows and pieces of 16 bytes of a row of x that a tile reads."""
        g, (h, w) = self.g, self.tile
        elements = self.shift + (w - 1) * self.step + self.run + 1
        return (
            g.filter[0], (h - 1) * g.stride[1] + (g.filter[1] - 1) * g.dilation[1] + 1, -(-elements // PIECE),
        )  # fmt: skip

    def offset(self, word: Word) -> int:
        """Bytes from a part's first pixel to a word, whose early half counts."""
        _, rows, pieces = self.window
        line = word.d * rows + word.r * self.g.dilation[1]
        return line * pieces * 16 + (word.element + 1) // 2 * 4

    @steady
    def vector(self) -> int:
        """Elements of x that a copy moves."""
        view = self.g.x
        outer = (view.strides[i] for i in (0, 2, 3) if view.shape[i] > 1)
        return widest(PIECE, list(outer))

    @steady
    def tiles(self) -> tuple[int, int]:
        """Tiles along the rows and columns of an image's results."""
        _, h, w = self.g.output
        return -(-h // self.tile[0]), -(-w // self.tile[1])
