"""Opening a database file whatever state it is in: nothing here ever fails a convolution.

A damaged file is renamed aside and a fresh one begins. A file that cannot be written, or comes from a newer
Tilesmith, is replaced by memory for this process. Each degradation is one warning of the logger ``tilesmith.db``.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from pathlib import Path

from tilesmith.db.schema import VERSION, migrate, version_of

LOG = logging.getLogger("tilesmith.db")
BUSY_S = 10.0


def open_file(path: Path, readonly: bool) -> tuple[sqlite3.Connection, bool]:
    """A connection with the newest schema, and whether what is written to it reaches the file."""
    try:
        return _open(path, readonly)
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            set_aside(path, error, readonly)
            try:
                if not readonly:
                    return _open(path, readonly)
            except (sqlite3.Error, OSError) as again:
                error_text = str(again)
            else:
                error_text = str(error)
        else:
            error_text = str(error)
    except OSError as error:
        error_text = str(error)
    LOG.warning("database %s cannot be used (%s); this process works without it", path, error_text)
    return memory(), False


def memory() -> sqlite3.Connection:
    """An empty database that lives as long as this process."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    migrate(connection)
    return connection


def snapshot(path: Path | None) -> sqlite3.Connection:
    """What can still be read of a file, in memory; empty if nothing can."""
    try:
        return _copy(path) if path is not None else memory()
    except (sqlite3.Error, OSError):
        return memory()


def is_damage(error: sqlite3.Error) -> bool:
    """The file's bytes are not a database (as opposed to: it is locked, read-only, or the disk is full)."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def set_aside(path: Path, error: Exception, readonly: bool) -> None:
    """Rename a damaged file so that a fresh one can begin; of several processes that see the damage, one does it."""
    if readonly:
        return
    from filelock import FileLock, Timeout

    lock = FileLock(f"{path}.lock")
    try:
        with lock.acquire(timeout=BUSY_S):
            if _is_sound(path):  # another process has begun a fresh one
                return
            aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
            path.replace(aside)
            for suffix in ("-journal", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            LOG.warning("database %s is damaged (%s); kept as %s, a fresh one begins", path, error, aside.name)
    except (OSError, Timeout) as failure:
        LOG.warning("database %s is damaged (%s) and cannot be moved aside (%s)", path, error, failure)


def _is_sound(path: Path) -> bool:
    if not path.exists():
        return True
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
        try:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return False


def _open(path: Path, readonly: bool) -> tuple[sqlite3.Connection, bool]:
    if readonly or (path.exists() and not os.access(path, os.W_OK)):
        if not readonly:
            LOG.warning("database %s cannot be written; what this process measures is kept in memory", path)
        return (_copy(path) if path.exists() else memory()), False
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        if version_of(connection) > VERSION:
            connection.close()
            return _foreign(path, VERSION), False
        migrate(connection)
        for table in ("results", "trials", "searches"):
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
            LOG.warning("database %s cannot be written (%s); what this process measures is kept in memory", path, error)
            return _copy(path), False
        raise
    except BaseException:
        connection.close()
        raise
    return connection, True


def _foreign(path: Path, known: int) -> sqlite3.Connection:
    LOG.warning("database %s comes from a newer Tilesmith (schema above %d); it counts as empty", path, known)
    return memory()


def _copy(path: Path) -> sqlite3.Connection:
    """What a file holds that must not be written, in memory, lifted to this schema."""
    address = path.resolve().as_uri()
    source = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        version = version_of(source)
        if version > VERSION:
            return _foreign(path, VERSION)
        target = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        source.backup(target)
    finally:
        source.close()
    migrate(target)
    return target
