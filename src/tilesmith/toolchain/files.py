"""Files that many processes make in one folder: published whole, made once, swept up when their makers die.

A process holds a ``flock`` on what it is making. The system lets go of it when the process ends, however it ends, so
what nobody holds has been abandoned: there are no stale locks to wait for, and no process ids to compare. Where a file
system has no such locks, work may be done twice and what is abandoned waits a day; nothing else changes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

STAGING, LOCKS = "staging", "locks"
_SCRATCH = "tilesmith-work-"  # folders among the system's temporary files
_CHUNK = 1 << 16  # of a file that comes in pieces
_DAY_S = 86_400.0
_GRACE_S = 1.0  # between making a file and locking it
_POLL_S = 0.01


def read(file: str) -> bytes:
    """The bytes of a file, with nothing between it and the system: a hit reads four."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        data = os.read(descriptor, size + 1)
        if len(data) == size:
            return data
        parts = [data]
        while parts[-1]:
            parts.append(os.read(descriptor, _CHUNK))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def publish(root: Path, path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write ``path``, somewhere under ``root``, so that it is seen whole or not at all: stage, fsync, rename.

    What need not be ``durable`` is not synced: after a power cut it may be in pieces, which its seal must tell.
    """
    staging = root / STAGING
    staging.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, staged = tempfile.mkstemp(dir=staging)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _hold(descriptor)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.replace(staged, path)  # before the lock is let go
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise


@contextlib.contextmanager
def turn(root: Path, name: str, seconds: float) -> Iterator[None]:
    """One process at a time under this name: the others wait, ``seconds`` at most, and then go on all the same.

    It saves work that others do; nothing may rely on it.
    """
    path = root / LOCKS / f"{name}.lock"
    descriptor = _take(path, seconds)
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)  # who waits for this file sees that it is gone, and takes the next
            os.close(descriptor)


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


def sweep(root: Path) -> int:
    """Remove what processes that are gone have left in ``root`` and among the temporary files; says how many."""
    places = [(root / STAGING, ""), (root / LOCKS, "")]
    with contextlib.suppress(OSError):  # no folder for temporary files
        places.append((Path(tempfile.gettempdir()), _SCRATCH))
    count = 0
    for folder, prefix in places:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(prefix) and _is_mine(entry):
                    count += _sweep_one(Path(entry.path), entry.is_dir(follow_symlinks=False))
    return count


def _is_mine(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        about = entry.stat(follow_symlinks=False)
        owned = not hasattr(os, "getuid") or about.st_uid == os.getuid()
        return owned and not entry.is_symlink() and time.time() - about.st_mtime > _GRACE_S
    return False


def _sweep_one(path: Path, is_folder: bool) -> bool:
    try:
        descriptor = os.open(path, (os.O_RDONLY if is_folder else os.O_RDWR) | os.O_CLOEXEC)
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
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
        # The one who had it has removed the file: take the one that lies there now.


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
