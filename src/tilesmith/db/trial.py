"""Whether a folder's file system can hold a database that many processes write: tried, not looked up in a list.

SQLite relies on locks that one process takes and every other sees, and on files that are synced and renamed. Network
file systems may grant a lock to two at a time, refuse it, or wait for ever; what a system is called says nothing of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: its own locks are mandatory, SQLite relies on them as they are
    fcntl = None  # type: ignore[assignment]

_BUSY_S = 2.0  # nobody else knows the file of the trial
# What may be over tomorrow says nothing of the file system, and must not change where a database lies for good.
_PASSING = (
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE,
    errno.ENOMEM, errno.EINTR, errno.ENOENT,
)  # fmt: skip
_PASSING_SQLITE = (
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR,
)  # fmt: skip
_LOCK_FAILS = (
    sqlite3.SQLITE_IOERR_LOCK, sqlite3.SQLITE_IOERR_RDLOCK, sqlite3.SQLITE_IOERR_UNLOCK,
    sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK,
)  # fmt: skip


def why_not(folder: Path, *, thorough: bool) -> str | None:
    """None if a database may lie in ``folder``, else what went wrong. ``OSError``: nothing can be written there at all.

    The short trial takes two locks on a file; the thorough one (for a folder where a database is to be made) also
    writes a small database in two transactions and reads it again.
    """
    name = f"{folder}/.tilesmith-trial-{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _locks_exclude(descriptor, name)
        if thorough:
            _journal_works(name)
    except OSError as error:
        if error.errno in _PASSING:
            raise
        return str(error)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in _PASSING_SQLITE and code not in _LOCK_FAILS:
            raise OSError(str(error)) from None
        return str(error)
    else:
        return None
    finally:
        os.close(descriptor)
        for suffix in ("", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(name + suffix)


def _locks_exclude(first: int, name: str) -> None:
    """Locks of open files count between two descriptors as those of processes do between two processes."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return
    try:
        _lock(first, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno == errno.EINVAL:  # a system without locks of open files
            return
        raise
    second = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    try:
        _lock(first, fcntl.F_WRLCK)
        try:
            _lock(second, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):
            pass
        else:
            raise OSError("a lock was granted twice")
        _lock(first, fcntl.F_UNLCK)
        _lock(second, fcntl.F_WRLCK)
    finally:
        os.close(second)


def _lock(descriptor: int, kind: int) -> None:
    flock = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 1, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, flock)


def _journal_works(name: str) -> None:
    def session(work: Callable[[sqlite3.Connection], object]) -> object:
        connection = sqlite3.connect(name, timeout=_BUSY_S, isolation_level=None)
        try:
            return work(connection)
        finally:
            connection.close()

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE trial (x INTEGER)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO trial VALUES (1)")
        connection.execute("COMMIT")

    session(write)
    if session(lambda connection: connection.execute("SELECT x FROM trial").fetchall()) != [(1,)]:
        raise OSError("what was committed is not there")
