"""The measured constants for a target: its card's own, else those of the nearest card, scaled."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any, get_type_hints

from tilesmith.targets.fits.fit import Ratios
from tilesmith.targets.target import CpuTarget, CudaTarget

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import CpuFit
    from tilesmith.targets.fits.fit import Fit


# The records are imported when they are first asked for: defining so many fields takes longer than a whole hit.


@lru_cache(maxsize=1)
def fits() -> tuple[Fit, ...]:
    """Those of every GPU card that was measured."""
    from tilesmith.targets.fits.h100 import H100_80GB_HBM3
    from tilesmith.targets.fits.h200 import H200

    return (H200, H100_80GB_HBM3)


@lru_cache(maxsize=1)
def cpu_fits() -> tuple[CpuFit, ...]:
    """Those of every CPU that was measured."""
    from tilesmith.targets.fits.epyc import EPYC

    return (EPYC,)


def fit_of(target: CudaTarget) -> Fit:
    """The constants of the card of ``target``; those of the nearest card of its arch, scaled, if it has none."""
    return _fit(target.card, target.arch, target.cores, target.clock_hz, target.bytes_per_s)


def cpu_fit_of(target: CpuTarget) -> CpuFit:
    """The constants of the CPU of ``target``, or of the nearest one: cycles and rates a cycle, which are not scaled."""
    return min(cpu_fits(), key=lambda fit: (fit.card != target.card, fit.arch != target.arch))


@lru_cache(maxsize=64)
def _fit(card: str, arch: str, cores: int, clock_hz: float, bytes_per_s: float) -> Fit:
    near = min(fits(), key=lambda fit: (fit.card != card, fit.arch != arch, abs(log(fit.cores / cores))))
    if near.card == card:  # what a sheet says of this card is no reason to change what was measured on it
        clock_hz, bytes_per_s = near.clock_hz, near.bytes_per_s
    return scaled(near, cores, clock_hz, bytes_per_s)


def scaled(fit: Fit, cores: int, clock_hz: float, bytes_per_s: float) -> Fit:
    """``fit`` for a card of other peaks: what memory bounds goes with its bandwidth, times go with its clock.

    Constants in cycles, or of a share, stay: estimates count cycles on each SM and divide by the SMs and the clock.
    """
    ratios = Ratios(cores / fit.cores, clock_hz / fit.clock_hz, bytes_per_s / fit.bytes_per_s)
    if (ratios.cores, ratios.clock, ratios.memory) == (1.0, 1.0, 1.0):
        return fit
    parts = {part.name: _part(getattr(fit, part.name), ratios) for part in parts_of(fit)}
    return replace(fit, cores=cores, clock_hz=clock_hz, bytes_per_s=bytes_per_s, **parts)


def parts_of(fit: Fit | CpuFit) -> tuple[Any, ...]:
    """The fields of ``fit`` that hold a kernel's constants."""
    return tuple(part for part in fields(fit) if is_dataclass(getattr(fit, part.name)))


def _part(part: Any, ratios: Ratios) -> Any:
    hints = get_type_hints(type(part), include_extras=True)

    def walk(value: Any, unit: Any) -> Any:
        return tuple(walk(one, unit) for one in value) if isinstance(value, tuple) else ratios.scaled(value, unit)

    changed = {f.name: walk(getattr(part, f.name), hints[f.name].__metadata__[0]) for f in fields(part)}
    return type(part)(**changed)
