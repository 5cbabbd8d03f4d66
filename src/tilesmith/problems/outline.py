"""The outline of a problem: its key without batch and image size, which problems that differ in these alone share."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

FACTOR = 2  # between each size of two neighbours, at most
_CONV = re.compile(r"(conv\d+;[^;]*;x=[^,;]*,)([A-Z]+),([0-9]+(?:x[0-9]+)+)(;w=.*)")
_GEMM = re.compile(r"(gemm\d+);m=([0-9]+)(;n=.*)")


@dataclass(frozen=True)
class Outline:
    """A problem's key in three parts.

    ``sizes`` are those of the image's axes, the batch first: of a matrix product, its rows ``m``. ``rest`` is the end
    of the key, from the filter's shape (``n``) on, and ``head`` what is before, with the channels.
    """

    head: str
    sizes: tuple[int, ...]
    rest: str

    def distance(self, other: Outline) -> float | None:
        """The sum of the logarithms of the sizes' ratios; None if they are no neighbours, or one problem."""
        if (self.head, self.rest, len(self.sizes)) != (other.head, other.rest, len(other.sizes)):
            return None
        ratios = [max(a, b) / max(1, min(a, b)) for a, b in zip(self.sizes, other.sizes, strict=True)]
        if self.sizes == other.sizes or max(ratios) > FACTOR:
            return None
        return sum(map(math.log2, ratios))


def outline_of(key: str) -> Outline | None:
    """The parts of a canonical problem's key; None for a text that is none, or of another layout."""
    gemm = _GEMM.fullmatch(key)
    if gemm is not None:
        return Outline(gemm[1], (int(gemm[2]),), gemm[3])
    conv = _CONV.fullmatch(key)
    if conv is None:
        return None
    sizes = dict(zip(conv[2], map(int, conv[3].split("x")), strict=False))
    if conv[2][0] != "N" or len(sizes) != len(conv[2]) or "C" not in sizes:
        return None
    channels = sizes.pop("C")
    return Outline(f"{conv[1]}{conv[2]},{channels}", tuple(sizes.values()), conv[4])
