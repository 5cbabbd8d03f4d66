"""The log of a search: the record of every config tried, and times that can be compared with each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tilesmith.db.records import Record
from tilesmith.errors import RecordError
from tilesmith.tune.space import Point


@dataclass
class TrialLog:
    """Trials of one problem. ``time_s`` are seconds on this search's one scale (see ``measuring``), fit for ranking.

    ``certified`` are those that have passed every check in this search: the only ones that may be chosen.
    """

    records: dict[Point, Record] = field(default_factory=dict)
    time_s: dict[Point, float] = field(default_factory=dict)
    certified: set[Point] = field(default_factory=set)

    def add(self, point: Point, record: Record, seconds: float | None) -> None:
        self.records[point] = record
        if record.ok and seconds is not None:
            self.time_s[point] = seconds
        else:
            self.time_s.pop(point, None)
            self.certified.discard(point)

    def fastest(self, count: int) -> list[Point]:
        """Ties in the order of names."""
        return sorted(self.time_s, key=lambda point: (self.time_s[point], str(point)))[:count]

    def best(self) -> Point | None:
        return next(iter(self.fastest(1)), None)

    def fastest_of(self, solvers: Iterable[str], certified: bool = False) -> dict[str, Point]:
        """The fastest point of each solver that has one; with ``certified``, of those that may be chosen."""
        found: dict[str, Point] = {}
        wanted = set(solvers)
        for point in self.fastest(len(self.time_s)):
            if point.solver in wanted and (point in self.certified or not certified):
                found.setdefault(point.solver, point)
        return found

    def rescaled(self, point: Point, factor: float) -> Record:
        """A record whose time is put on another session scale."""
        record = self.records[point]
        spread_us = None if record.spread_us is None else record.spread_us * factor  # an imported one may have none
        try:
            return replace(record, time_us=self.time_s[point] * 1e6 * factor, spread_us=spread_us)
        except RecordError:  # an imported time at the edge of what a record holds
            return record

    @property
    def failures(self) -> int:
        return sum(not record.ok for record in self.records.values())
