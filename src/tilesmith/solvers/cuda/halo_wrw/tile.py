"""Windows, lines of taps, memory and blocks of the sm_90a backward weights that read each window once."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.common.tile import MAX_BOX, WarpgroupTile, most_sums
from tilesmith.solvers.solver import Config, cached_property, steady
from tilesmith.targets.target import CudaTarget

_BARRIERS = 256
_MAX_STAGES = 8
_MOST_SUMS = 128


@dataclass(frozen=True)
class HaloWrwTile(WarpgroupTile):
    """``geometry`` (``wrw``, steps of 1) in tiles of ``tile_h`` x ``tile_w`` pixels of dy.

    A line is ``taps`` neighbouring taps of a row of the filter (of a column, where rows have one tap): one product of
    64 output channels and ``block_c`` input channels of each of its taps; with ``product_k`` = 32, of 32 output
    channels, and of the line's taps and those in the next row of the filter. A block has ``warpgroups_k`` x
    ``warpgroups_lines`` warpgroups: along output channels, and along lines, of which each takes ``lines``. Lines that
    the filter has not are thrown away. ``geometry`` is that of one of the ``groups``.
    """

    geometry: ConvGeometry
    config: Config
    target: CudaTarget
    groups: int = 1
    varied = frozenset(("tile_h", "tile_w", "split_n"))

    @steady
    def warpgroups(self) -> int:
        return self.value["warpgroups_k"] * self.value["warpgroups_lines"]

    @steady
    def along_h(self) -> bool:
        return self.geometry.filter[2] == 1

    @steady
    def pieces(self) -> int:
        """Lines of a row of taps."""
        return ceil(taps_along(self.geometry) / self.value["taps"])

    @steady
    def lines(self) -> int:
        return ceil(self.geometry.filter[2 if self.along_h else 1] / self.rows_each) * self.pieces

    @property
    def rows_each(self) -> int:
        """Rows of the filter that a line has."""
        return 64 // self.value["product_k"]

    @steady
    def chunk(self) -> int:
        """Lines of a block."""
        return self.value["warpgroups_lines"] * self.value["lines"]

    @steady
    def parts(self) -> int:
        """Blocks that share the lines of a plane of taps."""
        return ceil(self.lines / self.chunk)

    @steady
    def _line_starts(self) -> tuple[tuple[int, int], ...]:
        """Place (H, W) of each line's first tap, from the filter's."""
        g = self.value["taps"]
        _, dh, dw = self.geometry.dilation
        found = []
        for line in range(self.parts * self.chunk):
            across, along = divmod(min(line, self.lines - 1), self.pieces)
            r, s = (along * g, across) if self.along_h else (across * self.rows_each, along * g)
            found.append((r * dh, s * dw))
        return tuple(found)

    @steady
    def part_rows(self) -> tuple[int, ...]:
        """For each part, how far down its window begins."""
        return tuple(r for r, _ in self._line_starts[:: self.chunk])

    @cached_property
    def window(self) -> tuple[int, int]:
        """The window's size (W, H)."""
        _, r, s = self.geometry.filter
        _, dh, dw = self.geometry.dilation
        deepest = 0
        for part, begin in enumerate(self.part_rows):
            last = max(row for row, _ in self._line_starts[part * self.chunk : (part + 1) * self.chunk])
            last += ((min(self.value["taps"], r) if self.along_h else self.rows_each) - 1) * dh
            deepest = max(deepest, min(last, (r - 1) * dh) - begin)
        width = self.value["tile_w"] + (s - 1) * dw
        if self.whole:  # the zeros before a row serve as those after the row above
            width -= min(self.geometry.padding[2], self.geometry.padding_high[2], (s - 1) * dw)
        # Copies into shared memory begin at multiples of 128 bytes.
        return (width + width % 2 if self.value["product_k"] == 32 else width), self.value["tile_h"] + deepest

    @cached_property
    def tap_step(self) -> int:
        """Pixels of the window from one tap of a line to the next."""
        _, dh, dw = self.geometry.dilation
        return dh * self.window[0] if self.along_h else dw

    @cached_property
    def row_step(self) -> int:
        """Pixels of the window from a row of taps to the next."""
        return self.geometry.dilation[1] * self.window[0]

    @cached_property
    def dy_lead(self) -> int:
        """Zeros before the first pixel of dy, which the taps of a line's second row meet."""
        return 0 if self.value["product_k"] == 64 else self.row_step

    @cached_property
    def line_rows(self) -> tuple[int, ...]:
        """For each line, the window's pixel that the tile's first one meets at the first tap."""
        parts, width = self.part_rows, self.window[0]
        return tuple((r - parts[i // self.chunk]) * width + s for i, (r, s) in enumerate(self._line_starts))

    @cached_property
    def steps(self) -> int:
        """Products along a tile: its pixels, and what lies between the end of a row and the next, by sixteens."""
        return ceil((self.dy_lead + (self.value["tile_h"] - 1) * self.window[0] + self.value["tile_w"]) / 16)

    @cached_property
    def whole(self) -> bool:
        """Whether one copy brings all rows of dy, zeros between them: what follows a row lies outside of dy."""
        return self.value["tile_w"] >= self.geometry.output[2]

    @cached_property
    def x_rows(self) -> int:
        w, h = self.window
        return max(w * h, self.steps * 16 + max(self.line_rows) + (self.value["taps"] - 1) * self.tap_step)

    @cached_property
    def dy_rows(self) -> int:
        return self.dy_lead + max(self.steps * 16, self.window[0] * self.value["tile_h"] if self.whole else 0)

    @cached_property
    def stage_bytes(self) -> int:
        x = ceil(self.x_rows * self.value["block_c"] * 2 / 1024) * 1024
        return x + self.value["warpgroups_k"] * ceil(self.dy_rows * self.value["product_k"] * 2 / 1024) * 1024

    @cached_property
    def stages(self) -> int:
        return min(_MAX_STAGES, (self.target.shared_bytes_per_block - _BARRIERS) // self.stage_bytes)

    @cached_property
    def shared_bytes(self) -> int:
        return self.stages * self.stage_bytes + _BARRIERS

    @steady
    def columns(self) -> int:
        return self.value["taps"] * self.value["block_c"]

    @steady
    def sums(self) -> int:
        return self.value["lines"] * self.columns // 2

    @steady
    def blocks(self) -> tuple[int, int]:
        """Blocks of output and of input channels."""
        v, g = self.value, self.geometry
        return ceil(g.k / (v["product_k"] * v["warpgroups_k"])), ceil(g.c / v["block_c"])

    @steady
    def units(self) -> int:
        """Shares of the filter that blocks have."""
        return self.units_each * self.groups

    @steady
    def units_each(self) -> int:
        """Those of one group."""
        return prod(self.blocks) * self.parts * self.geometry.filter[0]

    @cached_property
    def across(self) -> tuple[int, int]:
        """Tiles along W and H."""
        _, p, q = self.geometry.output
        return ceil(q / self.value["tile_w"]), ceil(p / self.value["tile_h"])

    @cached_property
    def tiles(self) -> int:
        return prod(self.across) * self.geometry.output[0] * self.geometry.n

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of output channels first: those that share the same pixels run together."""
        return self.blocks[0], self.units // self.blocks[0], self.value["split_n"]

    @steady
    def block_quads(self) -> int:
        """Groups of four sums of a block."""
        return self.warpgroups * 128 * self.sums // 4

    @cached_property
    def partial_bytes(self) -> int:
        return prod(self.grid) * self.block_quads * 16 if self.value["split_n"] > 1 else 0

    @cached_property
    def fits(self) -> bool:
        v, g = self.value, self.geometry
        _, p, q = g.output
        if self.warpgroups > 3 or self.columns > 256 or self.sums > min(_MOST_SUMS, most_sums(self.warpgroups, 1)):
            return False
        if v["tile_h"] > p or v["tile_w"] > q or max(self.window) > MAX_BOX or v["taps"] > taps_along(g):
            return False
        if v["product_k"] == 32 and (self.along_h or g.filter[1] == 1):
            return False
        if self.chunk > self.lines or (v["warpgroups_k"] > 1 and (v["warpgroups_k"] - 1) * v["product_k"] >= g.k):
            return False
        if v["split_n"] > 1 and (v["split_n"] > self.tiles or prod(self.grid) > 4 * self.target.cores):
            return False  # more partial sums than there is use for
        return self.stages >= 2 and self.grid[1] < 2**16


def taps_along(g: ConvGeometry) -> int:
    """Taps in a row of the filter, or in a column where rows have one."""
    return g.filter[1] if g.filter[2] == 1 else g.filter[2]
