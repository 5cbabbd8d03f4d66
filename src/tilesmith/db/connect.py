"""Opening a database file whatever state it is in: nothing here ever fails a convolution.

A damaged file is renamed aside, and a fresh one begins with every record of it that is whole. A file that cannot be
written, or that another process holds for longer than is waited (``db.waiting``), is replaced by a copy in memory; one
that comes from a newer Tilesmith or another program, or that is no file, by memory that is empty. Each degradation is
one warning of the logger ``tilesmith.db``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tilesmith.db.admission import SIDE_FILES, why_refused
from tilesmith.db.schema import (
    FIELDS,
    SAME_COLUMNS,
    TABLES,
    VERSION,
    add_index,
    check_tables,
    is_ours,
    migrate,
    version_of,
)
from tilesmith.db.seal import sound_record, sound_search
from tilesmith.db.waiting import left_s, must_stop, operation
from tilesmith.errors import RecordError
from tilesmith.toolchain.files import read

LOG = logging.getLogger("tilesmith.db")
POLL_S = 0.01  # between two tries, where SQLite itself did not wait
_told: set[tuple[Path, str]] = set()  # files that cannot be used, and why: each is warned of once
_MAGIC = b"SQLite format 3\0"
_STEPS = 100_000  # of SQLite's machine, between two looks at the clock: some milliseconds
_MOST_COPIED = 1 << 30  # bytes of a file that is read without a lock
_PLENTY = 1 << 26  # bytes: more than SQLite takes for a database of ours


@dataclass(frozen=True)
class Opened:
    """A connection with the newest schema; ``persistent`` if what is written to it reaches the file, ``in_place`` if
    what is read comes from the file as it is then. ``held``: a copy, because another process had the file.
    """

    connection: sqlite3.Connection
    persistent: bool = False
    in_place: bool = False
    held: bool = False


def open_file(path: Path, readonly: bool) -> Opened:
    """A connection to the file at ``path``, or its replacement, at the latest when no more may be waited."""
    with operation():
        return _opened(path, readonly)


def _opened(path: Path, readonly: bool) -> Opened:
    try:
        must_be_admitted(path)
        return _open_patiently(path, readonly)
    except sqlite3.DatabaseError as error:
        reason: Exception = error
        if is_busy(error):
            LOG.warning(
                "database %s is held by another process (%s); what it held is read from a copy, and what this process "
                "measures is kept in memory", path, error,
            )  # fmt: skip
            return Opened(snapshot(path), held=True)
        if (is_damage(error) or is_sealed_off(path, error)) and not readonly:
            if _is_something_else(path):  # named by mistake
                LOG.warning("%s is no database; it stays as it is, and this process works without it", path)
                return Opened(memory())
            set_aside(path, error)
            try:
                return _open(path)
            except (sqlite3.Error, OSError) as again:
                reason = again
    except OSError as error:
        reason = error
    level = logging.INFO if (path, str(reason)) in _told else logging.WARNING
    _told.add((path, str(reason)))
    LOG.log(level, "database %s cannot be used (%s); this process works without it", path, reason)
    return Opened(memory())


def _open_patiently(path: Path, readonly: bool) -> Opened:
    """Many that begin on one cold file take turns at it."""
    while True:
        try:
            return _open_readonly(path) if readonly else _open(path)
        except sqlite3.DatabaseError as error:
            if not is_busy(error) or left_s() == 0.0:
                raise
        time.sleep(POLL_S)


def why_unreadable(path: Path) -> str | None:
    """Why nothing can be read of what lies at ``path``; None for a database of any version, and for nothing at all."""
    if not path.exists():
        return None
    try:
        must_be_admitted(path)
        with operation(), contextlib.closing(_connect(path, readonly=True)) as connection:
            if version_of(connection) == VERSION:
                check_tables(connection)
    except OSError as failure:
        return failure.strerror or str(failure)
    except sqlite3.Error as error:
        if is_damage(error):
            return str(error)
        try:
            path.open("rb").close()
        except OSError as failure:
            return failure.strerror or str(failure)
    return None


def why_no_database(data: bytes) -> str:
    """Why these bytes are no database of ours, of any version; empty if they are one."""
    with contextlib.closing(_empty()) as connection:
        try:
            # A file in the mode of a write-ahead log is as good; in memory there is no such mode.
            connection.deserialize(data[:18] + b"\1\1" + data[20:])
            version = version_of(connection)
            if version == VERSION:
                check_tables(connection)
            elif version < VERSION and not is_ours(connection):
                return "it belongs to another program"
        except sqlite3.Error as error:
            return str(error)
    return ""


def _is_something_else(path: Path) -> bool:
    """Neither the name nor the first bytes are those of a database; a damaged one keeps one of the two."""
    try:
        with path.open("rb") as file:  # a regular file: others are not opened
            first = file.read(len(_MAGIC))
    except OSError:
        return False
    kept = sum(a == b for a, b in zip(first, _MAGIC, strict=False))
    return path.suffix != ".db" and kept < len(first) / 2


def memory() -> sqlite3.Connection:
    """An empty database that lives as long as this process."""
    connection = _empty()
    migrate(connection)
    add_index(connection)
    return connection


def snapshot(path: Path | None) -> sqlite3.Connection:
    """A copy in memory of all that can still be read of a file; empty if nothing can."""
    try:
        if path is not None:
            must_be_admitted(path)
            return _copy(path)
    except (sqlite3.Error, OSError):
        pass
    return memory()


def identity(path: Path) -> tuple[int, int] | None:
    """Which file lies at ``path``: another one has another."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def stamp(path: Path) -> tuple[int, int, int] | None:
    """A value that changes with a file that is not read in place; None where there is none."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size


def is_damage(error: Exception) -> bool:
    """The file's bytes are not a database of ours (as opposed to: it is locked, read-only, or the disk is full).

    What we ask is right SQL, so an SQL error says that the file's own description of its tables has changed.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def is_sealed_off(path: Path, error: Exception) -> bool:
    """SQLite takes the file for read-only because of a damaged version number in its header, not of the file system."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY and _has_bad_versions(path)


def _has_bad_versions(path: Path) -> bool:
    """Bytes 18 and 19 of a file say how it is written and read; SQLite does not write to what it does not know."""
    try:
        with path.open("rb") as file:
            versions = file.read(20)[18:]
    except OSError:
        return False
    return not set(versions) <= {1, 2}


def is_busy(error: Exception) -> bool:
    """Another process has the file at the moment."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def wait_no_longer(connection: sqlite3.Connection) -> None:
    """Let SQLite wait for locks as long as may be waited now."""
    connection.execute(f"PRAGMA busy_timeout = {int(left_s() * 1000)}")


