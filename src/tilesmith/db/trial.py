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
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: its own locks are mandatory, SQLite relies on them as they are
    fcntl = None  # type: ignore[assignment]

_FOLDER = ".tilesmith-trial"
_DAY_S = 86_400.0
_BUSY_S = 2.0  # no other process knows the file of the trial
# A passing error says nothing about the file system, and must not change the place of a database permanently.
_PASSING = (
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE,
    errno.ENOMEM, errno.EINTR, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP,
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
    place = os.path.join(folder, _FOLDER)
    if os.path.isdir(place):
        _remove_abandoned(place)
    try:
        if thorough:
            with _named(place) as name:
                _locks_exclude(name)
                _journal_works(name)
        else:
            _short(folder, place)
    except OSError as error:
        if error.errno in _PASSING:
            raise
        return str(error)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in _PASSING_SQLITE and code not in _LOCK_FAILS:
            raise OSError(str(error)) from None
        return str(error)
    return None


def _short(folder: Path, place: str) -> None:
    """On a file without a name, where there are such: nothing is left behind then, whatever happens."""
    try:
        descriptor = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except (AttributeError, OSError):
        with _named(place) as name:
            _locks_exclude(name)
        return
    try:
        _locks_exclude(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(place: str) -> Iterator[str]:
    """A file of this process in the trials' folder, which goes with the last of them."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700)
    name = os.path.join(place, f"{os.uname().nodename}!{os.getpid()}!{threading.get_ident()}!{time.monotonic_ns()}")
    os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        yield name
    finally:
        for suffix in ("", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(name + suffix)
        with contextlib.suppress(OSError):
            os.rmdir(place)


def _remove_abandoned(place: str) -> None:
    """Remove what processes that were killed have left: of this machine those that are gone, of others after a day."""
    with contextlib.suppress(OSError):
        for name in os.listdir(place):
            node, _, rest = name.partition("!")
            path = os.path.join(place, name)
            with contextlib.suppress(OSError, ValueError):
                mine = node == os.uname().nodename
                if _is_gone(int(rest.partition("!")[0])) if mine else time.time() - os.stat(path).st_mtime > _DAY_S:
                    os.unlink(path)
        os.rmdir(place)


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _locks_exclude(name: str) -> None:
    """Locks of open files count between two descriptors as those of processes do between two processes."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return
    first = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    try:
        second = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    except BaseException:
        os.close(first)
        raise
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
    except OSError as error:
        if error.errno != errno.EINVAL:  # a system without locks of open files
            raise
    finally:
        os.close(first)
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
