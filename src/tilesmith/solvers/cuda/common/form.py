"""One form for all dense problems on tensor cores: ``rows x cols`` results for each of ``layers``.

A GEMM's layers are its batch. A convolution's rows are pixels, its columns channels; backward data has a layer for each
residue of the result's position modulo the stride. Backward weights has the filter's channels as rows and
(tap, channel) as columns, and sums over pixels.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import lru_cache

from tilesmith.plan.records import Pointer
from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.problems.geometry import GemmGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX, slot
from tilesmith.solvers.lazy import cached_property
from tilesmith.solvers.solver import Rejected


@dataclass(frozen=True)
class Mapped:
    """A tensor as tensor maps see it: its axes, the contiguous one first; ``strides`` are elements of the others."""

    pointer: Pointer
    dims: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Tiled(Mapped):
    """An operand or result of three axes. ``across`` is the one (1 or 2) that a box runs along beside the first."""

    across: int = 1


@dataclass(frozen=True)
class Window(Mapped):
    """Pixels under a moving filter: axes (C, W, H, [D,] N).

    Per spatial axis: the lower corner, the number of base pixels and the step between them.
    """

    corner: tuple[int, ...]
    base: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True)
class Taps:
    """The filter's taps, layer after layer: ``first[i]`` to ``first[i + 1]`` are those of layer ``i``.

    ``offset`` is a tap's distance from the window's corner (W in the low byte, then H, then D), ``index`` its place in
    the filter.
    """

    first: tuple[int, ...] = (0, 1)
    offset: tuple[int, ...] = (0,)
    index: tuple[int, ...] = (0,)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Taps of each layer."""
        return tuple(b - a for a, b in itertools.pairwise(self.first))


@dataclass(frozen=True)
class Placed:
    """Where a result lies, in elements: linear in (layer, row), or pixel by pixel (``pixels``: strides n, d, h, w)."""

    layer: int = 0
    row: int = 0
    column: int = 1
    tap: int = 0
    pixels: tuple[int, int, int, int] | None = None
    sizes: tuple[int, int, int] = (1, 1, 1)  # W, H, D
    phases: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True)
class Sm90Form:
    """``reduced`` is the length of the sum in one tap; ``a_columns`` says that rows of A (columns of B) are contiguous.

    ``mapped`` is the result as a tensor map can store it, None when none can. ``halo``: backward data reads beyond the
    edge of dy, where no products exist.
    """

    kind: str  # "gemm", "conv" or "wrw"
    dtype: str
    out_dtype: str
    rows: int
    cols: int
    layers: int
    reduced: int
    a: Tiled | Window
    b: Tiled | Window
    a_columns: bool
    b_columns: bool
    placed: Placed
    mapped: Tiled | None
    out: Pointer
    bias: Pointer | None = None
    residual: Pointer | None = None
    taps: Taps = field(default_factory=Taps)
    channels: int = 0
    halo: bool = False
    transposed: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: Epilogue = IDENTITY

    @property
    def rank(self) -> int:
        window = self.a if isinstance(self.a, Window) else self.b
        return len(window.dims) if isinstance(window, Window) else 4

    @cached_property
    def intensity(self) -> float:
        """Of a GEMM: operations over the bytes of reading and writing each element once."""
        moved = self.rows * self.reduced + self.reduced * self.cols + self.rows * self.cols
        return self.products / (self.layers * moved)

    @property
    def products(self) -> int:
        """Multiply-adds of the definition."""
        if self.kind == "conv":
            return self.rows * self.cols * self.reduced * len(self.taps.offset)
        cols = self.cols if self.kind == "gemm" else self.channels * len(self.taps.offset)
        return self.layers * self.rows * cols * self.reduced


def result_slots(epilogue: Epilogue) -> tuple[Pointer | None, Pointer | None, Pointer]:
    """Bias, residual and result, which follow two operands."""
    bias = slot(2) if epilogue.bias else None
    residual = slot(2 + epilogue.bias) if epilogue.residual else None
    return bias, residual, slot(2 + epilogue.bias + epilogue.residual)


def aligned(*strides: int) -> bool:
    """Whether strides of 16-bit elements are multiples of the 16 bytes that tensor maps ask for."""
    return all(stride % 8 == 0 and stride > 0 for stride in strides)


