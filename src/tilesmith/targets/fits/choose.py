"""The measured constants for a target: its card's own, else those of the nearest card, scaled."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import TYPE_CHECKING

from tilesmith.targets.fits.scaling import scaled
from tilesmith.targets.target import CpuTarget, CudaTarget

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import CpuFit, TilesFit
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
    from tilesmith.targets.fits.emerald_rapids import EMERALD_RAPIDS
    from tilesmith.targets.fits.epyc import EPYC

    return (EPYC, EMERALD_RAPIDS)


def fit_of(target: CudaTarget) -> Fit:
    """The constants of the card of ``target``; those of the nearest card of its arch, scaled, if it has none."""
    return _fit(target.card, target.arch, target.cores, target.clock_hz, target.bytes_per_s)


def cpu_fit_of(target: CpuTarget) -> CpuFit:
    """The constants of the CPU of ``target``, or of the nearest one: cycles and rates a cycle, which are not scaled."""
    return min(cpu_fits(), key=lambda fit: (fit.card != target.card, fit.arch != target.arch))


def tiles_fit_of(target: CpuTarget) -> TilesFit:
    """The constants of matrix tiles of the CPU of ``target``, or of the nearest one that has them."""
    found = [(fit.card != target.card, fit.arch != target.arch, fit.tiles) for fit in cpu_fits() if fit.tiles]
    return min(found, key=lambda each: each[:2])[2]


@lru_cache(maxsize=64)
def _fit(card: str, arch: str, cores: int, clock_hz: float, bytes_per_s: float) -> Fit:
    near = min(fits(), key=lambda fit: (fit.card != card, fit.arch != arch, abs(log(fit.cores / cores))))
    if near.card == card:  # what a sheet says of this card is no reason to change what was measured on it
        clock_hz, bytes_per_s = near.clock_hz, near.bytes_per_s
    return scaled(near, cores, clock_hz, bytes_per_s)
