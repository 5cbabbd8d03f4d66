"""One SQLite file: safe for several processes and threads, and for a process that is killed at any moment.

It uses the rollback journal, short transactions and a busy timeout. A write has ended when it is on the disk; a file
that was replaced meanwhile is written again. A file that fails while it is in use is given up with a warning, and
memory takes its place.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tilesmith.db.connect import (
    LOG,
    POLL_S,
    Opened,
    identity,
    is_busy,
    is_damage,
    is_sealed_off,
    memory,
    must_be_admitted,
    open_file,
    set_aside,
    snapshot,
    stamp,
    wait_no_longer,
    why_unreadable,
)
from tilesmith.db.files import FileDatabase, must_be_files
from tilesmith.db.records import Record, Search
from tilesmith.db.schema import FIELDS, HAS_INDEX, NEIGHBOURS, TABLES, check_tables
from tilesmith.db.seal import seal_of, sound_record, sound_search, values_of
from tilesmith.db.store import Database, Table, in_order
from tilesmith.db.waiting import left_s, operation
from tilesmith.errors import RecordError
from tilesmith.problems.outline import FACTOR, outline_of

T = TypeVar("T")
_CHUNK = 500
_NEIGHBOURS = 64  # that are looked at on each side, the nearest batch first
_KEYS = {
    "results": ("problem", "target", "solver"),
    "trials": ("problem", "target", "solver", "config"),
    "searches": ("problem", "target"),
}
_SELECT_KEYED = {
    table: f"SELECT {', '.join(FIELDS[table])}, seal, {', '.join(f'CAST({name} AS BLOB)' for name in _KEYS[table])} "
    f"FROM {table}"
    for table in TABLES
}
_SELECT = {table: f"SELECT {', '.join(FIELDS[table])}, seal FROM {table}" for table in TABLES}
_PUT = {
    table: f"INSERT OR REPLACE INTO {table} ({', '.join(FIELDS[table])}, seal) "
    f"VALUES ({', '.join('?' * (len(FIELDS[table]) + 1))})"
    for table in TABLES
}


class SqliteDatabase(Database):
    """A find-db and perf-db in one SQLite file, or in memory."""

    def __init__(self, path: Path | None, opened: Opened, readonly: bool, waits: bool = False) -> None:
        self.path = path
        self._waits = waits  # for its trial
        self._instead: Database | None = None  # when it has failed the trial
        self.readonly = readonly
        self._take(opened)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._checked: sqlite3.Connection | None = None  # whose tables are what they should be

    @staticmethod
    def at(path: Path, readonly: bool, waits: bool = False) -> SqliteDatabase:
        """The file at ``path``, or what stands for it; ``waits`` for the trial of its folder until it is written."""
        return SqliteDatabase(path, open_file(path, readonly), readonly, waits)

    @staticmethod
    def in_memory() -> SqliteDatabase:
        """A database that goes with the process."""
        return SqliteDatabase(None, Opened(memory()), readonly=False)

    @property
    def kind(self) -> str:
        return "an SQLite file" if self.persistent or self.readonly else "memory"

    def for_writing(self) -> Database:
        with self._lock:
            if self._waits and self.path is not None and self.persistent and must_be_files(self.path):
                self._instead = in_files(self.path, readonly=False)
            self._waits = False
            return self._instead or self

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def record_trials(self, records: Iterable[Record]) -> None:
        self._put("trials", list(records))

    def trials(self, problem: str, target: str, solver: str | None = None) -> tuple[Record, ...]:
        where, values = "problem = ? AND target = ?", [problem, target]
        if solver is not None:
            where, values = where + " AND solver = ?", [*values, solver]
        return self._get("trials", where, values)

    def put_results(self, records: Iterable[Record]) -> None:
        self._put("results", list(records))

    def ranking(self, problem: str, target: str) -> tuple[Record, ...]:
        return self._get("results", "problem = ? AND target = ?", [problem, target])

    def targets_of(self, problem: str) -> tuple[str, ...]:
        query = "SELECT DISTINCT target FROM results WHERE problem = ? ORDER BY 1"
        return tuple(str(row[0]) for row in self._rows(query, [problem]))

    def problems(self, target: str | None = None) -> tuple[tuple[str, str], ...]:
        where, values = ("target = ?", [target]) if target is not None else ("1", [])
        query = f"SELECT DISTINCT problem, target FROM results WHERE {where} ORDER BY 1, 2"
        return tuple((str(problem), str(name)) for problem, name in self._rows(query, values))

    def may_hold_answers(self) -> bool:
        return bool(self._rows("SELECT 1 FROM results LIMIT 1", [])) or not (self.persistent or self.readonly)

    def neighbours(self, problem: str, target: str) -> tuple[str, ...]:
        outline = outline_of(problem)
        if outline is None or not self._rows(HAS_INDEX, []):
            return ()
        first, same = outline.sizes[0], [target, outline.rest]
        ranges = ((-(-first // FACTOR), first), (first, first * FACTOR))
        found = [self._rows(query, [*same, *sizes, _NEIGHBOURS])
                 for query, sizes in zip(NEIGHBOURS, ranges, strict=True)]  # fmt: skip
        return tuple(dict.fromkeys(str(row[0]) for rows in found for row in rows))

    def put_search(self, search: Search) -> None:
        self.put_searches([search])

    def put_searches(self, searches: Iterable[Search]) -> None:
        self._put("searches", list(searches))

    def search(self, problem: str, target: str) -> Search | None:
        rows = self._rows(f"{_SELECT['searches']} WHERE problem = ? AND target = ?", [problem, target])
        if not rows:
            return None
        try:
            return sound_search(rows[0][:-1], rows[0][-1])
        except RecordError as error:
            self._complain(rows[0], error)
            return None

    def records(self, table: Table) -> Iterator[Record]:
        names, keys = _KEYS[table], ", ".join(_KEYS[table])
        # Keys are compared as the bytes that they are: text that is damaged reads as other text, before or behind it.
        texts = " AND ".join(f"typeof({name}) = 'text'" for name in names)
        marks = ", ".join(["CAST(? AS TEXT)"] * len(names))
        last: tuple[Any, ...] = ()
        while True:  # in pieces, so that no process waits for a reader of the whole table
            where = f"{texts} AND ({keys}) > ({marks})" if last else texts
            rows = self._rows(f"{_SELECT_KEYED[table]} WHERE {where} ORDER BY {keys} LIMIT {_CHUNK}", last)
            for row in rows:
                record = self._record(row[: -len(names)])
                if record is not None:
                    yield record
            if len(rows) < _CHUNK:
                return
            last = row[-len(names) :]

    def remove(self, table: Table, records: Sequence[Record]) -> int:
        where = " AND ".join(f"{name} = ?" for name in _KEYS[table])
        keys = [tuple(getattr(record, name) for name in _KEYS[table]) for record in records]
        return self._write(f"DELETE FROM {table} WHERE {where}", keys)

    def check(self) -> tuple[str, ...]:
        if self.path is not None and not self.persistent:  # what is looked at may stand for a file that says nothing
            reason = why_unreadable(self.path)
            if reason is not None:
                return (f"{self.name}: cannot be read as a database ({reason})",)
        found = [str(row[0]) for row in self._rows("PRAGMA integrity_check(20)", [])]
        lines = [f"{self.name}: {line}" for line in found if line != "ok"]
        for table in TABLES:
            lines += [
                f"{self.name}: {table}: a damaged row ({_shown(row)}): {reason}"
                for row, _, reason in self._damaged(table)
            ]
        return tuple(lines)

    def repair(self) -> int:
        count = 0
        for table in TABLES:
            where = " AND ".join(f"CAST({name} AS BLOB) IS ?" for name in _KEYS[table])
            count += self._write(f"DELETE FROM {table} WHERE {where}", [keys for _, keys, _ in self._damaged(table)])
        return count

    # --- access ---------------------------------------------------------------------------------------------------

    def _damaged(self, table: str) -> list[tuple[tuple[Any, ...], tuple[Any, ...], str]]:
        """The rows that are not used, with the bytes of their keys, and what is wrong with each."""
        read = sound_search if table == "searches" else sound_record
        count, found = len(_KEYS[table]), []
        for values in self._rows(_SELECT_KEYED[table], []):
            row, keys = values[:-count], values[-count:]
            try:
                read(row[:-1], row[-1])
            except RecordError as error:
                found.append((row, keys, str(error)))
        return found

    def _get(self, table: str, where: str, values: list[str]) -> tuple[Record, ...]:
        rows = self._rows(f"{_SELECT[table]} WHERE {where}", values)
        return in_order(record for record in map(self._record, rows) if record is not None)

    def _record(self, row: tuple[Any, ...]) -> Record | None:
        """A row as a record; a row whose seal is broken, or that no Tilesmith wrote, is a miss."""
        try:
            return sound_record(row[:-1], row[-1])
        except RecordError as error:
            self._complain(row, error)
            return None

    def _complain(self, row: tuple[Any, ...], error: RecordError) -> None:
        LOG.warning(
            "database %s: a damaged row (%s) is not used: %s; see `tilesmith db check`", self.name, _shown(row), error
        )

    def _rows(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._run(lambda connection: connection.execute(query, values).fetchall()) or []

    def _put(self, table: str, records: Sequence[Record | Search]) -> None:
        rows = [values_of(record) for record in records]
        self._write(_PUT[table], [(*row, seal_of(row)) for row in rows])

    def _write(self, text: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Write in one transaction that is durable when this returns; says how many rows were touched."""

        def run(connection: sqlite3.Connection) -> int:
            if self._checked is not connection:  # opening looks at no table: a hit has no time for it
                check_tables(connection)
                self._checked = connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                count = connection.executemany(text, rows).rowcount
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return count

        if not rows:
            return 0
        count = self._run(run)
        for _ in range(3):
            # Another process may have set this file aside as damaged: what it did not take along is written again.
            if not self._is_replaced():
                break
            with self._lock:
                self._connection.close()
                self._reopen()
            count = self._run(run)
        return count or 0

    def _is_replaced(self) -> bool:
        return self.persistent and self.path is not None and identity(self.path) != self._file

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do ``work``; if the file fails, or is held for too long, warn, and do it on what takes the file's place."""
        with self._lock, operation():
            if self._process != os.getpid():
                self._reopen()  # SQLite connections must not be carried across a fork
            while True:
                try:
                    if self._in_place and self.path is not None:
                        must_be_admitted(self.path)
                        wait_no_longer(self._connection)
                    return work(self._connection)
                except (sqlite3.Error, OSError) as error:
                    if is_busy(error) and left_s() > 0:
                        time.sleep(POLL_S)
                        continue
                    self._degrade(error)
                    break
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                LOG.warning("database %s failed twice (%s); nothing was kept", self.name, error)
                return None

    def _take(self, opened: Opened) -> None:
        self._connection, self.persistent, self._in_place = opened.connection, opened.persistent, opened.in_place
        self._held = opened.held
        self._file = identity(self.path) if self.path is not None and self._in_place else None
        self._stamp = stamp(self.path) if self.path is not None else None

    def is_current(self) -> bool:
        if self.path is None:
            return True
        if self._in_place:
            return identity(self.path) == self._file
        return not self._held and stamp(self.path) == self._stamp

    def _reopen(self) -> None:
        if self.path is not None:
            self._take(open_file(self.path, self.readonly))
        self._process = os.getpid()

    def _degrade(self, error: Exception) -> None:
        if self._is_replaced():
            self._connection.close()
            self._reopen()
            return
        if self.path is not None and self.persistent and (is_damage(error) or is_sealed_off(self.path, error)):
            self._connection.close()
            set_aside(self.path, error)
            self._reopen()
            return
        LOG.warning("database %s failed (%s); what follows is kept in memory", self.name, error)
        self._take(Opened(snapshot(self.path), held=is_busy(error)))


def in_files(path: Path, readonly: bool) -> FileDatabase:
    """The folder of records for ``path``; a folder that begins takes over the records of the SQLite file there."""
    return FileDatabase(path, readonly, lambda: SqliteDatabase.at(path, readonly=True))


def _shown(row: Sequence[Any]) -> str:
    """Which row, on one line."""
    return " ".join(" ".join(str(value).split())[:120] for value in row[:4])
