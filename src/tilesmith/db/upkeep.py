"""Looking after a database: selecting records, counting them, and throwing away what is of no use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from tilesmith.db.cards import without_card
from tilesmith.db.records import Record
from tilesmith.db.store import Database, Table


@cache
def _revisions() -> dict[str, int]:
    from tilesmith.solvers.table import all_solvers  # most of what looks after a database asks no solver

    return {solver.name: solver.revision for solver in all_solvers()}


def revision_of(solver: str) -> int | None:
    """Today's revision of a solver, in any form; None for one that the table does not have."""
    return _revisions().get(solver.partition("@")[0])


def is_outdated(record: Record) -> bool:
    """The record's solver has had another revision since: it speaks of a kernel that is no longer made."""
    return revision_of(record.solver) not in (None, record.revision)


@dataclass(frozen=True)
class RecordFilter:
    """Which records; every condition that is given must hold.

    ``problems`` are keys, ``target`` and ``solver`` names (``target`` without its end for all that begin so, such as
    ``sm_90a:132`` for every card; ``solver`` in any form, or one ``solver@form``),
    ``older_than`` days of age.
    """

    problems: frozenset[str] | None = None
    target: str = ""
    solver: str = ""
    failed: bool = False
    outdated: bool = False
    older_than: float | None = None

    @property
    def everything(self) -> bool:
        return self == RecordFilter()

    def matches(self, record: Record) -> bool:
        """Records without a date are as old as can be."""
        oldest = None
        if self.older_than is not None:
            oldest = (datetime.now(UTC) - timedelta(days=self.older_than)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            (self.problems is None or record.problem in self.problems)
            and (self.target in ("", record.target) or record.target.startswith(f"{self.target}:"))
            and self.solver in ("", record.solver, record.solver.partition("@")[0])
            and (not self.failed or not record.ok)
            and (not self.outdated or is_outdated(record))
            and (oldest is None or record.date < oldest)
        )


def select(database: Database, table: Table, wanted: RecordFilter) -> Iterator[Record]:
    """The records of a table that are wanted, in the order of their keys."""
    records: Iterable[Record]
    if wanted.problems is not None and without_card(wanted.target) != wanted.target:
        read = database.ranking if table == "results" else database.trials
        records = (record for problem in sorted(wanted.problems) for record in read(problem, wanted.target))
    else:
        records = database.records(table)
    return (record for record in records if wanted.matches(record))


def prune(database: Database, wanted: RecordFilter, *, dry: bool = False) -> dict[str, int]:
    """Remove what is wanted from both tables, and say how much; ``dry`` only counts."""
    counts: dict[str, int] = {}
    tables: tuple[Table, ...] = ("results", "trials")
    for table in tables:
        found = list(select(database, table, wanted))
        counts[table] = len(found) if dry else database.remove(table, found)
    return counts


@dataclass(frozen=True)
class Stats:
    """Counts of a database. ``bytes`` of its files; ``oldest`` and ``newest`` dates of records; None where unknown."""

    name: str
    kind: str
    bytes: int | None
    problems: int
    results: int
    trials: int
    failed: int
    outdated: int
    targets: dict[str, int]
    solvers: dict[str, int]
    oldest: str | None
    newest: str | None


def stats_of(database: Database) -> Stats:
    """Counts of ``results`` by target and solver; ``failed`` and ``outdated`` count results, too."""
    results, trials = list(database.records("results")), 0
    dates = {record.date for record in results if record.date}
    for record in database.records("trials"):
        trials += 1
        dates.add(record.date)
    dates.discard("")
    return Stats(
        database.name, database.kind, _bytes(database.path), len({record.problem for record in results}), len(results),
        trials, sum(not record.ok for record in results), sum(map(is_outdated, results)),
        _count(record.target for record in results), _count(record.solver for record in results),
        min(dates, default=None), max(dates, default=None),
    )  # fmt: skip


def _count(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _bytes(path: Path | None) -> int | None:
    """Of the file, or of the files of its folder of records."""
    if path is None:
        return None
    total = 0
    try:
        total = path.stat().st_size
    except OSError:
        total = 0
    for folder, _, names in os.walk(f"{path}.records"):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
