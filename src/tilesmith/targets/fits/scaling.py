"""Constants of one card for another one: scaled by the ratios of their peaks."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from tilesmith.targets.fits.units import Ratios

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import CpuFit
    from tilesmith.targets.fits.fit import Fit


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
