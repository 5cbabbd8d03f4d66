"""How long the text of a grouped kernel is, and what the kernel adds to a package: less than 10 kB.

A text that would add more is compact: it loops over input rows, over column tiles at the borders, and over results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilesmith.solvers.c.common.axis import AxisPhase, Columns, column_tiles
from tilesmith.solvers.c.common.lanes import LaneMap

if TYPE_CHECKING:
    from tilesmith.solvers.c.grouped.tile import Strips
    from tilesmith.targets.target import CpuTarget

MOST = 9_200  # bytes of an estimate: then at most 10,000 in truth, for all but a few

# What each part of a text adds, stored as packages store it: see notes.md. By the kind of groups: depthwise bf16, other
# narrow ones, wide ones. The first of two is for a text that is not compact, or for results that are no loop.
_PRODUCT = {"twin": (3.4, 5.5), "narrow": (4.4, 5.4), "wide": (1.6, 5.0)}
_READ = {"twin": (7.0, 2.5), "narrow": (1.5, 0.0), "wide": (2.0, 0.0)}
_ROUNDED = {"twin": (24.0, 60.0), "narrow": (60.0, 170.0), "wide": (24.0, 24.0)}  # to bf16
_BY_INSTRUCTION = 0.4  # where there is one
_ACTIVATION = {"none": 0.0, "relu": 10.0, "hardswish": 15.0, "hardsigmoid": 15.0, "tanh": 25.0, "silu": 45.0}
_LONGEST_ACTIVATION = 75.0
_ALONE = 3.0  # an activation in a loop, beside one of many that are alike
_KERNEL = 3200.0


@dataclass(frozen=True)
class TextSize:
    """Multiply-adds of a text, inputs that it reads, vectors of results that it stores, and those of a loop."""

    products: int
    reads: int
    results: int
    looped_results: int


def text_size(
    lanes: LaneMap, strips: Sequence[Strips], widths: Sequence[AxisPhase], columns: int, filter_height: int,
    compact: bool,
) -> TextSize:  # fmt: skip
    """The size of the text for tiles of ``columns`` results in a row."""
    steps = (2 if lanes.pairs and lanes.inner % 2 else 1) if lanes.splat else lanes.steps
    met, read = map(sum, zip(*(kind.in_text(filter_height, compact) for kind in strips), strict=True))
    rows = sum(kind.rows for kind in strips)
    products = reads = results = looped = 0
    for axis in widths:
        for tile, *_ in sharing(column_tiles(axis, columns, compact), compact):
            products += tile.width * len(axis.taps) * met * steps * lanes.vectors
            reads += len(axis.positions(tile.width)) * read * steps
            results += tile.width * rows * lanes.vectors
            looped += len(strips) * lanes.vectors
    both = len(lanes.kinds)
    return TextSize(products * both, reads * both, results * both, looped * both)


def sharing(tiles: Sequence[Columns], compact: bool) -> list[list[Columns]]:
    """The column tiles of each text: in a compact one all of one width that read padding, or all that do not."""
    found: dict[object, list[Columns]] = {}
    for tile in tiles:
        found.setdefault((tile.width, tile.inside) if compact else tile, []).append(tile)
    return list(found.values())


def stored_bytes(
    size: TextSize, lanes: LaneMap, rounded: float, activation: str, compact: bool, looped: bool
) -> float:  # fmt: skip
    """About what a kernel adds to a package; nine of ten add less. ``rounded``: see ``rounding``."""
    kind = "wide" if lanes.splat else "twin" if lanes.twin else "narrow"
    ended = _ACTIVATION.get(activation, _LONGEST_ACTIVATION) * (_ALONE if looped else 1.0)
    ended += _ROUNDED[kind][looped] * rounded
    products, reads = _PRODUCT[kind][compact] * size.products, _READ[kind][compact] * size.reads
    return _KERNEL + products + reads + ended * (size.looped_results if looped else size.results)


def rounding(result: str, target: CpuTarget) -> float:
    """How long the rounding of a result of dtype ``result`` is, beside one to bf16 in steps."""
    if result != "bf16":
        return 0.0
    return _BY_INSTRUCTION if target.bf16_dot else 1.0
