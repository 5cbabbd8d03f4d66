"""Which packages of an index suit a machine. Pure: targets and lines in, picks out; csrc/ts_target.c ranks alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilesmith.package.index import IndexLine
from tilesmith.targets.fitting import Fit, distance, fit_of
from tilesmith.targets.target import Target


@dataclass(frozen=True)
class Pick:
    """A package of an index, the machine's target that it was taken for, and how it suits that."""

    line: IndexLine
    machine: str
    fit: Fit


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
                line = min(suited, key=lambda each: (distance(machine, each.target), -each.counter))
                picks.setdefault(line, Pick(line, machine.name, fit_of(machine, line.target)))
    return tuple(picks.values())
