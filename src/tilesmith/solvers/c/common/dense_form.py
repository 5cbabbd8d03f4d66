"""One form for all dense problems: convolution forward, backward data (deconvolution) and GEMM.

The result at output index ``o`` of a phase is a sum over taps and channels of ``x[o * step + tap.at] * w[tap.index]``.
A forward convolution has one phase; backward data has one phase for each residue of the output position modulo the
stride, each with its own taps and unit steps; a GEMM is a row of ``m`` pixels with a single tap.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry, Triple
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.axis import AxisPhase, axis_phases
from tilesmith.solvers.c.common.family import FLOATS
from tilesmith.solvers.solver import Geometry, Rejected, cached_property
from tilesmith.targets.target import CpuTarget

MAX_PHASES = 512
MAX_TAPS = 4096
MAX_EXTENT = 2**30  # elements that int offsets may span


@dataclass(frozen=True)
class Tap:
    """A filter element: its position ``at`` in the input relative to the output index times the step."""

    at: Triple
    index: Triple


@dataclass(frozen=True)
class Phase:
    """Output positions ``first + index * out_step``, ``count`` of them in each dimension, that share their taps."""

    first: Triple
    count: Triple
    taps: tuple[Tap, ...]

    @cached_property
    def taps_in_row(self) -> int:
        """Taps that differ in the last dimension only; 1 when there are none."""
        return max(1, sum(tap.at[:2] == self.taps[0].at[:2] for tap in self.taps))

    @cached_property
    def tap_spacing(self) -> int:
        """From one tap of a row to the next, 0 when rows have one tap; -1 when it varies."""
        row = [tap.at[2] for tap in self.taps[: self.taps_in_row]]
        away = {b - a for a, b in itertools.pairwise(row)}
        return 0 if not away else away.pop() if len(away) == 1 else -1


@dataclass(frozen=True)
class DenseForm:
    """A dense problem in elements. ``c`` and ``k`` are the reduced and the resulting channels of one group.

    ``x_strides`` and ``y_strides`` are (image, group, channel, d, h, w); ``w_strides`` (group, k, c, d, h, w).
    ``flat`` says that the last output dimension is a count given at run time (GEMM rows).
    """

    images: int
    groups: int
    c: int
    k: int
    x_dtype: str
    w_dtype: str
    y_dtype: str
    x_size: Triple
    x_strides: tuple[int, int, int, int, int, int]
    y_strides: tuple[int, int, int, int, int, int]
    w_strides: tuple[int, int, int, int, int, int]
    bias_group: int
    step: Triple
    out_step: Triple
    phases: tuple[Phase, ...]
    flat: bool
    alpha: float
    beta: float
    epilogue: Epilogue
    slots: int

    @cached_property
    def kinds(self) -> tuple[tuple[Phase, int], ...]:
        """Phases that cost the same, once each, with their number."""
        found: dict[object, tuple[Phase, int]] = {}
        for phase in self.phases:
            key = (phase.count, len(phase.taps), phase.taps_in_row, phase.tap_spacing)
            found[key] = (phase, found[key][1] + 1 if key in found else 1)
        return tuple(found.values())

    @cached_property
    def pixels(self) -> int:
        """Results of one channel, image and group."""
        return sum(p.count[0] * p.count[1] * p.count[2] for p in self.phases)

    @cached_property
    def count(self) -> Triple:
        """The most output indices of any phase, in each dimension."""
        return _triple(max(phase.count[i] for phase in self.phases) for i in range(3))

    @cached_property
    def taps(self) -> tuple[Tap, ...]:
        return tuple(tap for phase in self.phases for tap in phase.taps)

    @cached_property
    def first_tap(self) -> Triple:
        return _triple(min((t.at[i] for t in self.taps), default=0) for i in range(3))

    @cached_property
    def last_tap(self) -> Triple:
        return _triple(max((t.at[i] for t in self.taps), default=0) for i in range(3))

    @cached_property
    def has_halo(self) -> bool:
        """Whether some product reads a position outside the input."""
        return any(self.overhangs(i) for i in range(3))

    @cached_property
    def spacing(self) -> Triple:
        """Only every ``spacing``-th position of the input is read, in each dimension, counted from the first tap."""
        found = []
        for i in range(3):
            away = {tap.at[i] - self.first_tap[i] for tap in self.taps}
            found.append(gcd(0 if i == 0 else self.step[i], *away) or 1)
        return _triple(found)

    def overhangs(self, i: int) -> bool:
        """Whether some product reads outside the input in dimension ``i``."""
        return any(
            tap.at[i] < 0 or (phase.count[i] - 1) * self.step[i] + tap.at[i] >= self.x_size[i]
            for phase in self.phases
            for tap in phase.taps
        )


@lru_cache(maxsize=4096)
def tap_lines(phase: Phase) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """How many taps, the first's position and the distance to the next: in depth, and in height."""
    found = []
    for i in (0, 1):
        places = sorted({tap.at[i] for tap in phase.taps}) or [0]
        found.append((len(places), places[0], places[1] - places[0] if len(places) > 1 else 1))
    return found[0], found[1]


@lru_cache(maxsize=64)
def dense_form(problem: Geometry) -> DenseForm | Rejected:
    """``problem`` in dense form, or why it has none."""
    return _gemm_form(problem) if isinstance(problem, GemmGeometry) else _conv_form(problem)


