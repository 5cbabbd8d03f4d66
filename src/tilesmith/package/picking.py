"""Which packages of an index suit a machine. Pure: targets and lines in, picks out; csrc/ts_machine.c ranks alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

from tilesmith.dispatch.locations import runs_on
from tilesmith.errors import TargetError
from tilesmith.package.index import IndexLine
from tilesmith.targets.cpu import CPU_TARGETS
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CpuTarget, Target


class Fit(IntEnum):
    """How the kernels of a target suit a machine's.

    ``NONE`` the machine lacks instructions of it, or it is a GPU of another arch; ``NEAREST`` they run, and were chosen
    for another machine (another card or number of SMs, or more threads than cores); ``RUNS`` a CPU of the same or a
    lower arch with no more threads than the machine has cores; ``EXACT`` the same name.
    """

    NONE = 0
    NEAREST = 1
    RUNS = 2
    EXACT = 3


@dataclass(frozen=True)
class Pick:
    """A package of an index, the machine's target that it was taken for, and how it suits that."""

    line: IndexLine
    machine: str
    fit: Fit


def fit_of(machine: Target, name: str) -> Fit:
    """How the target of this name suits a machine's; ``NONE`` for what is no target."""
    other = _parsed(name)
    if other is None:
        return Fit.NONE
    if other.name == machine.name:
        return Fit.EXACT
    if isinstance(machine, CpuTarget) and isinstance(other, CpuTarget):
        if not runs_on(other, machine):
            return Fit.NONE
        return Fit.RUNS if other.cores <= machine.cores else Fit.NEAREST
    return Fit.NEAREST if other.arch == machine.arch else Fit.NONE


def pick(
    lines: Iterable[IndexLine], machines: Sequence[Target], least: Fit, names: Sequence[str] = ()
) -> tuple[Pick, ...]:
    """For each of a machine's targets and each name the package of exactly this target, else of the nearest one that
    suits it at least so well; of several the newest.

    Args:
        lines: The packages to choose from.
        machines: The targets of the machine.
        least: What suits less is not taken; not ``NONE``.
        names: Packages of these names alone; empty: of every name.
    """
    wanted = [line for line in lines if not names or line.name in names]
    picks: dict[IndexLine, Pick] = {}
    for machine in machines:
        for name in sorted({line.name for line in wanted}):
            suited = [line for line in wanted if line.name == name and fit_of(machine, line.target) >= least]
            if suited:
                line = min(suited, key=lambda each: (_distance(machine, each.target), -each.counter))
                picks.setdefault(line, Pick(line, machine.name, fit_of(machine, line.target)))
    return tuple(picks.values())


def nearest_names(machine: Target, names: Iterable[str]) -> tuple[str, ...]:
    """The targets that suit a machine at all, the nearest first."""
    suited = {name for name in names if fit_of(machine, name) != Fit.NONE}
    return tuple(sorted(suited, key=lambda name: _distance(machine, name)))


def _distance(machine: Target, name: str) -> tuple[bool, int, Fraction, bool, str]:
    """First the same target; then the same arch, then the highest below it; then the cores, the card, the name."""
    other = _parsed(name)
    assert other is not None
    archs = list(CPU_TARGETS)  # lowest first
    kin = 0 if other.arch == machine.arch else len(archs) - archs.index(other.arch) if other.arch in archs else 1
    return (
        other.name != machine.name,
        kin,
        Fraction(max(other.cores, machine.cores), min(other.cores, machine.cores)),
        other.card != machine.card,
        name,
    )


def _parsed(name: str) -> Target | None:
    try:
        return parse_target(name)
    except TargetError:  # a newer Tilesmith's
        return None
