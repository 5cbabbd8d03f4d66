"""The bias gradient as a sum over merged axes: which elements a thread reads at once, and where its items lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.common.dense import widest

Axes = tuple[tuple[int, int], ...]  # (size, stride) of each, the innermost one first


@dataclass(frozen=True)
class SumsForm:
    """``channels`` sums, each over ``items`` vectors of ``vector`` elements, which move at once.

    With ``columns`` the elements of a vector are neighbouring columns, of which there are ``columns``: ``fold`` pixels
    of all channels make a row where that lets rows begin at whole vectors, and ``left`` pixels remain behind the last
    row. Otherwise the elements of a vector are pixels of one channel, whose rows are ``channel_step`` elements apart.
    ``row`` is the number of elements of such a row where rows begin anywhere (0: at whole vectors): its first and last
    vectors hold elements of its neighbours too, which are not added. ``last`` is where the last whole vector of the
    tensor begins.
    """

    dtype: str
    channels: int
    columns: int
    vector: int
    axes: Axes
    channel_step: int
    fold: int
    left: int
    left_from: int
    row: int
    last: int

    @property
    def items(self) -> int:
        return prod(size for size, _ in self.axes)

    @property
    def chunks(self) -> int:
        """Vectors that lie side by side: those of all columns, or channels."""
        return self.columns // self.vector if self.columns else self.channels

    @property
    def sums(self) -> int:
        """Sums that the first kernel makes."""
        return self.columns or self.channels

    @property
    def nbytes(self) -> int:
        """Bytes of the elements that are added."""
        pixels = self.items * self.fold + self.left if self.columns else self.items * self.vector
        return pixels * self.channels * dtype(self.dtype).nbytes


@lru_cache(maxsize=256)
def sums_form(g: ConvGeometry) -> SumsForm:
    """The form of a bias gradient whose ``dy`` has no vector layout."""
    y, most = g.y, 16 // dtype(g.y.dtype).nbytes
    n, k, d, h, w = y.shape
    axes = _merged(list(zip((n, d, h, w), (y.strides[0], *y.strides[2:]), strict=True)))
    span = span_bytes("int8", y.shape, y.strides)
    last = (span - most) // most * most
    step = y.strides[1] if k > 1 else 0
    if step == 1 and k > 1:
        fold = most // gcd(k, most)
        size, stride = axes[0]
        if fold > 1 and len(axes) == 1 and stride == k and size >= fold:
            rows, left = divmod(size, fold)
            return SumsForm(y.dtype, k, fold * k, most, ((rows, fold * k),), 0, fold, left, rows * fold * k, 0, last)
        vector = widest(most, [k, *(stride for _, stride in axes)])
        return SumsForm(y.dtype, k, k, vector, axes, 0, 1, 0, 0, 0, last)
    (size, stride), *outer = axes
    if stride != 1 or size == 1 or last < 0:
        return SumsForm(y.dtype, k, 0, 1, axes, step, 1, 0, 0, 0, last)
    begins = [step, *(stride for _, stride in outer)]
    half = widest(most, [size, *begins])
    if half * 2 >= most:
        return SumsForm(y.dtype, k, 0, half, ((size // half, half), *outer), step, 1, 0, 0, 0, last)
    chunks = (size + 2 * most - 2) // most  # of a row that begins with the last element of a vector
    if k * prod(size for size, _ in outer) == 1:
        chunks = -(-size // most)
    return SumsForm(y.dtype, k, 0, most, ((chunks, most), *outer), step, 1, 0, 0, size, last)


def _merged(axes: list[tuple[int, int]]) -> Axes:
    """Axes of more than one element, the least stride first; those that continue each other become one.

    The order of the sum may change: it depends on the sizes alone.
    """
    found: list[tuple[int, int]] = []
    for size, stride in sorted((each for each in axes if each[0] > 1), key=lambda each: each[1]):
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = (found[-1][0] * size, found[-1][1])
        else:
            found.append((size, stride))
    return tuple(found) or ((1, 1),)
