"""Products with few channels on both sides, as the kernel sees them.

A 1x1 convolution's pixels lie densely, whatever their channels: memory is read as a stream of whole 16-byte chunks,
and only shared memory knows where rows begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX
from tilesmith.solvers.solver import Rejected

MAX_SUMMED, MAX_COLUMNS, MAX_WEIGHTS = 256, 128, 128
MAX_WIDE_COLUMNS = 256  # by warpgroups


@dataclass(frozen=True)
class ThinForm:
    """``kind`` "rows": ``length`` rows of results; "weights": a small matrix, summed over ``length`` rows of operands.

    For "rows" ``first`` is the width of a row that is read (k), ``second`` that of a row of results (n); for
    "weights" those of both operands' rows (m and n). ``steps`` are the strides of the small matrix: the filter, or
    the result.
    """

    kind: str
    dtype: str
    out_dtype: str
    length: int
    first: int
    second: int
    steps: tuple[int, int]
    bias: bool
    alpha: float
    epilogue: Epilogue

    @property
    def moved_bytes(self) -> int:
        """Bytes that must come from memory or go there."""
        size = dtype(self.out_dtype).nbytes
        if self.kind == "rows":
            return self.length * (self.first * 2 + self.second * size * (1 + self.epilogue.residual))
        return self.length * (self.first + self.second) * 2 + self.first * self.second * size


@lru_cache(maxsize=256)
def thin_form(g: GemmGeometry, columns: int = MAX_COLUMNS, residual: bool = False) -> ThinForm | Rejected:
    """``g`` in the form, or why it has none. ``columns``: the most that rows of results may have.

    ``residual``: whether they may have one, which lies as they do.
    """
    if g.a.dtype != g.b.dtype or g.a.dtype not in HALVES:
        return Rejected(reasons.DTYPE, f"{g.a.dtype} x {g.b.dtype}")
    if g.c.dtype not in (g.a.dtype, "fp32") or g.acc_dtype != "fp32":
        return Rejected(reasons.DTYPE, f"{g.c.dtype}, accumulated in {g.acc_dtype}")
    if g.batch > 1:
        return Rejected(reasons.LAYOUT, f"{g.batch} batches")
    weights = g.k >= g.m
    if g.beta or (g.epilogue.residual and (weights or not residual)):
        return Rejected(reasons.EPILOGUE, "a residual, or beta")
    if max(g.m, g.n, g.k) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    if weights:
        small = g.m <= MAX_WEIGHTS and g.n <= MAX_WEIGHTS
        dense = _dense(g.k, g.m, g.a.strides[2], g.a.strides[1]) and _dense(g.k, g.n, *g.b.strides[1:])
        length, first, steps = g.k, g.m, g.c.strides[1:]
    else:
        small = g.k <= MAX_SUMMED and g.n <= columns
        dense = _dense(g.m, g.k, *g.a.strides[1:]) and _dense(g.m, g.n, *g.c.strides[1:])
        length, first, steps = g.m, g.k, g.b.strides[1:]
    if not small:
        return Rejected(reasons.CHANNELS, f"{g.m} x {g.n} x {g.k}")
    if not dense:
        return Rejected(reasons.LAYOUT, "rows do not lie densely")
    return ThinForm(
        kind="weights" if weights else "rows", dtype=g.a.dtype, out_dtype=g.c.dtype, length=length, first=first,
        second=g.n, steps=steps, bias=g.epilogue.bias, alpha=g.alpha, epilogue=g.epilogue,
    )  # fmt: skip


def _dense(rows: int, columns: int, row: int, column: int) -> bool:
    """Whether ``rows`` of ``columns`` elements lie one after the other without a gap."""
    return (column == 1 or columns == 1) and (row == columns or rows == 1)
