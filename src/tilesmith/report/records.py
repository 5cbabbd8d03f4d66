"""Records of a report: one problem on one target, and the machines on which it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilesmith.db.records import Record, Search
from tilesmith.measure.machine import Machine

OK, DISTURBED, FAILED = "ok", "disturbed", "failed"


@dataclass(frozen=True)
class Rival:
    """The best time of another library on the same problem, in microseconds, and the mode that reached it."""

    name: str
    time_us: float
    spread_us: float | None = None
    mode: str = ""


def _time_of(rival: Rival) -> float:
    return rival.time_us


@dataclass(frozen=True)
class Finding:
    """One problem on one target, as one or more inputs know it.

    ``problem`` is the canonical key. ``time_us`` and ``spread_us`` are the median and its notch of ``solver`` with
    ``config``; None where nothing works. ``gain`` is the time of the untuned choice over the tuned one, measured in one
    search; None where no input says it. ``trials`` are the configs tried, and ``search`` the last search.
    ``lists`` are the names of the lists that the problem belongs to. ``roof_us`` is the least time that the machine
    allows, where the input says it. ``host``, ``compiler``, ``generator``, ``method`` and ``date`` are the evidence.
    """

    problem: str
    target: str
    solver: str = ""
    config: str = ""
    time_us: float | None = None
    spread_us: float | None = None
    status: str = OK
    reason: str = ""
    gain: float | None = None
    rivals: tuple[Rival, ...] = ()
    trials: tuple[Record, ...] = ()
    search: Search | None = None
    lists: tuple[str, ...] = ()
    command: str = ""
    roof_us: float | None = None
    error: float | None = None
    bound: float | None = None
    host: str = ""
    compiler: str = ""
    generator: str = ""
    method: str = ""
    date: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.problem, self.target

    @property
    def rival(self) -> Rival | None:
        """The fastest other library."""
        return min(self.rivals, key=_time_of) if self.rivals else None

    @property
    def ratio(self) -> float | None:
        """The time of the fastest other library over ours: above 1 ours is faster. None where one of them is unknown,
        or other processes disturbed the times."""
        rival = self.rival
        return rival.time_us / self.time_us if rival is not None and self.time_us and self.status == OK else None


@dataclass(frozen=True)
class Place:
    """One machine of an input: its target, facts in words, and the peaks that bound every kernel (None: unknown)."""

    target: str
    facts: Mapping[str, str]
    machine: Machine | None = None


@dataclass(frozen=True)
class Source:
    """One input: its name, what it is in words, what it holds, and what could not be used of it."""

    name: str
    kind: str
    findings: tuple[Finding, ...]
    places: tuple[Place, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Findings:
    """Everything that a report is made of."""

    results: tuple[Finding, ...]
    places: tuple[Place, ...]
    sources: tuple[Source, ...]
    warnings: tuple[str, ...] = field(default=())
