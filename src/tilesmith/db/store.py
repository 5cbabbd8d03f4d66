"""One database file: trials of searches (perf-db) and the best config of each solver (find-db).

Safe for several processes and threads: the rollback journal (which network file systems bear, unlike the
write-ahead log), short transactions, a busy timeout. A file that fails while it is in use is given up with a warning,
and memory takes its place.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TypeVar

from tilesmith.db.connect import LOG, is_damage, memory, open_file, set_aside, snapshot
from tilesmith.db.records import FAILED, OK, Record
from tilesmith.db.schema import COLUMNS

T = TypeVar("T")
_NAMES = ", ".join(COLUMNS)
_MARKS = ", ".join("?" * len(COLUMNS))


@dataclass(frozen=True)
class Search:
    """A search that was run: how, for how long, and how it ended (``converged``, ``budget`` or ``interrupted``)."""

    problem: str
    target: str
    strategy: str
    seed: int
    trials: int
    seconds: float
    ended: str
    date: str


def _any(record: Record) -> bool:
    return True


class Database:
    """A find-db and perf-db in one SQLite file. Make it with ``Database.open``."""

    def __init__(self, path: Path | None, connection: sqlite3.Connection, persistent: bool, readonly: bool) -> None:
        self.path = path
        self.readonly = readonly
        self.persistent = persistent  # whether what is recorded outlives the process
        self._connection = connection
        self._lock = threading.RLock()
        self._process = os.getpid()

    @staticmethod
    def open(path: str | os.PathLike[str] | None, readonly: bool = False) -> Database:
        """The database in ``path`` (made if missing), or memory if it is None. Never raises: it degrades, loudly."""
        if path is None:
            return Database(None, memory(), persistent=False, readonly=False)
        file = Path(path)
        connection, persistent = open_file(file, readonly)
        return Database(file, connection, persistent, readonly)

    @property
    def name(self) -> str:
        """The path, for messages."""
        return str(self.path) if self.path else "memory"

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # --- perf-db --------------------------------------------------------------------------------------------------

    def record_trial(self, record: Record) -> None:
        """Keep what one config did; an older trial of the same config is replaced."""
        self.record_trials([record])

    def record_trials(self, records: Iterable[Record]) -> None:
        """Many trials in one transaction."""
        self._put("trials", list(records))

    def trials(self, problem: str, target: str, solver: str | None = None) -> tuple[Record, ...]:
        """All trials, the fastest first, then the failed ones; ties in the order of names."""
        where, values = "problem = ? AND target = ?", [problem, target]
        if solver is not None:
            where, values = where + " AND solver = ?", [*values, solver]
        return self._get("trials", where, values)

    # --- find-db --------------------------------------------------------------------------------------------------

    def put_result(self, record: Record) -> None:
        """Keep ``record`` as the answer of its solver for its problem and target, in place of the one before."""
        self._put("results", [record])

    def ranking(self, problem: str, target: str) -> tuple[Record, ...]:
        """Each solver's answer, the fastest first, then those that failed."""
        return self._get("results", "problem = ? AND target = ?", [problem, target])

    def best(self, problem: str, target: str, usable: Callable[[Record], bool] = _any) -> Record | None:
        """The fastest answer that is ``ok`` and ``usable`` (for example: of the solver's present revision)."""
        return next((record for record in self.ranking(problem, target) if record.ok and usable(record)), None)

    def problems(self, target: str | None = None) -> tuple[tuple[str, str], ...]:
        """``(problem, target)`` of every answer held, in order."""
        where, values = ("target = ?", [target]) if target is not None else ("1", [])
        rows = self._run(
            lambda c: c.execute(
                f"SELECT DISTINCT problem, target FROM results WHERE {where} ORDER BY 1, 2", values
            ).fetchall()
        )
        return tuple((str(problem), str(name)) for problem, name in rows or ())

    # --- searches -------------------------------------------------------------------------------------------------

    def put_search(self, search: Search) -> None:
        """Keep how the last search on a problem and target went."""
        self._write("INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [astuple(search)])

    def search(self, problem: str, target: str) -> Search | None:
        """The last search on a problem and target."""
        row = self._run(
            lambda c: c.execute("SELECT * FROM searches WHERE problem = ? AND target = ?", (problem, target)).fetchone()
        )
        return Search(*row) if row else None

    # --- access ---------------------------------------------------------------------------------------------------

    def _get(self, table: str, where: str, values: list[str]) -> tuple[Record, ...]:
        text = f"SELECT {_NAMES} FROM {table} WHERE {where} ORDER BY time_us IS NULL, time_us, solver, config"
        rows = self._run(lambda c: c.execute(text, values).fetchall())
        return tuple(record for record in (_record(row) for row in rows or ()) if record is not None)

    def _put(self, table: str, records: list[Record]) -> None:
        self._write(
            f"INSERT OR REPLACE INTO {table} ({_NAMES}) VALUES ({_MARKS})", [astuple(record) for record in records]
        )

    def _write(self, text: str, rows: list[tuple[object, ...]]) -> None:
        def run(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(text, rows)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

        if rows:
            self._run(run)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do ``work``; if the file fails, warn, and do it again on what takes the file's place."""
        with self._lock:
            if self._process != os.getpid():
                self._reopen()  # SQLite connections must not be carried across a fork
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                self._degrade(error)
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                LOG.warning("database %s failed twice (%s); nothing was kept", self.name, error)
                return None

    def _reopen(self) -> None:
        if self.path is not None:
            self._connection, self.persistent = open_file(self.path, self.readonly)
        self._process = os.getpid()

    def _degrade(self, error: sqlite3.Error) -> None:
        if is_damage(error) and self.path is not None and self.persistent:
            self._connection.close()
            set_aside(self.path, error, self.readonly)
            self._connection, self.persistent = open_file(self.path, self.readonly)
            return
        LOG.warning("database %s failed (%s); what follows is kept in memory", self.name, error)
        self._connection, self.persistent = snapshot(self.path), False


def _record(row: tuple[object, ...]) -> Record | None:
    """A row as a record; a row that no Tilesmith wrote is a miss."""
    named = dict(zip(COLUMNS, row, strict=True))
    numbers = (named["time_us"], named["spread_us"], named["prepare_us"], named["error"], named["bound"])
    sound = (
        all(isinstance(named[name], str) for name in ("problem", "target", "solver", "config", "status", "reason"))
        and all(isinstance(named[name], int) for name in ("revision", "samples", "workspace"))
        and all(value is None or isinstance(value, int | float) for value in numbers)
        and named["status"] in (OK, FAILED)
        and (named["time_us"] is None or (math.isfinite(named["time_us"]) and named["time_us"] > 0))  # type: ignore[arg-type,operator]
    )
    if not sound:
        LOG.warning("a damaged row (%s, %s) was left out", named["problem"], named["solver"])
        return None
    return Record(**named)  # type: ignore[arg-type]
