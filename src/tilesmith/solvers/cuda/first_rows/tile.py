"""The numbers that a config gives for a problem: words of the filter's rows, rows of x, shared memory, registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX, widest
from tilesmith.solvers.cuda.first.window import MAX_CHANNELS
from tilesmith.solvers.solver import Config, Configured, Rejected, cached_property, steady
from tilesmith.targets.target import CudaTarget

MOST_STEPS = 40  # the text of products is unrolled
_MOST_COLUMNS = 128  # of a block
_MOST_PIXELS = 4096  # of a tile
_MOST_ROW = (1 << 18) - 2  # elements of a row of the filter, in a packed word
_PIECE = 8  # elements of 16 bytes


@dataclass(frozen=True)
class Word:
    """Two elements of a run in row ``r`` of plane ``d`` of the filter, from ``element`` on (-1: one ahead of the run)."""

    d: int
    r: int
    element: int


def refused(g: ConvGeometry) -> Rejected | None:
    """Why the kernel does not compute ``g``, if it does not."""
    if g.x.dtype != g.w.dtype or g.x.dtype not in HALVES:
        return Rejected(reasons.DTYPE, f"{g.x.dtype} x {g.w.dtype}")
    if g.y.dtype not in (g.x.dtype, "fp32") or g.acc_dtype != "fp32":
        return Rejected(reasons.DTYPE, f"{g.y.dtype}, accumulated in {g.acc_dtype}")
    if g.c > MAX_CHANNELS:
        return Rejected(reasons.CHANNELS, f"{g.c} channels of x, at most {MAX_CHANNELS}")
    if not (g.y.channels_last and g.x.channels_last) or (g.input[2] > 1 and g.x.strides[4] != g.c):
        return Rejected(reasons.LAYOUT, "x has gaps between pixels, or y is not channels-last")
    if g.dilation[2] > 1 and g.filter[2] > 1:
        return Rejected(reasons.DILATION, f"dilation {g.dilation}")
    if g.filter[0] > 63 or g.filter[1] > 255 or g.filter[2] * g.c > _MOST_ROW:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    if prod(g.filter[:2]) * (g.filter[2] * g.c // 2) > 8 * MOST_STEPS:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    spans = (span_bytes(view.dtype, view.shape, view.strides) // 2 for view in (g.x, g.w, g.y))
    return Rejected(reasons.SIZE) if max(spans) > MAX_INDEX else None


@dataclass(frozen=True)
class RowsTile(Configured):
    """``g`` computed as ``config`` says; see the axes in ``solver``."""

    g: ConvGeometry
    config: Config
    target: CudaTarget
    varied = frozenset(("blocks_per_sm",))

    @property
    def warps(self) -> int:
        return self.value["warps"]

    @property
    def parts(self) -> int:
        """Sixteens of pixels of a warp."""
        return self.value["parts"]

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
        return -self.g.padding[2] * self.g.c % _PIECE

    @steady
    def run(self) -> int:
        """Elements of a row of the filter."""
        return self.g.filter[2] * self.g.c

    @steady
    def rows(self) -> tuple[tuple[int, int], ...]:
        """Planes and rows of the filter."""
        return tuple((d, r) for d in range(self.g.filter[0]) for r in range(self.g.filter[1]))

    def words_of(self, variant: int) -> list[Word]:
        """Words of the window, of which both elements belong to taps first: where others follow, all lanes mask."""
        early = (self.shift + variant * self.step) % 2  # a word begins one element ahead of the run
        words = [Word(d, r, e) for d, r in self.rows for e in range(-early, self.run, 2)]
        return sorted(words, key=lambda word: self.mask(word) != 0xFFFFFFFF)

    @steady
    def words(self) -> tuple[Word | None, ...]:
        """Words of all variants in the order of products, eight a step; None: no word."""
        each = [self.words_of(variant) for variant in range(self.variants)]
        length = -(-max(map(len, each)) // 8) * 8
        return tuple(word for words in each for word in (*words, *([None] * (length - len(words)))))

    @steady
    def steps(self) -> int:
        """Products of 16 k of a variant."""
        return len(self.words) // 8 // self.variants

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
            g.filter[0], (h - 1) * g.stride[1] + (g.filter[1] - 1) * g.dilation[1] + 1, -(-elements // _PIECE),
        )  # fmt: skip

    def offset(self, word: Word) -> int:
        """Bytes from a part's first pixel to a word, whose early half counts."""
        _, rows, pieces = self.window
        line = word.d * rows + word.r * self.g.dilation[1]
        return line * pieces * 16 + (word.element + 1) // 2 * 4

    @steady
    def block_n(self) -> int:
        """Columns of a block."""
        return -(-self.g.k // self.blocks_n // 8) * 8 if self.blocks_n > 1 else -(-self.g.k // 8) * 8

    @steady
    def blocks_n(self) -> int:
        return -(-self.g.k // _MOST_COLUMNS)

    @steady
    def biases(self) -> int:
        """Bytes."""
        return -(-self.block_n * 4 // 128) * 128 if self.g.epilogue.bias else 0

    @steady
    def filter_bytes(self) -> int:
        """Of a block of columns."""
        return self.variants * self.steps * self.block_n * 32

    @steady
    def shared_bytes(self) -> int:
        window = -(-prod(self.window) * 16 // 128) * 128
        row = self.block_n * dtype(self.g.y.dtype).nbytes + 16
        return self.filter_bytes + self.biases + window + self.warps * self.parts * 16 * row

    @steady
    def tiles(self) -> tuple[int, int]:
        """Tiles along the rows and columns of an image's results."""
        _, h, w = self.g.output
        return -(-h // self.tile[0]), -(-w // self.tile[1])

    @steady
    def all_tiles(self) -> int:
        return self.g.n * self.g.output[0] * prod(self.tiles)

    @steady
    def blocks(self) -> int:
        """Blocks of the launch, each with one tile."""
        return self.all_tiles * self.blocks_n

    @steady
    def tasks(self) -> int:
        """Warps' shares of a tile."""
        return prod(self.tile) // (16 * self.parts)

    @steady
    def packed_elements(self) -> int:
        return self.blocks_n * self.filter_bytes // 2

    @steady
    def vector(self) -> int:
        """Elements of x that a copy moves."""
        view = self.g.x
        outer = (view.strides[i] for i in (0, 2, 3) if view.shape[i] > 1)
        return widest(_PIECE, list(outer))

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
        """Whether a block's results of neighbouring pixels follow each other."""
        return self.blocks_n == 1 and self.g.y.strides[4] == self.g.k and self.g.output[2] > 1

    @steady
    def registers(self) -> int:
        """An estimate of a thread's."""
        rounds = -(-self.steps // 8)
        return self.parts * self.block_n // 2 + 8 * -(-self.steps // rounds) + 44

    @cached_property
    def most_registers(self) -> int:
        """Registers that a thread may have."""
        return min(self.target.registers_per_sm // (32 * self.warps * self.value["blocks_per_sm"]), 255) // 8 * 8

    @cached_property
    def fits(self) -> bool:
        """Whether the config may be chosen."""
        t, v, (h, w) = self.target, self.value, self.tile
        pixels = 16 * self.parts
        if self.parts % self.variants or w % pixels or prod(self.tile) > _MOST_PIXELS or self.steps > MOST_STEPS:
            return False
        if h > self.g.output[1] or w >= self.g.output[2] + pixels or self.warps > -(-self.tasks // 4) * 4:
            return False
        each = v["blocks_per_sm"]
        shared = (self.shared_bytes + 1024) * each <= t.shared_bytes_per_sm
        if not shared or self.shared_bytes > t.shared_bytes_per_block or 32 * self.warps * each > t.threads_per_sm:
            return False
        return self.registers <= self.most_registers