def set_aside(path: Path, error: Exception) -> None:
    """Rename a damaged file and begin a fresh one with what it holds whole; of several processes, one does it."""
    from filelock import FileLock, Timeout

    lock = FileLock(f"{path}.lock")
    try:
        with lock.acquire(timeout=left_s()):
            if _is_sound(path):  # another process has begun a fresh one
                return
            aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
            path.replace(aside)
            for suffix in SIDE_FILES:
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
            kept = _salvage(aside, path)
    except (OSError, Timeout, sqlite3.Error) as failure:
        # Opening it again will say that it cannot be used.
        LOG.info("database %s is damaged (%s) and cannot be moved aside (%s)", path, error, failure)
    else:
        LOG.warning(
            "database %s is damaged (%s); kept as %s, a fresh one begins with the %d records that are whole",
            path, error, aside.name, kept,
        )  # fmt: skip


def _salvage(damaged: Path, fresh: Path) -> int:
    """Copy every row whose seal holds; says how many. A row that others have written since stays."""
    connection = _open(fresh).connection
    count = 0
    with contextlib.closing(connection):
        for table in TABLES:
            names = (*FIELDS[table], "seal")
            put = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            connection.execute("BEGIN IMMEDIATE")
            for row in _whole_rows(damaged, table, names):
                with contextlib.suppress(sqlite3.Error):
                    count += connection.execute(put, row).rowcount
            connection.execute("COMMIT")
    return count


