"""Files that many processes make in one folder: written atomically, made once, removed after their process died.

A process holds a ``flock`` on what it is making. The system lets go of it when the process ends, however it ends, so
a file without a holder is abandoned: there are no stale locks to wait for, and no process ids to compare. Where a file
system has no such locks, work may be done twice and abandoned files stay a day; nothing else changes.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tilesmith.reading import AT_ONCE, TooLongError, chunks, why_no_file
from tilesmith.toolchain.trust import is_allowed, reason_of, why_distrusted

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

STAGING, LOCKS = "staging", "locks"
_SCRATCH = "tilesmith-work-"  # folders among the system's temporary files
MOST_BYTES = 1 << 26  # of a file of the cache: a hundred times the largest kernel
_CHUNK = 1 << 16  # of a file that comes in pieces
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_TRIES = 4  # to publish a file while another process clears the cache
_DAY_S = 86_400.0
_GRACE_S = 1.0  # between making a file and locking it
_POLL_S = 0.01


def read(file: str | os.PathLike[str], limit: int = MOST_BYTES, *, own: bool = False) -> bytes:
    """The bytes of a regular file, ``limit`` at most, at once; ``OSError`` names what else lies there.

    With ``own`` a file that another user can have written is refused (``toolchain.trust``).
    """

    def admit(about: os.stat_result) -> None:
        if own and (reason := reason_of(about)) is not None and not is_allowed(file):
            raise PermissionError(errno.EACCES, reason, os.fspath(file))

    return read_regular(file, limit, admit)


def read_regular(path: str | os.PathLike[str], most: int, admit: Callable[[os.stat_result], None]) -> bytes:
    """The bytes of a regular file, ``most`` at most; ``OSError`` names what else lies there.

    It never waits. Links are followed to a file. ``admit`` raises ``OSError`` for a file that must not be read, once it
    is open. A device may act when it is opened, so what lies there is asked first.
    """
    if not stat.S_ISREG(mode := os.stat(path).st_mode):
        raise _no_file(mode, path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | AT_ONCE)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):  # it has been replaced meanwhile
            raise _no_file(about.st_mode, path)
        admit(about)
        size = about.st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes, more than {most}", os.fspath(path))
        data = os.read(descriptor, size + 1)
        if len(data) == size:
            return data
        return data + b"".join(chunks(descriptor, most - len(data), waits=False)) if data else data
    except TooLongError:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", os.fspath(path)) from None
    finally:
        os.close(descriptor)


def _no_file(mode: int, path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, f"it {why_no_file(mode)}", os.fspath(path))


def replace(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file in one step; what lay there before, a FIFO too, is not opened. It is synced if ``durable``."""
    descriptor, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        os.chmod(staged, 0o644)
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise


