"""One form for all dense problems on any CUDA arch: ``rows x cols`` results for each group (or batch) and phase.

A GEMM's groups are its batch. A convolution's rows are pixels and its columns channels; backward data has a phase for
each residue of the result's position modulo the stride. Backward weights has the filter's channels as rows and
(tap, channel) as columns, and sums over pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilesmith.plan.records import Pointer, Space
from tilesmith.problems.dtypes import acc_dtype, dtype
from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.problems.geometry import GemmGeometry, Triple
from tilesmith.solvers import reasons
from tilesmith.solvers.solver import Rejected, cached_property

HALVES = ("bf16", "fp16")
RESULTS = ("bf16", "fp16", "fp32")
BYTES = ("fp8e4m3", "fp8e5m2")
# Pairs of operand types, and the result types of floating-point products.
_OPERANDS = {("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "fp32"), *((a, b) for a in BYTES for b in BYTES)}
MAX_INDEX = 2**31 - 2**16  # tiles and taps may reach beyond the last element


@dataclass(frozen=True)
class Lines:
    """How an operand lies, in elements.

    ``line`` is the step of its tile axis (rows of A, columns of B; of linear pixels too), ``channel`` that of the
    channels, ``pixel`` the steps of (n, d, h, w), ``tap`` those of the filter's (d, h, w), ``group`` of the group.
    ``by_k`` says that the reduced axis is contiguous in a line (else neighbouring lines are); ``vector`` is how
    many elements can move at once.
    """

    pointer: Pointer
    by_k: bool
    vector: int
    line: int = 0
    channel: int = 1
    pixel: tuple[int, int, int, int] = (0, 0, 0, 0)
    tap: Triple = (0, 0, 0)
    group: int = 0


@dataclass(frozen=True)
class DenseForm:
    """``channels`` are those reduced in one tap (a filter's, for ``wrw``); ``pixels`` those that ``wrw`` sums over.

    ``base`` counts the pixels of a phase, ``size`` the image that the window slides over, ``out_size`` the result's.
    """

    kind: str  # "gemm", "fwd", "bwd" or "wrw"
    dtype: str  # of A; ``tf32``: fp32 that is rounded on its way to the tensor cores
    b_dtype: str
    out_dtype: str
    rows: int
    cols: int
    groups: int
    channels: int
    a: Lines
    b: Lines
    out: Lines
    filter: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    padding: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    base: Triple = (1, 1, 1)
    size: Triple = (1, 1, 1)
    out_size: Triple = (1, 1, 1)
    phases: Triple = (1, 1, 1)
    pixels: int = 0
    linear: bool = False  # the pixels of dy lie evenly (``wrw``)
    bias: Pointer | None = None
    residual: Pointer | None = None
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: Epilogue = IDENTITY

    @property
    def exact(self) -> bool:
        """Single fp32 multiply-adds, no tensor cores."""
        return self.dtype == "fp32"

    @property
    def whole(self) -> bool:
        """Integers."""
        return self.dtype == "int8"

    @cached_property
    def element_bytes(self) -> int:
        return acc_dtype(self.dtype).nbytes

    @cached_property
    def taps(self) -> int:
        return prod(self.filter)

    @cached_property
    def layers(self) -> int:
        return self.groups * prod(self.phases)

    @cached_property
    def padded(self) -> int:
        """Channels of a tap, counted so that no load straddles two taps."""
        if self.kind == "wrw":
            return -(-self.channels // self.b.vector) * self.b.vector
        most = max((o.vector for o in (self.a, self.b) if o.by_k), default=1)
        return -(-self.channels // most) * most

    @cached_property
    def columns(self) -> int:
        """Columns with the padding of taps."""
        return self.taps * self.padded if self.kind == "wrw" else self.cols

    @cached_property
    def length(self) -> int:
        """Elements along k of a phase, the most of all."""
        if self.kind == "wrw":
            return self.pixels
        return self.padded * prod(-(-f // p) for f, p in zip(self.filter, self._periods, strict=True))

    @cached_property
    def moved_bytes(self) -> int:
        """Bytes that must come from memory or go there."""
        image = prod(self.size) * (self.rows // max(1, prod(self.base)))
        cols = self.channels * self.taps if self.kind == "wrw" else self.cols
        if self.kind == "gemm":
            inputs = self.groups * (self.rows + self.cols) * self.channels
        elif self.kind == "wrw":
            inputs = self.groups * self.pixels * (self.rows + self.channels)
        else:
            inputs = self.groups * self.channels * (image + self.taps * self.cols)
        results = self.layers * self.rows * cols * (1 + (self.residual is not None) + (self.beta != 0.0))
        return inputs * self.element_bytes + results * dtype(self.out_dtype).nbytes

    @property
    def _periods(self) -> Triple:
        """Of so many taps in an axis, one belongs to a phase."""
        if self.kind != "bwd":
            return (1, 1, 1)
        from math import gcd

        d, h, w = (s // gcd(s, d) for s, d in zip(self.stride, self.dilation, strict=True))
        return (d, h, w)

    @cached_property
    def deep(self) -> bool:
        """Whether the depth takes part."""
        return (self.filter[0], self.size[0], self.out_size[0], self.base[0]) != (1, 1, 1, 1) or self.padding[0] > 0

    @cached_property
    def inside(self) -> bool:
        """No window reaches beyond the image."""
        if self.kind == "gemm":
            return True
        if self.kind == "bwd":
            return False
        reached = zip(self.base, self.stride, self.dilation, self.filter, self.size, strict=True)
        return not any(self.padding) and all((o - 1) * s + d * (f - 1) < size for o, s, d, f, size in reached)

    @cached_property
    def out_vector(self) -> int:
        """Results that can be stored at once."""
        cols = self.channels if self.kind == "wrw" else self.cols
        if self.out.channel != 1 and cols > 1:
            return 1
        steps = [cols, self.out.line, *self.out.pixel, *self.out.tap]
        if self.groups > 1:
            steps.append(self.out.group)
        return widest(min(8, 16 // dtype(self.out_dtype).nbytes), steps)

    @property
    def products(self) -> int:
        """Multiply-adds, those with padding included."""
        if self.kind == "wrw":
            return self.groups * self.rows * self.cols * self.pixels
        return self.layers * self.rows * self.cols * self.length


def widest(most: int, steps: list[int]) -> int:
    """The widest vector of at most ``most`` elements of which all steps are multiples."""
    while most > 1 and any(step % most for step in steps):
        most //= 2
    return most


def slot(index: int) -> Pointer:
    return Pointer(Space.SLOT, index)


def within_index(form: DenseForm | Rejected) -> DenseForm | Rejected:
    """``form``, if 32 bits index whatever it has."""
    if isinstance(form, Rejected):
        return form
    lengths = (form.rows, form.columns, form.length, form.rows * form.columns)
    return Rejected(reasons.SIZE) if max(lengths) > MAX_INDEX else form


def refuse_types(a: str, b: str, c: str, acc: str) -> Rejected | None:
    """Why products of these types have no form; None if they have one."""
    if (a, b, c, acc) == ("int8", "int8", "int32", "int32"):
        return None
    if (a, b) not in _OPERANDS:
        return Rejected(reasons.DTYPE, f"{a} x {b}")
    if c not in (*RESULTS, *BYTES) or acc != "fp32":
        return Rejected(reasons.DTYPE, f"{c}, accumulated in {acc}")
    return None


@lru_cache(maxsize=256)
def dense_gemm(g: GemmGeometry) -> DenseForm | Rejected:
    """``g`` in the form, or why it has none."""
    refused = refuse_types(g.a.dtype, g.b.dtype, g.c.dtype, g.acc_dtype)
    if refused:
        return refused
    if g.epilogue.residual and g.beta != 0.0:
        return Rejected(reasons.EPILOGUE, "a residual beside beta")
    for view in (g.a, g.b, g.c):
        span = (view.rows - 1) * view.strides[1] + (view.columns - 1) * view.strides[2]
        if span + 1 > MAX_INDEX:
            return Rejected(reasons.SIZE)
    out = 2 + g.epilogue.bias + g.epilogue.residual
    return DenseForm(
        kind="gemm", dtype=g.a.dtype, b_dtype=g.b.dtype, out_dtype=g.c.dtype, rows=g.m, cols=g.n,
        groups=g.batch, channels=g.k,
        a=_matrix(0, g.batch, g.m, g.k, (g.a.strides[0], g.a.strides[1], g.a.strides[2]), g.a.dtype),
        b=_matrix(1, g.batch, g.n, g.k, (g.b.strides[0], g.b.strides[2], g.b.strides[1]), g.b.dtype),
        out=Lines(slot(out), False, 1, g.c.strides[1] if g.m > 1 else 0, g.c.strides[2],
                  group=g.c.strides[0] if g.batch > 1 else 0),
        bias=slot(2) if g.epilogue.bias else None, residual=slot(2 + g.epilogue.bias) if g.epilogue.residual else None,
        alpha=g.alpha, beta=g.beta, epilogue=g.epilogue,
    )  # fmt: skip


def _matrix(index: int, batch: int, lines: int, k: int, strides: tuple[int, int, int], name: str) -> Lines:
    group, line, column = strides
    group = group if batch > 1 else 0
    chunk = 16 // dtype(name).nbytes
    by_k = column == 1 or k == 1
    if line == 1 and lines > 1 and not (column == 1 and k > 1):
        by_k = False
    across = ([line] if lines > 1 else []) if by_k else ([column] if k > 1 else [])
    contiguous = column == 1 or k == 1 if by_k else line == 1
    vector = widest(chunk, [*across, group]) if contiguous else 1
    return Lines(slot(index), by_k, vector, line if lines > 1 else 0, column if k > 1 else 0, group=group)