def _triple(values: Iterable[int]) -> Triple:
    a, b, c = values
    return (a, b, c)


def _refuse_dtypes(x: str, w: str, y: str, acc: str) -> Rejected | None:
    for name in (x, w, y):
        if name not in FLOATS:
            return Rejected(reasons.DTYPE, name)
    return Rejected(reasons.DTYPE, f"accumulates in {acc}") if acc != "fp32" else None


def _conv_form(g: ConvGeometry) -> DenseForm | Rejected:
    if g.direction not in ("fwd", "bwd"):
        return Rejected(reasons.DIRECTION, g.direction)
    source, result = (g.x, g.y) if g.direction == "fwd" else (g.y, g.x)
    refused = _refuse_dtypes(source.dtype, g.w.dtype, result.dtype, g.acc_dtype)
    if refused:
        return refused
    if max(g.x.vector, g.w.vector, g.y.vector) > 1:
        return Rejected(reasons.LAYOUT, "vector layout")
    if not result.channels_last:
        return Rejected(reasons.LAYOUT, f"{result.name} is not channels-last")
    per_axis = [axis_phases(g, i) for i in range(3)]
    if prod(map(len, per_axis)) > MAX_PHASES:
        return Rejected(reasons.STRIDE, f"stride {g.stride}")
    phases = tuple(_join(axes) for axes in itertools.product(*per_axis))
    if sum(len(phase.taps) for phase in phases) > MAX_TAPS:
        return Rejected(reasons.FILTER, f"filter {g.filter}")
    c, k = (g.c, g.k) if g.direction == "fwd" else (g.k, g.c)
    c, k = c // g.groups, k // g.groups
    sn, sc, *spatial = source.strides
    rn, _, *result_spatial = result.strides
    wk, wc, *w_spatial = g.w.strides
    outer, inner = (wk, wc) if g.direction == "fwd" else (wc, wk)
    return DenseForm(
        images=g.n, groups=g.groups, c=c, k=k, x_dtype=source.dtype, w_dtype=g.w.dtype, y_dtype=result.dtype,
        x_size=_triple(source.shape[2:]), x_strides=_six(sn, c * sc, sc, spatial),
        y_strides=_six(rn, k, 1, result_spatial),
        w_strides=_six(g.k // g.groups * wk, outer, inner, w_spatial), bias_group=k,
        step=g.stride if g.direction == "fwd" else (1, 1, 1),
        out_step=(1, 1, 1) if g.direction == "fwd" else g.stride, phases=phases, flat=False, alpha=1.0, beta=0.0,
        epilogue=g.epilogue, slots=3 + g.epilogue.bias + g.epilogue.residual,
    )  # fmt: skip


def _join(axes: tuple[AxisPhase, ...]) -> Phase:
    """One phase of each axis; positions of taps ascend."""
    taps = tuple(
        Tap(_triple(tap.offset for tap in taps), _triple(tap.index for tap in taps))
        for taps in itertools.product(*(sorted(axis.taps, key=lambda tap: tap.offset) for axis in axes))
    )
    return Phase(_triple(axis.out_start for axis in axes), _triple(axis.count for axis in axes), taps)


def _six(image: int, group: int, channel: int, spatial: list[int]) -> tuple[int, int, int, int, int, int]:
    d, h, w = spatial
    return (image, group, channel, d, h, w)


def _gemm_form(g: GemmGeometry) -> DenseForm | Rejected:
    refused = _refuse_dtypes(g.a.dtype, g.b.dtype, g.c.dtype, g.acc_dtype)
    if refused:
        return refused
    if g.c.strides[2] != 1 and g.n > 1:
        return Rejected(reasons.LAYOUT, "c is not row-major")
    shared = g.b.strides[0] == 0 or g.batch == 1
    a, b, c = g.a.strides, g.b.strides, g.c.strides
    images, groups = (g.batch, 1) if shared else (1, g.batch)
    tap = Tap((0, 0, 0), (0, 0, 0))
    if g.batch == 1:  # a step that is never taken must not stand in the text
        a, b, c = ((0, *steps[1:]) for steps in (a, b, c))
    return DenseForm(
        images=images, groups=groups, c=g.k, k=g.n, x_dtype=g.a.dtype, w_dtype=g.b.dtype, y_dtype=g.c.dtype,
        x_size=(1, 1, g.m), x_strides=(a[0], a[0], a[2], 0, 0, a[1]), y_strides=(c[0], c[0], 1, 0, 0, c[1]),
        w_strides=(b[0], b[2], b[1], 0, 0, 0), bias_group=0, step=(1, 1, 1), out_step=(1, 1, 1),
        phases=(Phase((0, 0, 0), (1, 1, g.m), (tap,)),), flat=True, alpha=g.alpha, beta=g.beta, epilogue=g.epilogue,
        slots=3 + g.epilogue.bias + g.epilogue.residual,
    )  # fmt: skip


def uses_dot(form: DenseForm, target: CpuTarget) -> bool:
    """Whether pairs of bf16 are multiplied as they are; everything else is computed in fp32."""
    return target.bf16_dot and form.x_dtype == form.w_dtype == "bf16"
