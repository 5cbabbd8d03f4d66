"""Strided convolutions as rows of elements: a result meets one run of neighbours in each row of the filter.

Where nothing lies between the pixels of a row, a row of ``width * channels`` elements is one axis. Result ``o`` reads
``run = filter * channels`` of its elements from ``o * step - pad`` on, and a row of the filter is a run, too. So
channels need not be multiples of anything; steps are multiples of 16 bytes.

Rows of the image that are ``stride`` apart share a phase. A row of phase ``a`` meets the taps ``a + stride * t`` for
the results ``t`` rows above, so one read of it serves them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import HALVES, MAX_INDEX
from tilesmith.solvers.solver import Rejected, cached_property

PIECE = 8  # elements of 16 bytes
MAX_TAPS = 4  # results that share a row
_LEAST_COPY = 4  # bytes
# NOTE: where pixels are whole pieces, kernels that read pixels were 1.4 to 2.1 times as fast (see notes.md).
WHOLE_PIXELS = f"pixels of x are multiples of {PIECE} elements: other kernels read them"


@dataclass(frozen=True)
class Rows:
    """``step``, ``pad``, ``run`` and ``row`` are elements of x along a row; axes are (D, H, W)."""

    g: ConvGeometry

    @cached_property
    def step(self) -> int:
        return self.g.stride[2] * self.g.c

    @cached_property
    def pad(self) -> int:
        return self.g.padding[2] * self.g.c

    @cached_property
    def run(self) -> int:
        return self.g.filter[2] * self.g.c

    @cached_property
    def row(self) -> int:
        """Elements of a row of the image."""
        return self.g.input[2] * self.g.c


@dataclass(frozen=True)
class RunsForm(Rows):
    """Of forward and backward weights."""

    @cached_property
    def lead(self) -> int:
        """Elements in front of a run, so that it begins at a multiple of 16 bytes of its row."""
        return -self.pad % PIECE

    @cached_property
    def k_steps(self) -> int:
        """Sixteens of a run and what leads it."""
        return -(-(self.lead + self.run) // 16)

    @cached_property
    def taps(self) -> int:
        """Results that meet a row of x, at most."""
        return -(-self.g.filter[1] // self.g.stride[1])

    @cached_property
    def phases(self) -> int:
        """Phases of rows that meet a tap."""
        return min(self.g.stride[1], self.g.filter[1])

    @cached_property
    def steps(self) -> int:
        """Phases of all planes of the filter."""
        return self.g.filter[0] * self.phases

    @cached_property
    def copy(self) -> int:
        """Bytes of x that move at once."""
        return 2 * gcd(PIECE, *_steps(self.g.x))


def _steps(view: TensorView) -> list[int]:
    """Steps of the images, planes and rows."""
    return [view.strides[axis] for axis in (0, 2, 3) if view.shape[axis] > 1]


def refused(
    g: ConvGeometry, read: TensorView, other: TensorView, result: TensorView, dilation: tuple[int, ...]
) -> Rejected | None:
    """Why rows of elements cannot be used for the product of ``read`` and ``other``; ``dilation`` of the last axes."""
    if read.dtype != other.dtype or read.dtype not in HALVES:
        return Rejected(reasons.DTYPE, f"{read.dtype} x {other.dtype}")
    if result.dtype not in (read.dtype, "fp32") or g.acc_dtype != "fp32":
        return Rejected(reasons.DTYPE, f"{result.dtype}, accumulated in {g.acc_dtype}")
    if g.groups != 1:
        return Rejected(reasons.GROUPS, f"{g.groups} groups")
    if not (g.x.channels_last and g.w.channels_last and g.y.channels_last):
        return Rejected(reasons.LAYOUT, "channels are not contiguous")
    for view, size in ((g.x, g.input[2]), (g.w, g.filter[2])):
        if size > 1 and view.strides[4] != g.c:
            return Rejected(reasons.LAYOUT, f"pixels of {view.name} have gaps")
    if any(d > 1 and f > 1 for d, f in zip(dilation, g.filter[-len(dilation) :], strict=True)):
        return Rejected(reasons.DILATION, f"dilation {g.dilation}")
    return None


@lru_cache(maxsize=256)
def runs_form(g: ConvGeometry) -> RunsForm | Rejected:
    """``g`` in the form, or why it has none."""
    if g.direction not in ("fwd", "wrw"):
        return Rejected(reasons.DIRECTION, g.direction)
    other, result = (g.y, g.w) if g.direction == "wrw" else (g.w, g.y)
    unread = refused(g, g.x, other, result, g.dilation[1:])
    if unread:
        return unread
    form = RunsForm(g)
    if g.c % PIECE == 0:
        return Rejected(reasons.CHANNELS, WHOLE_PIXELS)
    if form.step % PIECE:
        return Rejected(reasons.STRIDE, f"{form.step} elements from result to result, no multiple of {PIECE}")
    if gcd(g.stride[2], g.padding[2], g.padding_high[2], g.input[2], g.filter[2]) > 1:
        return Rejected(reasons.STRIDE, "pixels can be merged: see the rewritten problem")
    if form.copy < _LEAST_COPY:
        return Rejected(reasons.LAYOUT, f"rows begin at multiples of {form.copy} bytes")
    if form.taps > MAX_TAPS:
        return Rejected(reasons.FILTER, f"{form.taps} results share a row")
    if max(span_bytes(v.dtype, v.shape, v.strides) // dtype(v.dtype).nbytes for v in (g.x, g.w, g.y)) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    return form
