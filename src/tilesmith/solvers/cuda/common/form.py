"""One form for all dense problems on tensor cores: ``rows x cols`` results for each of ``layers``.

A GEMM's layers are its batch. A convolution's rows are pixels, its columns channels; backward data has a layer for each
residue of the result's position modulo the stride. Backward weights has the filter's channels as rows and
(tap, channel) as columns, and sums over pixels.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from tilesmith.plan.records import Pointer
from tilesmith.problems.dtypes import acc_dtype, dtype
from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import BYTES, HALVES, MAX_INDEX, slot
from tilesmith.solvers.solver import Rejected, cached_property

# A row of 128 bytes that begins inside a sector of 32 is read as two: what its copy costs over that of one that is not.
# By columns, to begin inside a line of 128 is enough. From 22 products on an H100 (gpu_clusters_h100.jsonl);
# convolutions were measured on an H200.
LINE, SECTOR = 128, 32
_ALONG_K, _BY_COLUMNS, _OF_CONVOLUTIONS = 2.3, 2.75, 2.0


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

    @property
    def corners(self) -> tuple[tuple[int, int], ...]:
        """The lower and the upper corner by axis; the upper one counts from the axis's last pixel."""
        axes = zip(self.corner, self.base, self.step, self.dims[1:-1], strict=True)
        return tuple((lower, lower + (base - 1) * step + 1 - size) for lower, base, step, size in axes)


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
    group: int = 0
    pixels: tuple[int, int, int, int] | None = None
    sizes: tuple[int, int, int] = (1, 1, 1)  # W, H, D
    phases: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True)
class Factors:
    """fp32 factors of an operand: ``share`` rows (columns) and 128 of k have one, or all elements (``along`` is 0).

    From one to the next are ``step`` elements along rows, and ``along`` along k.
    """

    pointer: Pointer
    share: int
    step: int
    along: int