def stores_whole(channels: int, owns_gaps: bool = False) -> bool:
    """Whether tensor maps can store rows of so many 16-bit elements.

    What they store ends at a multiple of 16 bytes (seen on an H200), so other rows need gaps that may be overwritten.
    """
    return channels % 8 == 0 or owns_gaps


def refuse_dtypes(a: str, b: str, c: str, acc: str) -> Rejected | None:
    if a != b or a not in HALVES:
        return Rejected(reasons.DTYPE, f"{a} x {b}")
    if c not in (a, "fp32") or acc != "fp32":
        return Rejected(reasons.DTYPE, f"{c}, accumulated in {acc}")
    return None


def steps_along(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """``strides``, those of unit axes replaced by one that is surely aligned."""
    return tuple(8 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))


def pixel_axes(pointer: Pointer, view: TensorView, spatial: int) -> Mapped:
    """A tensor of pixels by (C, W, H, [D,] N); ``spatial`` is 2 or 3."""
    n, c, *sizes = view.shape
    dims = (c, *reversed(sizes[3 - spatial :]), n)
    return Mapped(pointer, dims, steps_along(dims[1:], (*reversed(view.strides[5 - spatial :]), view.strides[0])))


def even_pixels(view: TensorView) -> bool:
    """Whether a tensor map can walk the pixels."""
    return aligned(*steps_along((view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:])))


@lru_cache(maxsize=256)
def gemm_form(g: GemmGeometry, transposed: bool = False) -> Sm90Form | Rejected:
    """``g``, or its transposition ``c^T = b^T a^T`` (for few rows), in the form; or why it has none."""
    refused = refuse_dtypes(g.a.dtype, g.b.dtype, g.c.dtype, g.acc_dtype)
    if refused:
        return refused
    if max(g.m, g.n, g.k) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    if g.c.strides[2] != 1 and g.n > 1:
        return Rejected(reasons.LAYOUT, "c is not row-major")
    if g.epilogue.residual and g.beta != 0.0:
        return Rejected(reasons.EPILOGUE, "a residual beside beta")
    a = _operand(0, g.batch, g.m, g.k, g.a.strides)
    b = _operand(1, g.batch, g.n, g.k, (g.b.strides[0], g.b.strides[2], g.b.strides[1]))
    if a is None or b is None:
        name = "a" if a is None else "b"
        return Rejected(reasons.LAYOUT, f"rows of {name} are no multiples of 16 bytes")
    layer, row = (g.c.strides[0] if g.batch > 1 else 0), (g.c.strides[1] if g.m > 1 else g.n)
    mapped = None
    layer_step, row_step = steps_along((g.batch, g.m), (layer, row))
    bias, residual, out = result_slots(g.epilogue)
    if aligned(layer_step, row_step) and g.c.dtype in HALVES and stores_whole(g.n):
        mapped = Tiled(out, (g.n, g.m, g.batch), (row_step, layer_step))
    rows, cols = (g.n, g.m) if transposed else (g.m, g.n)
    (first, first_columns), (second, second_columns) = (b, a) if transposed else (a, b)
    return Sm90Form(
        kind="gemm", dtype=g.a.dtype, out_dtype=g.c.dtype, rows=rows, cols=cols, layers=g.batch, reduced=g.k,
        a=first, b=second, a_columns=first_columns, b_columns=second_columns,
        placed=Placed(layer, 1 if transposed else row, row if transposed else 1), mapped=mapped, out=out,
        bias=bias, residual=residual, transposed=transposed, alpha=g.alpha, beta=g.beta, epilogue=g.epilogue,
    )  # fmt: skip


def _operand(index: int, batch: int, rows: int, k: int, strides: tuple[int, int, int]) -> tuple[Tiled, bool] | None:
    """The operand, rows x k, as a tensor map reads it, and whether its rows are the contiguous axis."""
    shared = batch == 1 or strides[0] == 0
    layers, layer = (1, 8) if shared else (batch, strides[0])
    row, column = strides[1], strides[2]
    for inner, step, outer, other, by_columns in ((k, column, rows, row, False), (rows, row, k, column, True)):
        (other_step,) = steps_along((outer,), (other,))
        if (step == 1 or inner == 1) and aligned(other_step, layer):
            return Tiled(slot(index), (inner, outer, layers), (other_step, layer)), by_columns
    return None
