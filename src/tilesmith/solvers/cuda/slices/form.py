"""The form of phases with the axis first along which blocks go, and with phases that begin where the image does.

A filter may begin with taps that do not exist, ``lead`` of them along each axis, and the padding grows by as many.
Where a position sees no more inputs by it, they make the padding a multiple of the stride: no position lies half
outside of the image (the first layer of a video network has 56 lines of positions in place of 57).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tilesmith.problems.geometry import Triple
from tilesmith.solvers.cuda.phases.form import PhasesForm


@dataclass(frozen=True)
class SlicesForm:
    """``phases``, whose filter and padding count ``lead``; its first axis is the one along which blocks go."""

    phases: PhasesForm
    lead: Triple


@lru_cache(maxsize=256)
def slices_form(form: PhasesForm, streamed: int) -> SlicesForm:
    """``form`` with axis ``streamed``, 0 or 1, as the first one."""
    if streamed:
        names = ("filter", "stride", "pad", "size", "out_size")
        changed: dict[str, Any] = {name: _swapped(getattr(form, name)) for name in names}
        source, result = ((n, *_swapped(axes)) for n, *axes in (form.source, form.result))
        weights = (*form.weights[:2], *_swapped(form.weights[2:]))
        form = replace(form, **changed, source=source, result=result, weights=weights)
    axes = list(zip(form.filter, form.stride, form.pad, strict=True))
    d, h, w = (_lead(*axis) for axis in axes)
    filter_, pad = ((a + d, b + h, c + w) for a, b, c in (form.filter, form.pad))
    return SlicesForm(replace(form, filter=filter_, pad=pad), (d, h, w))


def _swapped(axes: tuple[int, ...] | list[int]) -> Triple:
    first, second, third = axes
    return second, first, third


def _lead(filter_: int, stride: int, pad: int) -> int:
    lead = -pad % stride
    return lead if -(-(filter_ + lead) // stride) == -(-filter_ // stride) else 0
