"""Records from one store into another: which of two wins, and text in either form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tilesmith.db.cards import named
from tilesmith.db.find_text import find_line, read_find_line, target_of_file
from tilesmith.db.lines import line_of, read_line
from tilesmith.db.records import RECORD_RULES, Record, Search
from tilesmith.db.store import Database, Table
from tilesmith.errors import ArgumentError, FileFormatError, ProblemError
from tilesmith.reading import lines_named

NEWEST, FASTEST, MINE = "newest", "fastest", "mine"
TABLES: tuple[Table, ...] = ("results", "trials")
LONGEST_LINE, MOST_PIPED, MOST_BAD = 1 << 20, 1 << 30, 1000  # bytes of a line and of a pipe, lines
_CHUNK = 1000

# Whether the incoming record (first) takes the place of the one held (second).
POLICIES: dict[str, Callable[[Record, Record], bool]] = {
    NEWEST: lambda new, held: _moment(new) > _moment(held),
    FASTEST: lambda new, held: _speed(new) > _speed(held),
    MINE: lambda new, held: False,
}


def _moment(record: Record) -> str:
    """When a record was measured; nothing for one from the future, which would stay the newest for years."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return record.date if record.date < tomorrow else ""


def _speed(record: Record) -> tuple[int, bool, float]:
    """A record of an older revision speaks of a kernel that is no longer made."""
    return record.revision, record.ok, -(record.time_us or 0.0)


@dataclass
class ImportResult:
    """Counts of an import: records new here, records replaced and kept, lines left out (newer formats) and bad ones."""

    added: int = 0
    replaced: int = 0
    kept: int = 0
    newer: int = 0
    bad: list[str] = field(default_factory=list)


def merge(
    records: Iterable[tuple[Table, Record]], into: Database, policy: str, result: ImportResult | None = None
) -> ImportResult:
    """Put records into a database; where both have one for the same key, the policy says which stays."""
    result = result or ImportResult()
    wins = POLICIES[policy]
    waiting: dict[Table, dict[tuple[str, ...], Record]] = {table: {} for table in TABLES}

    def flush(table: Table) -> None:
        new = waiting[table]
        held = _held(into, table, new.values())
        put = []
        for key, record in new.items():
            if key not in held:
                result.added += 1
            elif held[key] == record or not wins(record, held[key]):
                result.kept += 1
                continue
            else:
                result.replaced += 1
            put.append(record)
        (into.put_results if table == "results" else into.record_trials)(put)
        new.clear()

    for table, record in records:
        key = _key(table, record)
        other = waiting[table].get(key)
        if other is None or wins(record, other):
            waiting[table][key] = record
        if len(waiting[table]) >= _CHUNK:
            flush(table)
    for table in TABLES:
        flush(table)
    return result


def _key(table: Table, record: Record) -> tuple[str, ...]:
    key = (record.problem, record.target, record.solver)
    return key if table == "results" else (*key, record.config)


def _held(database: Database, table: Table, records: Iterable[Record]) -> dict[tuple[str, ...], Record]:
    pairs = {(record.problem, record.target) for record in records}
    read = database.ranking if table == "results" else database.trials
    return {_key(table, record): record for pair in pairs for record in read(*pair)}


def everything(database: Database) -> Iterator[tuple[Table, Record]]:
    """All answers and all trials."""
    for table in TABLES:
        for record in database.records(table):
            yield table, record


def json_lines(records: Iterable[tuple[Table, Record]]) -> Iterator[str]:
    """One sealed line of JSON a record."""
    return (line_of(table, record) for table, record in records)


def find_db_lines(records: Iterable[Record], left_out: list[str]) -> Iterator[str]:
    """One line of MIOpen's find-db a problem; ``left_out`` takes the keys of problems that have no such line.

    The records of one problem and target follow each other.
    """
    group: list[Record] = []
    for record in (*records, None):
        if group and (record is None or (record.problem, record.target) != (group[0].problem, group[0].target)):
            try:
                line = find_line(group[0].problem, sorted(group, key=lambda r: (r.time_us or 0.0, r.solver)))
            except ProblemError:
                line = ""
            if line:
                yield line
            else:
                left_out.append(group[0].problem)
            group = []
        if record is not None:
            group.append(record)


def import_file(path: Path, into: Database, policy: str, target: str | None = None) -> ImportResult:
    """Read a file of JSON lines or of MIOpen's find-db text. A bad line is noted with its number, the rest is read.

    ``target`` is that of find-db text; without it, what the file's name says. Raises ``FileFormatError`` for a file
    that cannot be read, or text whose target nothing says, and ``ArgumentError`` for a ``target`` that is no name.
    """
    expected = RECORD_RULES["target"].breaks(target) if target else ""
    if expected:
        raise ArgumentError(f"target {target!r} is not {expected}; write it as gfx90a:104")
    result = ImportResult()
    return merge(_read(path, target or target_of_file(path.name), result), into, policy, result)


def _read(path: Path, target: str | None, result: ImportResult) -> Iterator[tuple[Table, Record]]:
    for number, raw in enumerate(lines_named(path, LONGEST_LINE, MOST_PIPED), 1):
        if raw is None:
            result.bad.append(f"{path}:{number}: is longer than {LONGEST_LINE} bytes, which no record is")
        elif line := raw.decode("utf-8", "replace").strip():
            try:
                yield from _records(line, target, result)
            except _NoTargetError:
                raise FileFormatError(
                    f"{path}: find-db text does not say its target; name it with --target, such as gfx90a:104"
                ) from None
            except (FileFormatError, ProblemError) as error:
                result.bad.append(f"{path}:{number}: {error}")
        if len(result.bad) >= MOST_BAD:
            result.bad.append(f"{path}: has {MOST_BAD} bad lines up to here; the rest was not read")
            return


class _NoTargetError(Exception):
    pass


def _records(line: str, target: str | None, result: ImportResult) -> Iterator[tuple[Table, Record]]:
    if not line.startswith("{"):
        answers = read_find_line(line, target or "unknown")
        if target is None:
            raise _NoTargetError
        yield from (("results", named(record)) for record in answers)
        return
    found = read_line(line)
    if found is None:
        result.newer += 1
    elif not isinstance(found[1], Search):
        yield ("trials" if found[0] == "trials" else "results"), named(found[1])