def publish(root: Path, path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Write ``path``, somewhere under ``root``, atomically: stage, fsync, rename.

    What need not be ``durable`` is not synced: after a power cut it may be in pieces, which its seal must tell.
    ``mode`` says who may read it. ``OSError`` where it cannot be written, or where others could write to ``root`` as
    well (``toolchain.trust``).
    """
    for again in range(_TRIES, 0, -1):
        try:
            return _publish(root, path, data, durable, mode)
        except FileNotFoundError:  # ``cache clear`` has just removed a folder that was empty
            if again == 1:
                raise


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents with access only for this user, whatever the umask is."""
    if os.path.isdir(folder):
        return
    _make_folder(folder.parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:  # another process was faster
        if not os.path.isdir(folder):
            raise


def _publish(root: Path, path: Path, data: bytes, durable: bool, mode: int) -> None:
    staging = root / STAGING
    _make_folder(staging)
    reason = why_distrusted(root)
    if reason is not None:
        raise PermissionError(errno.EACCES, reason, str(root))
    descriptor, staged = tempfile.mkstemp(dir=staging)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _hold(descriptor)
            file.write(data)
            file.flush()
            if mode != 0o600:
                os.chmod(staged, mode)
            if durable:
                os.fsync(descriptor)
            _make_folder(path.parent)
            os.replace(staged, path)  # before the lock is let go
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise


@contextlib.contextmanager
def exclusive(root: Path, name: str, seconds: float) -> Iterator[bool]:
    """Only one process at a time has this name. Each other process waits at most ``seconds``, and then continues
    anyway, with False: another process still has it, or the file system has no locks.

    It saves work that others do; nothing may rely on it where locks may be missing.
    """
    path = root / LOCKS / f"{name}.lock"
    descriptor = _take(path, seconds)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)  # a process that waits for this file sees that it is gone, and takes the next
            os.close(descriptor)


def open_alone(path: Path) -> int | None:
    """The descriptor of a file, made if it is missing, that no other process opens so until it is closed.

    None if another one has it, or it cannot be had.
    """
    return _take(path, 0.0)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder. It goes at the end; if the process is killed, the next one that sweeps removes it."""
    folder = tempfile.mkdtemp(prefix=_SCRATCH)
    descriptor = _hold_folder(folder)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def scratch_of_process() -> Path:
    """A temporary folder that lasts as long as the process."""
    folder = tempfile.mkdtemp(prefix=_SCRATCH)
    _hold_folder(folder)  # until the end of the process
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def remove_abandoned(root: Path) -> int:
    """Remove files that dead processes left in ``root`` and among the temporary files; returns how many."""
    # The target of a link is not ours to remove.
    folders = [(root / name, "") for name in (STAGING, LOCKS) if not os.path.islink(root / name)]
    with contextlib.suppress(OSError):  # no folder for temporary files
        folders.append((Path(tempfile.gettempdir()), _SCRATCH))
    count = 0
    for folder, prefix in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(prefix) and _is_mine(entry):
                    count += _remove_one(entry)
    return count


def remove_older(folder: Path, seconds: float) -> None:
    """Remove the files of this user in ``folder`` that nobody holds, and that are older."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _is_mine(entry, seconds):
                _remove_one(entry)


def _is_mine(entry: os.DirEntry[str], seconds: float = _GRACE_S) -> bool:
    with contextlib.suppress(OSError):
        about = entry.stat(follow_symlinks=False)
        owned = not hasattr(os, "getuid") or about.st_uid == os.getuid()
        return owned and time.time() - about.st_mtime > seconds
    return False


def _remove_one(entry: os.DirEntry[str]) -> bool:
    path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
    try:
        if not is_folder and not entry.is_file(follow_symlinks=False):  # a FIFO, link or device: no process works on it
            os.unlink(path)
            return True
        descriptor = os.open(path, (os.O_RDONLY if is_folder else os.O_RDWR) | os.O_CLOEXEC | AT_ONCE | _NO_LINK)
    except OSError:
        return False
    try:
        free = _hold(descriptor)
        if free is None:
            free = time.time() - os.fstat(descriptor).st_mtime > _DAY_S
        if not free or not _is_at(descriptor, path):
            return False
        if is_folder:
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _hold_folder(folder: str) -> int | None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        _hold(descriptor)
        return descriptor
    return None


def _take(path: Path, seconds: float) -> int | None:
    """The descriptor of the lock; None when there is none to be had."""
    deadline = time.monotonic() + seconds
    while True:
        descriptor = None
        try:
            _make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | AT_ONCE | _NO_LINK, 0o600)
            free = _hold(descriptor)
            while free is False and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                free = _hold(descriptor)
            if free and _is_at(descriptor, path):
                return descriptor
        except OSError:
            free = None
        if descriptor is not None:
            os.close(descriptor)
        if not free:
            return None
        # Its last holder has removed the file: take the file that lies there now.


def _hold(descriptor: int) -> bool | None:
    """Take the lock of an open file: True if it is ours now, False if another holds it, None if there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one with this name."""
    with contextlib.suppress(OSError):
        here, there = os.fstat(descriptor), os.stat(path, follow_symlinks=False)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
    return False
