"""Tables of the database file, and the steps from each version to the next.

``PRAGMA user_version`` holds the version. A step is never edited once released: append a new one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any, Final

from tilesmith.db.cards import with_card
from tilesmith.db.seal import REAL_FIELDS, RECORD_FIELDS, SEARCH_FIELDS, seal_of

APPLICATION: Final = 0x54534442  # "TSDB": whose file this is, for programs that list files
TABLES: Final = ("results", "trials", "searches")
# The columns of each table but the seal, in the order of the records' fields.
FIELDS: Final = {"results": RECORD_FIELDS, "trials": RECORD_FIELDS, "searches": SEARCH_FIELDS}

_EVIDENCE = """
    problem TEXT NOT NULL, target TEXT NOT NULL, solver TEXT NOT NULL, config TEXT NOT NULL, revision INTEGER NOT NULL,
    time_us REAL, spread_us REAL, samples INTEGER NOT NULL, prepare_us REAL, workspace INTEGER NOT NULL,
    error REAL, bound REAL, status TEXT NOT NULL, reason TEXT NOT NULL, method TEXT NOT NULL, compiler TEXT NOT NULL,
    generator TEXT NOT NULL, host TEXT NOT NULL, date TEXT NOT NULL, origin TEXT NOT NULL
"""
_SEALED_EVIDENCE = (
    "solver, config, revision, time_us, spread_us, samples, prepare_us, workspace, error, bound, status, reason, "
    "method, compiler, generator, host, date, origin"
)
_SEALED_SEARCH = "strategy, seed, trials, seconds, ended, date"
_HOST = """coalesce(
    (SELECT host FROM results AS r WHERE r.problem = searches.problem AND r.target = searches.target LIMIT 1),
    (SELECT host FROM trials AS t WHERE t.problem = searches.problem AND t.target = searches.target LIMIT 1), '')"""

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
    f"""
    PRAGMA application_id = {APPLICATION};
    ALTER TABLE results ADD COLUMN seal TEXT NOT NULL DEFAULT '';
    ALTER TABLE trials ADD COLUMN seal TEXT NOT NULL DEFAULT '';
    ALTER TABLE searches ADD COLUMN seal TEXT NOT NULL DEFAULT '';
    UPDATE results SET seal = tilesmith_seal(problem, target, {_SEALED_EVIDENCE});
    UPDATE trials SET seal = tilesmith_seal(problem, target, {_SEALED_EVIDENCE});
    UPDATE searches SET seal = tilesmith_seal(problem, target, {_SEALED_SEARCH});
    """,
    # Targets name the card. A search has no host: it gets the card of what was measured in it, so it comes first. What
    # is damaged stays as it is, or its new seal would make it whole.
    f"""
    UPDATE searches SET
        target = tilesmith_card(target, {_HOST}),
        seal = tilesmith_seal(problem, tilesmith_card(target, {_HOST}), {_SEALED_SEARCH})
        WHERE seal = tilesmith_seal(problem, target, {_SEALED_SEARCH});
    UPDATE results SET
        target = tilesmith_card(target, host),
        seal = tilesmith_seal(problem, tilesmith_card(target, host), {_SEALED_EVIDENCE})
        WHERE seal = tilesmith_seal(problem, target, {_SEALED_EVIDENCE});
    UPDATE trials SET
        target = tilesmith_card(target, host),
        seal = tilesmith_seal(problem, tilesmith_card(target, host), {_SEALED_EVIDENCE})
        WHERE seal = tilesmith_seal(problem, target, {_SEALED_EVIDENCE});
    """,
)
VERSION: Final = len(STEPS)
SAME_COLUMNS: Final = 2  # the first version with today's columns

# Parts of a problem's key as ``problems.outline`` names them: the end, and the first size.
_REST = "substr(problem, max(instr(problem, ';w='), instr(problem, ';n=')))"
_SHAPE = "substr(problem, instr(problem, ',') + 1)"
_SIZE = f"""CAST(CASE substr(problem, 1, 4) WHEN 'gemm' THEN substr(problem, length('gemm1;m=') + 1)
    ELSE substr({_SHAPE}, instr({_SHAPE}, ',') + 1) END AS INTEGER)"""
# NOTE: no step of the schema. Versions of Tilesmith that know nothing of this index read and write the file as before,
# and SQLite keeps the index for them.
_INDEX = f"CREATE INDEX IF NOT EXISTS neighbours ON results (target, {_REST}, {_SIZE})"
HAS_INDEX: Final = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = 'neighbours'"
# Of a target and an end, those of a first size up to this one, or from it on; the nearest size first.
_ALIKE = f"SELECT DISTINCT problem FROM results WHERE target = ? AND {_REST} = ? AND {_SIZE}"
NEIGHBOURS: Final = (
    f"{_ALIKE} BETWEEN ? AND ? ORDER BY {_SIZE} DESC, problem LIMIT ?",
    f"{_ALIKE} BETWEEN ? AND ? ORDER BY {_SIZE}, problem LIMIT ?",
)


def add_index(connection: sqlite3.Connection) -> None:
    """Make the index of neighbouring problems in a file of this version, unless another process is writing to it."""
    if connection.execute(HAS_INDEX).fetchone() is None:
        waited = connection.execute("PRAGMA busy_timeout").fetchone()[0]
        connection.execute("PRAGMA busy_timeout = 0")
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute(_INDEX)
        connection.execute(f"PRAGMA busy_timeout = {waited}")


def version_of(connection: sqlite3.Connection) -> int:
    """The file's schema version; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_ours(connection: sqlite3.Connection) -> bool:
    """An empty file, or one with our tables: no other program's."""
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    return not names or "results" in names or "trials" in names