def _whole_rows(damaged: Path, table: str, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """From the front up to the damage, and from the back down to it."""
    for direction in ("ASC", "DESC"):
        with (
            contextlib.suppress(sqlite3.Error, OSError),
            contextlib.closing(_connect(damaged, readonly=True)) as source,
        ):
            source.execute("PRAGMA writable_schema = ON")  # what else is damaged in the schema hides no table
            order = f"problem {direction}, target {direction}"
            sound = sound_search if table == "searches" else sound_record
            for row in source.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY {order}"):
                with contextlib.suppress(RecordError):
                    sound(row[:-1], row[-1])
                    yield row


def _is_sound(path: Path) -> bool:
    """Whether the file needs no setting aside: it is whole, or belongs to another program."""
    if not path.exists():
        return True
    try:
        with contextlib.closing(_connect(path, readonly=True)) as connection:
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok" or _has_bad_versions(path):
                return False
            version = version_of(connection)
            if version > VERSION or not is_ours(connection):
                return True
            try:
                check_tables(connection)
            except sqlite3.OperationalError:
                empty = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
                return 0 < version < VERSION or (version == 0 and empty)
            for table in TABLES:  # the text of an index is looked at when rows are written, not when they are read
                connection.execute(f"EXPLAIN UPDATE {table} SET problem = '', target = ''")
            return version >= SAME_COLUMNS  # all columns and an earlier version: the number is damaged
    except sqlite3.DatabaseError as error:
        return is_busy(error)  # another process works with it


@contextlib.contextmanager
def _telling_damage() -> Iterator[None]:
    """NOTE: where SQLite's message quotes a damaged name, Python raises UnicodeDecodeError in place of its error; and
    some damaged schemas SQLite takes for more than memory holds."""
    try:
        yield
    except UnicodeDecodeError as garbled:
        reason = f"a damaged name ({garbled.object!r})"
    except MemoryError:
        bytes(_PLENTY)  # raises once more where it is memory that is missing
        reason = "a damaged description of its tables"
    else:
        return
    error = sqlite3.DatabaseError(reason)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    raise error


class _Cursor(sqlite3.Cursor):
    def __next__(self) -> Any:
        with _telling_damage():
            return super().__next__()

    def fetchone(self) -> Any:
        with _telling_damage():
            return super().fetchone()

    def fetchall(self) -> list[Any]:
        with _telling_damage():
            return super().fetchall()


class _Connection(sqlite3.Connection):
    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        with _telling_damage():
            return self.cursor(_Cursor).execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        with _telling_damage():
            return self.cursor(_Cursor).executemany(*arguments)


def must_be_admitted(path: Path) -> None:
    reason = why_refused(path)
    if reason is not None:
        raise OSError(reason)


def _connect(path: Path, readonly: bool = False) -> sqlite3.Connection:
    must_be_admitted(path)
    name = f"{path.absolute().as_uri()}?mode=ro" if readonly else str(path)
    connection = sqlite3.connect(
        name, uri=readonly, timeout=left_s(), isolation_level=None, check_same_thread=False, cached_statements=32,
        factory=_Connection,
    )  # fmt: skip
    return _guarded(connection)


def _empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_Connection)
    return _guarded(connection)


def _guarded(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.text_factory = _text
    # A view or a trigger in the file can make a statement run without end.
    connection.set_progress_handler(must_stop, _STEPS)
    return connection


# Text that is damaged is text still: its seal tells.
_text = partial(str, encoding="utf-8", errors="replace")


def _open(path: Path) -> Opened:
    exists = os.path.exists(path)
    if exists and not os.access(path, os.W_OK):
        copy = _copy(path)  # if that fails too, the caller says so
        LOG.warning("database %s cannot be written; what this process measures is kept in memory", path)
        return Opened(copy)
    if not exists:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    connection = _connect(path)
    try:
        version = version_of(connection)
        if version > VERSION or (version == 0 and not is_ours(connection)):
            connection.close()
            return Opened(_foreign(path, version))
        if version < VERSION:
            migrate(connection)
            check_tables(connection)
        add_index(connection)
    except sqlite3.OperationalError as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY and not is_sealed_off(path, error):
            copy = _copy(path)
            LOG.warning("database %s cannot be written (%s); what this process measures is kept in memory", path, error)
            return Opened(copy)
        raise
    except BaseException:
        connection.close()
        raise
    return Opened(connection, persistent=True, in_place=True)


def _open_readonly(path: Path) -> Opened:
    """Read in place when the schema is ours and the file can be locked; else a copy in memory. Makes no file."""
    if not path.exists():
        return Opened(memory())
    connection = _connect(path, readonly=True)
    try:
        if version_of(connection) == VERSION:
            check_tables(connection)
            return Opened(connection, in_place=True)
    except sqlite3.OperationalError as error:
        if is_busy(error):
            connection.close()
            raise
    except BaseException:
        connection.close()
        raise
    connection.close()
    return Opened(_copy(path))


def _stop_when_busy(status: int, remaining: int, total: int) -> None:
    if status & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and left_s() == 0.0:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = status
        raise error


def _foreign(path: Path, version: int) -> sqlite3.Connection:
    if version > VERSION:
        LOG.warning("database %s comes from a newer Tilesmith (schema %d); it counts as empty", path, version)
    else:
        LOG.warning("database %s belongs to another program; it counts as empty and stays as it is", path)
    return memory()


def _copy(path: Path) -> sqlite3.Connection:
    """A copy in memory of a file that must not be written, lifted to this schema."""
    target = _empty()
    try:
        with contextlib.closing(_connect(path, readonly=True)) as source:
            # NOTE: without a look at the clock, Python's loop tries a file that another process holds for ever.
            source.backup(target, progress=_stop_when_busy, sleep=POLL_S)
    except sqlite3.OperationalError:
        # No lock is to be had, or a writer died and left a journal. The bytes as they are: seals tell what is whole.
        target.close()
        target = _empty()
        target.deserialize(read(path, _MOST_COPIED))
    version = version_of(target)
    if version > VERSION or (version == 0 and not is_ours(target)):
        target.close()
        return _foreign(path, version)
    migrate(target)
    check_tables(target)
    return target
