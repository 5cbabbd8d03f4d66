"""The form of a problem that solvers read: a canonical problem as plain numbers, always in three spatial dimensions.

A signature says what was asked in the user's words; its geometry has no layouts left, only logical axes and strides.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.epilogue import Epilogue

Triple = tuple[int, int, int]
# Kinds of factors of an operand: rows (columns of ``b``) that share one. Along k, SCALE_K elements do.
SCALE_BLOCKS = {"1x128": 1, "128x128": 128}
SCALE_K = 128


@dataclass(frozen=True)
class TensorView:
    """A tensor as logical axes ``(N, C, D, H, W)``; a filter's are ``(K, C/groups, D, H, W)``.

    Element ``(n, c, d, h, w)`` lies at ``n*s[0] + (c // vector)*s[1] + c % vector + d*s[2] + h*s[3] + w*s[4]`` elements
    (with ``vector == 1``: ``c*s[1]``). ``name`` is the slot: ``x``, ``w`` or ``y``. ``owns_gaps`` says that what lies
    between the elements may be overwritten: in a plan's own copy, never in a user's tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, int, int, int, int]
    strides: tuple[int, int, int, int, int]
    vector: int = 1
    owns_gaps: bool = False

    @property
    def channels_last(self) -> bool:
        """Channels are contiguous (``NHWC`` with any pitch): what most fast kernels read."""
        return self.vector == 1 and (self.strides[1] == 1 or self.shape[1] == 1)


@dataclass(frozen=True)
class ConvGeometry:
    """A non-transposed convolution problem in three spatial dimensions ``(D, H, W)``.

    ``direction`` is ``fwd`` (``y`` from ``x, w``), ``bwd`` (``x`` from ``y, w``), ``wrw`` (``w`` from ``y, x``) or
    ``bgrad`` (the sum of ``y`` over all but channels). ``x`` is the forward input or its gradient, ``y`` the forward
    output or its gradient.
    ``output = (input + padding + padding_high - dilation*(filter - 1) - 1) // stride + 1`` in each dimension.
    ``padding`` lies before the first element, ``padding_high`` behind the last one; where they differ, the latter is
    the least that gives the output.
    The epilogue applies to the result of ``fwd`` and ``bwd``.
    """

    direction: str
    n: int
    c: int
    k: int
    groups: int
    input: Triple
    filter: Triple
    output: Triple
    stride: Triple
    padding: Triple
    padding_high: Triple
    dilation: Triple
    x: TensorView
    w: TensorView
    y: TensorView
    acc_dtype: str
    epilogue: Epilogue
    deterministic: bool
    tf32: bool = False  # operands may be rounded to TF32 before they are multiplied

    @property
    def is_padded(self) -> bool:
        return any(self.padding) or any(self.padding_high)

    @property
    def deep(self) -> bool:
        """Whether images, the filter or the padding have a depth; else all lies in one plane."""
        return (self.input[0], self.filter[0], self.output[0], self.padding[0]) != (1, 1, 1, 0)

    @property
    def reduction_length(self) -> int:
        """Products summed into one result element, at most."""
        taps = self.filter[0] * self.filter[1] * self.filter[2]
        pixels = self.n * self.output[0] * self.output[1] * self.output[2]
        return {
            "fwd": self.c // self.groups * taps,
            "bwd": self.k // self.groups * taps,
            "wrw": pixels,
            "bgrad": pixels,
        }[self.direction]


@dataclass(frozen=True)
class MatrixView:
    """A batched matrix: element ``(b, i, j)`` lies at ``b*strides[0] + i*strides[1] + j*strides[2]`` elements.

    ``rows`` and ``columns`` are those of the operand as it is multiplied (after transposition).
    """

    name: str
    dtype: str
    batch: int
    rows: int
    columns: int
    strides: tuple[int, int, int]


class OperandOrder:
    """The arguments of a GEMM that stand before those of its epilogue."""

    groups: int
    a_scale: str

    @property
    def has_scales(self) -> bool:
        """Whether the operands have factors."""
        return self.a_scale != "none"

    @property
    def first_extra(self) -> int:
        """The index of the first argument that belongs to the epilogue, or of the result."""
        return 2 + (self.groups > 0) + 2 * self.has_scales


@dataclass(frozen=True)
class GemmGeometry(OperandOrder):
    """``c = activation(scale * (alpha * a @ b) + beta * c + bias + residual)`` for each batch.

    ``a`` is m x k, ``b`` k x n, ``c`` m x n.
    ``bias`` has one element per column ``n``. With ``beta == 0``, ``c`` is not read (a NaN there does not matter).
    With ``groups``, ``b`` has that many matrices, and int32 ``ends`` on the device say which rows each of them
    multiplies: from the greatest end before (0 at first) up to its own, both clamped to ``m``. The other rows are 0.
    With ``a_scale`` and ``b_scale``, elements of the operands count times a factor each: of the tensor or of a block.
    """

    batch: int
    m: int
    n: int
    k: int
    a: MatrixView
    b: MatrixView
    c: MatrixView
    alpha: float
    beta: float
    acc_dtype: str
    epilogue: Epilogue
    deterministic: bool
    tf32: bool = False  # operands may be rounded to TF32 before they are multiplied
    groups: int = 0
    a_scale: str = "none"
    b_scale: str = "none"

    def scale_steps(self, name: str) -> tuple[int, int, int]:
        """Of the factors of ``a`` or ``b``: rows (columns of ``b``) that share one, the elements from one to the next
        along those, and along k."""
        kind, rows = (self.a_scale, self.m) if name == "a" else (self.b_scale, self.n)
        if kind not in SCALE_BLOCKS:
            return 1, 0, 0
        return (1, 1, rows) if kind == "1x128" else (SCALE_BLOCKS[kind], -(-self.k // SCALE_K), 1)


def has_gaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements lie between those of the tensor, or some are read for several places; its axes in any order."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride != expected:
            return True
        expected *= size
    return False