def check_tables(connection: sqlite3.Connection) -> None:
    """Raises ``sqlite3.Error`` unless every table has the columns of this schema, of the same types and keys.

    A type that is damaged turns what is written into something else: ``0.10`` in a numeric column is ``0.1``.
    """
    found = connection.execute(_DECLARED).fetchall()
    if found != _EXPECTED:
        wrong = next((row for row in found if row not in _EXPECTED), "a column is missing")
        error = sqlite3.OperationalError(f"malformed database schema ({wrong})")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _expected() -> list[tuple[str, str, str, int, int]]:
    """Table, column, type, whether null is refused, and place in the primary key."""
    rows = []
    for table in sorted(TABLES):
        for name in (*FIELDS[table], "seal"):
            kind = "INTEGER" if name in _INTEGERS else "REAL" if name in REAL_FIELDS else "TEXT"
            key = _KEY[: _KEY_LENGTH[table]]
            place = key.index(name) + 1 if name in key else 0
            rows.append((table, name, kind, int(name not in _MAY_BE_NULL), place))
    return rows


_INTEGERS = frozenset(("revision", "samples", "workspace", "seed", "trials"))
_MAY_BE_NULL = REAL_FIELDS - {"seconds"}
_KEY = ("problem", "target", "solver", "config")
_KEY_LENGTH = {"results": 3, "trials": 4, "searches": 2}
_EXPECTED: Final = _expected()
_DECLARED: Final = """
    SELECT tables.name, columns.name, columns.type, columns."notnull", columns.pk
    FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name IN ('results', 'searches', 'trials')
    ORDER BY tables.name, columns.cid
"""


def _seal_of_row(*values: Any) -> str:
    """The seal of a row of an older version; a row that Tilesmith did not write gets none, and is not converted."""
    try:
        return seal_of(values)
    except (TypeError, ValueError, OverflowError):
        return ""


def _card_of_row(target: Any, host: Any) -> Any:
    return with_card(target, host) if isinstance(target, str) and isinstance(host, str) else target


def migrate(connection: sqlite3.Connection, steps: tuple[str, ...] = STEPS) -> None:
    """Bring a file of this or an older version to the newest one; each step in one transaction, safe in a race."""
    if version_of(connection) >= len(steps):
        return
    connection.create_function("tilesmith_seal", -1, _seal_of_row, deterministic=True)
    connection.create_function("tilesmith_card", 2, _card_of_row, deterministic=True)
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
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
