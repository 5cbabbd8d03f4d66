"""Databases and exported records as findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tilesmith.db.existing import existing_database
from tilesmith.db.lines import read_line
from tilesmith.db.records import UNTUNED, Record, Search
from tilesmith.db.store import Database, in_order
from tilesmith.db.upkeep import is_outdated
from tilesmith.errors import FileFormatError
from tilesmith.reading import lines_named
from tilesmith.report.places import place_of_records
from tilesmith.report.records import FAILED, OK, Finding, Rival, Source
from tilesmith.solvers.table import external_solver

LONGEST_LINE, MOST_PIPED = 1 << 20, 1 << 30  # bytes of a line and of a pipe
SHOWN = 5  # warnings of one input

Key = tuple[str, str]


@dataclass
class _Held:
    """The records of an input by problem and target."""

    results: dict[Key, list[Record]] = field(default_factory=dict)
    trials: dict[Key, list[Record]] = field(default_factory=dict)
    searches: dict[Key, Search] = field(default_factory=dict)

    def add(self, table: str, record: Record | Search) -> None:
        key = (record.problem, record.target)
        if isinstance(record, Search):
            self.searches[key] = record
        else:
            (self.results if table == "results" else self.trials).setdefault(key, []).append(record)

    @property
    def keys(self) -> list[Key]:
        return sorted({*self.results, *self.trials})


def read_database(path: str) -> Source:
    """Reads the database at ``path`` (a file or a URL). Raises ``FileFormatError`` if it cannot be read."""
    database = existing_database(path)
    try:
        return source_of(database, path)
    finally:
        database.close()


def source_of(database: Database, name: str) -> Source:
    """Reads an open database."""
    held = _Held()
    for record in database.records("results"):
        held.add("results", record)
    for record in database.records("trials"):
        held.add("trials", record)
    for problem, target in held.keys:
        search = database.search(problem, target)
        if search is not None:
            held.add("searches", search)
    return _source(held, name, f"a database ({database.kind})", ())


def read_export(path: str) -> Source:
    """Reads the output of ``db export``. A damaged line is left out with a warning."""
    held, bad, newer = _Held(), list[str](), 0
    for number, raw in enumerate(lines_named(Path(path), LONGEST_LINE, MOST_PIPED), 1):
        try:
            found = read_line((raw or b"?").decode("utf-8", "replace")) if raw != b"" else None
        except FileFormatError as error:
            bad.append(f"{path}:{number}: {error}")
            continue
        if found is not None:
            held.add(*found)
        elif raw:
            newer += 1
    if bad and not held.keys:
        raise FileFormatError(f"{bad[0]}; a report reads databases, what `db export` writes, and results of `bench`")
    warnings = [*bad[:SHOWN], *([f"{path}: {len(bad) - SHOWN} more bad lines"] if len(bad) > SHOWN else [])]
    if newer:
        warnings.append(f"{path}: {newer} lines of a newer format were left out")
    return _source(held, path, "exported records", warnings)


def _source(held: _Held, name: str, kind: str, warnings: Iterable[str]) -> Source:
    findings = tuple(_finding(held, key) for key in held.keys)
    records: dict[str, list[Record]] = {}
    for key, each in (*held.results.items(), *held.trials.items()):
        records.setdefault(key[1], []).extend(each)
    places = tuple(place_of_records(target, each) for target, each in sorted(records.items()))
    return Source(name, kind, findings, places, tuple(warnings))


def _finding(held: _Held, key: Key) -> Finding:
    trials = tuple(held.trials.get(key, ()))
    ranking = in_order(held.results.get(key, ())) or in_order(trials)
    libraries = {record.solver: library for record in ranking if (library := external_solver(record.solver))}
    ours = [record for record in ranking if record.solver not in libraries]
    good = [record for record in ours if record.ok]
    # Today's kernels first, as a call chooses them.
    best = next((record for record in good if not is_outdated(record)), good[0] if good else None)
    rivals = tuple(
        Rival(libraries[record.solver].library, record.time_us, record.spread_us, record.config)
        for record in ranking
        if record.solver in libraries and record.ok and record.time_us
    )
    shown = best or (ours[0] if ours else None)
    search = held.searches.get(key)
    evidence = {} if shown is None else {
        name: getattr(shown, name) for name in ("host", "compiler", "generator", "method", "date", "error", "bound")
    }  # fmt: skip
    return Finding(
        *key, solver=shown.solver if shown else "", config=shown.config if shown else "",
        time_us=best.time_us if best else None, spread_us=best.spread_us if best else None,
        status=OK if best else FAILED, reason="" if best else shown.reason if shown else "no kernel was measured",
        gain=_gain(trials, best), rivals=rivals, trials=trials, search=search, **evidence,
    )  # fmt: skip


def _gain(trials: Iterable[Record], best: Record | None) -> float | None:
    """The untuned choice's time over the best one's: of the choice that the last search noted."""
    noted = [record for record in trials if record.origin == UNTUNED and record.ok]
    untuned = max(noted, key=lambda record: record.date, default=None)
    if best is None or untuned is None or not (best.time_us and untuned.time_us):
        return None
    return untuned.time_us / best.time_us