@dataclass(frozen=True)
class Sm90Form:
    """``reduced`` is the length of the sum in one tap; ``a_columns`` says that rows of A (columns of B) are contiguous.

    ``mapped`` is the result as a tensor map can store it, None when none can. ``halo``: backward data reads beyond the
    edge of dy, where no products exist. ``images``: the equal parts of each sum, the operands' third axis.
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
    bias_of_rows: bool = False  # a row has an element of the bias, not a column
    images: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: Epilogue = IDENTITY
    groups: int = 1  # each layer is a group of a phase: the groups of the first phase first
    apart: bool = False  # of "conv": groups are the last axis of the pixels, and zeros lie beyond a group's channels
    b_group: int = 0  # where so and rows of B are contiguous: from group to group, in steps of B's last axis
    b_dtype: str = ""  # as ``dtype`` where it is empty
    scale: Pointer | None = None
    factors: tuple[Factors, Factors] | None = None  # of A's rows and of B's columns

    @property
    def blockwise(self) -> bool:
        """Whether sums of 128 products have factors of their own."""
        return self.factors is not None and self.factors[0].along != 0

    @property
    def factored(self) -> bool:
        """Whether each operand has one factor."""
        return self.factors is not None and not self.blockwise

    @property
    def b_type(self) -> str:
        return self.b_dtype or self.dtype

    @cached_property
    def nbytes(self) -> int:
        """Of an element of either operand."""
        return acc_dtype(self.dtype).nbytes

    @property
    def promoted(self) -> bool:
        """Whether sums of the tensor cores must be added to fp32 ones before they grow long."""
        return self.dtype in BYTES

    @cached_property
    def out_nbytes(self) -> int:
        """Of an element of the result."""
        return dtype(self.out_dtype).nbytes

    @property
    def rank(self) -> int:
        window = self.a if isinstance(self.a, Window) else self.b
        return len(window.dims) if isinstance(window, Window) else 4

    @cached_property
    def intensity(self) -> float:
        """Of a GEMM: operations over the bytes of reading and writing each element once."""
        nbytes = self.nbytes
        moved = nbytes * (self.rows + self.cols) * self.reduced + max(nbytes, 2) * self.rows * self.cols
        return 2 * self.products / (self.layers * moved)

    @cached_property
    def request_costs(self) -> tuple[float, float]:
        """The costs of copies of rows of 128 bytes of both operands, over those of rows that begin at lines."""
        return self._request(self.a, self.a_columns), self._request(self.b, self.b_columns)

    def _request(self, operand: Tiled | Window, by_columns: bool) -> float:
        if isinstance(operand, Window):
            return 1.0
        gemm = self.kind == "gemm"
        whole = LINE if gemm and by_columns else SECTOR
        steps = zip(operand.dims[1:], operand.strides, strict=True)
        if not any(size > 1 and self.nbytes * stride % whole for size, stride in steps):
            return 1.0
        return (_BY_COLUMNS if by_columns else _ALONG_K) if gemm else _OF_CONVOLUTIONS

    @property
    def torn(self) -> bool:
        """Whether copies of rows of an operand begin inside sectors, or inside lines where that counts."""
        return max(self.request_costs) > 1

    @cached_property
    def moved_bytes(self) -> int:
        """Of reading and writing each element once."""
        out = self.layers * self.rows * self.cols
        if self.kind == "wrw":
            out = self.groups * self.rows * len(self.taps.offset) * self.channels
        of_b = self.groups * self.cols * self.channels * len(self.taps.offset) if self.b_group else prod(self.b.dims)
        read = (prod(self.a.dims) + of_b) * self.nbytes
        return read + out * self.out_nbytes * (1 + (self.residual is not None) + (self.beta != 0.0))

    @property
    def products(self) -> int:
        """Multiply-adds of the definition."""
        if self.kind == "conv":
            return self.rows * self.cols * self.reduced * len(self.taps.offset)
        cols = self.cols if self.kind == "gemm" else self.channels * len(self.taps.offset)
        return self.layers * self.rows * cols * self.reduced


def result_slots(epilogue: Epilogue, first: int = 2) -> tuple[Pointer | None, Pointer | None, Pointer]:
    """Bias, residual and result, which follow ``first`` operands."""
    bias = slot(first) if epilogue.bias else None
    residual = slot(first + epilogue.bias) if epilogue.residual else None
    return bias, residual, slot(first + epilogue.bias + epilogue.residual + epilogue.is_scaled)


def scale_slot(epilogue: Epilogue, first: int = 2) -> Pointer | None:
    """The factors of a scale, which stand before the result."""
    return slot(first + epilogue.bias + epilogue.residual) if epilogue.is_scaled else None


def aligned(*strides: int, nbytes: int = 2) -> bool:
    """Whether strides of elements of ``nbytes`` are multiples of the 16 bytes that tensor maps ask for."""
    return all(stride * nbytes % 16 == 0 and stride > 0 for stride in strides)


def stores_whole(channels: int, owns_gaps: bool = False, nbytes: int = 2) -> bool:
    """Whether tensor maps can store rows of so many elements of ``nbytes``.

    What they store ends at a multiple of 16 bytes (seen on an H200), so other rows need gaps that may be overwritten.
    """
    return channels * nbytes % 16 == 0 or owns_gaps


def refuse_dtypes(a: str, b: str, c: str, acc: str, tf32: bool = False) -> Rejected | None:
    if a == b == "int8":
        return None if acc == "int32" else Rejected(reasons.DTYPE, f"{c}, accumulated in {acc}")
    bytes_ = a in BYTES and b in BYTES
    if not (bytes_ or (a == b and (a in HALVES or (a == "fp32" and tf32)))):
        return Rejected(reasons.DTYPE, f"{a} x {b}")
    if c not in ((*HALVES, *BYTES, "fp32") if bytes_ else (a, "fp32")) or acc != "fp32":
        return Rejected(reasons.DTYPE, f"{c}, accumulated in {acc}")
    return None


def element_of(name: str, tf32: bool) -> str:
    """The type that products see: ``tf32`` for fp32 that is rounded as it is loaded."""
    return "tf32" if name == "fp32" and tf32 else name


def steps_along(sizes: tuple[int, ...], strides: tuple[int, ...], nbytes: int = 2) -> tuple[int, ...]:
    """``strides`` of elements of ``nbytes``, those of unit axes replaced by one that is surely aligned."""
    return tuple(16 // nbytes if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))


@lru_cache(maxsize=256)
def gemm_form(g: GemmGeometry, transposed: bool = False) -> Sm90Form | Rejected:
    """``g``, or its transposition ``c^T = b^T a^T`` (for few rows), in the form; or why it has none."""
    refused = refuse_dtypes(g.a.dtype, g.b.dtype, g.c.dtype, g.acc_dtype, g.tf32)
    if refused:
        return refused
    if max(g.m, g.n, g.k) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    if g.c.strides[2] != 1 and g.n > 1:
        return Rejected(reasons.LAYOUT, "c is not row-major")
    if g.epilogue.residual and g.beta != 0.0:
        return Rejected(reasons.EPILOGUE, "a residual beside beta")
    if g.c.dtype == "int32" and (g.alpha, g.beta, g.epilogue.is_identity) != (1.0, 0.0, True):
        return Rejected(reasons.EPILOGUE, "an epilogue of integers")
    nbytes = dtype(g.a.dtype).nbytes
    a = _operand(0, g.batch, g.m, g.k, g.a.strides, nbytes)
    b = _operand(1, g.batch, g.n, g.k, (g.b.strides[0], g.b.strides[2], g.b.strides[1]), nbytes)
    if a is None or b is None:
        name = "a" if a is None else "b"
        return Rejected(reasons.LAYOUT, f"rows of {name} are no multiples of 16 bytes")
    # Of TF32, one operand may lie otherwise; of bytes none.
    if nbytes != 2 and a[1] + b[1] > (nbytes == 4):
        return Rejected(reasons.LAYOUT, f"rows of {'a' if a[1] else 'b'} are contiguous, and k is not")
    layer, row = (g.c.strides[0] if g.batch > 1 else 0), (g.c.strides[1] if g.m > 1 else g.n)
    mapped = None
    of_result = dtype(g.c.dtype).nbytes
    layer_step, row_step = steps_along((g.batch, g.m), (layer, row), of_result)
    bias, residual, out = result_slots(g.epilogue, g.first_extra)
    factors = (Factors(slot(2), *g.scale_steps("a")), Factors(slot(3), *g.scale_steps("b")))
    stored = g.c.dtype in HALVES or nbytes != 2
    if stored and aligned(layer_step, row_step, nbytes=of_result) and stores_whole(g.n, nbytes=of_result):
        mapped = Tiled(out, (g.n, g.m, g.batch), (row_step, layer_step))
    rows, cols = (g.n, g.m) if transposed else (g.m, g.n)
    (first, first_columns), (second, second_columns) = (b, a) if transposed else (a, b)
    types = (g.b.dtype, g.a.dtype) if transposed else (g.a.dtype, g.b.dtype)
    return Sm90Form(
        kind="gemm", dtype=element_of(types[0], g.tf32), out_dtype=g.c.dtype, rows=rows, cols=cols, layers=g.batch,
        reduced=g.k, a=first, b=second, a_columns=first_columns, b_columns=second_columns,
        placed=Placed(layer, 1 if transposed else row, row if transposed else 1), mapped=mapped, out=out,
        bias=bias, residual=residual, transposed=transposed, bias_of_rows=transposed, alpha=g.alpha, beta=g.beta,
        epilogue=g.epilogue, b_dtype=element_of(types[1], g.tf32), scale=scale_slot(g.epilogue, g.first_extra),
        factors=(factors[::-1] if transposed else factors) if g.has_scales else None,
    )  # fmt: skip


def _operand(
    index: int, batch: int, rows: int, k: int, strides: tuple[int, int, int], nbytes: int
) -> tuple[Tiled, bool] | None:
    """The operand, rows x k, as a tensor map reads it, and whether its rows are the contiguous axis."""
    shared = batch == 1 or strides[0] == 0
    layers, layer = (1, 16 // nbytes) if shared else (batch, strides[0])
    row, column = strides[1], strides[2]
    for inner, step, outer, other, by_columns in ((k, column, rows, row, False), (rows, row, k, column, True)):
        (other_step,) = steps_along((outer,), (other,), nbytes)
        if (step == 1 or inner == 1) and aligned(other_step, layer, nbytes=nbytes):
            return Tiled(slot(index), (inner, outer, layers), (other_step, layer)), by_columns
    return None
