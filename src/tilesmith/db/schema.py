"""Tables of the database file, and the steps from each version to the next.

``PRAGMA user_version`` holds the version. A step is never edited once released: append a new one.
"""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from typing import Final

from tilesmith.db.records import Record

COLUMNS: Final = tuple(item.name for item in fields(Record))

_EVIDENCE = """
    problem TEXT NOT NULL, target TEXT NOT NULL, solver TEXT NOT NULL, config TEXT NOT NULL, revision INTEGER NOT NULL,
    time_us REAL, spread_us REAL, samples INTEGER NOT NULL, prepare_us REAL, workspace INTEGER NOT NULL,
    error REAL, bound REAL, status TEXT NOT NULL, reason TEXT NOT NULL, method TEXT NOT NULL, compiler TEXT NOT NULL,
    generator TEXT NOT NULL, host TEXT NOT NULL, date TEXT NOT NULL, origin TEXT NOT NULL
"""

# Each entry lifts a file by one version; the first makes an empty file version 1.
STEPS: Final[tuple[str, ...]] = (
    f"""
    CREATE TABLE results ({_EVIDENCE}, PRIMARY KEY (problem, target, solver)) WITHOUT ROWID;
    CREATE TABLE trials ({_EVIDENCE}, PRIMARY KEY (problem, target, solver, config)) WITHOUT ROWID;
    CREATE TABLE searches (
        problem TEXT NOT NULL, target TEXT NOT NULL, strategy TEXT NOT NULL, seed INTEGER NOT NULL,
        trials INTEGER NOT NULL, seconds REAL NOT NULL, ended TEXT NOT NULL, date TEXT NOT NULL,
        PRIMARY KEY (problem, target)
    ) WITHOUT ROWID;
    """,
)
VERSION: Final = len(STEPS)


def version_of(connection: sqlite3.Connection) -> int:
    """The file's schema version; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: tuple[str, ...] = STEPS) -> None:
    """Bring a file of this or an older version to the newest one; each step in one transaction, safe in a race."""
    if version_of(connection) >= len(steps):
        return
    for number, step in enumerate(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have taken this step while we waited for the lock.
            if version_of(connection) == number:
                for statement in step.split(";"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
