"""Fetches a file whole, within limits. What was interrupted goes on where it stopped, in a later process too."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError

from tilesmith.errors import PackageError
from tilesmith.package.sources import Source
from tilesmith.toolchain.arriving import PATIENCE, Patience
from tilesmith.toolchain.files import open_alone, remove_older
from tilesmith.toolchain.request import BrokenOffError

PARTIAL = "partial"  # the folder of what is interrupted
_WEEK_S = 7 * 86_400.0
_TRIES = 4  # without a new byte
_PAUSE_S = 0.5  # before the second try; doubled each time
_AGAIN = frozenset((408, 429, 500, 502, 503, 504))  # answers of servers that may be better soon
_HEAD = 256  # bytes of a partial file's first line, at most

Listener = Callable[[int, int | None], None]  # bytes that are here, and bytes of the whole file if they are known


@dataclass(frozen=True)
class Limits:
    """The limits of a download: bytes, and time."""

    most_bytes: int
    patience: Patience = PATIENCE


@dataclass(frozen=True)
class Download:
    """A file that has come, and whether it began in an earlier process."""

    data: bytes
    resumed: bool


@contextlib.contextmanager
def downloaded(
    source: Source, folder: Path | None, limits: Limits, listener: Listener = lambda done, total: None,
    *, anew: bool = False,
) -> Iterator[Download]:  # fmt: skip
    """The file at ``source``.

    Args:
        source: Where it lies.
        folder: Below it, in ``partial``, lies what has come, up to the end of the ``with`` block: a process that is
            killed leaves it to the next one. None keeps nothing.
        limits: Bytes and time.
        listener: Called as bytes come.
        anew: Use nothing that an earlier process has left.

    Raises:
        PackageError: It cannot be fetched, holds too much, or takes too long.
    """
    with _Partial.of(source.url, folder) as partial:
        if anew:
            partial.begin("")
        resumed = len(partial.data) > 0
        try:
            _fetch(source, partial, limits, listener)
        except PackageError:  # a ValueError, too, whose message says all
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            if isinstance(error, HTTPError):
                reason = f"the server answers {error.code} {error.reason}"
            kept = f"; {len(partial.data)} bytes are kept for the next try" if partial.is_kept else ""
            raise PackageError(f"{source.url}: cannot be fetched: {' '.join(str(reason).split())}{kept}") from None
        try:
            yield Download(bytes(partial.data), resumed and partial.continued)
        finally:
            partial.remove()


def _fetch(source: Source, partial: _Partial, limits: Limits, listener: Listener) -> None:
    deadline = time.monotonic() + limits.patience.total_s
    tries, pause_s = _TRIES, _PAUSE_S
    while True:
        before = len(partial.data)
        try:
            return _once(source, partial, limits.most_bytes, limits.patience.until(deadline), listener)
        except (ConnectionError, TimeoutError, BrokenOffError, HTTPError) as error:
            if isinstance(error, HTTPError) and error.code not in _AGAIN:
                raise
            tries, pause_s = (_TRIES, _PAUSE_S) if len(partial.data) > before else (tries - 1, pause_s * 2)
            if not tries or time.monotonic() + pause_s > deadline:
                raise
        time.sleep(pause_s)


def _once(source: Source, partial: _Partial, most: int, patience: Patience, listener: Listener) -> None:
    part = source.open(len(partial.data), partial.version, most, patience)
    chunks = part.chunks
    try:
        if part.total is not None and part.total > most:
            raise ValueError(f"it holds {part.total} bytes, more than {most}")
        if part.begin == 0:
            partial.begin(part.version)
        for chunk in chunks:
            if len(partial.data) + len(chunk) > most:
                raise ValueError(f"it holds more than {most} bytes")
            partial.add(chunk)
            listener(len(partial.data), part.total)
        if part.total is not None and len(partial.data) < part.total:
            raise BrokenOffError(f"it broke off after {len(partial.data)} of {part.total} bytes")
        if part.total is not None and len(partial.data) > part.total:
            raise ValueError(f"it sends {len(partial.data)} bytes, and says that it has {part.total}")
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()


class _Partial:
    """The part of a file that has arrived: in memory, and in a file that a later process can continue.

    The file has the version and a line feed before the bytes. It is locked; without the lock, memory alone is used.
    It is not synced: whatever a power cut leaves, the bytes are verified when all of them are there.
    """

    def __init__(self, path: Path | None, descriptor: int | None) -> None:
        self._path, self._descriptor, self._is_ours = path, descriptor, descriptor is not None
        self.data, self.version = bytearray(), ""
        self.continued = True  # nothing has begun anew
        if descriptor is not None:
            head, feed, rest = _all_of(descriptor).partition(b"\n")
            if feed and 0 < len(head) <= _HEAD and rest:
                self.version, self.data = head.decode("ascii", "replace"), bytearray(rest)

    @staticmethod
    @contextlib.contextmanager
    def of(url: str, folder: Path | None) -> Iterator[_Partial]:
        path = descriptor = None
        if folder is not None:
            remove_older(folder / PARTIAL, _WEEK_S)
            path = folder / PARTIAL / hashlib.sha256(url.encode("utf-8", "replace")).hexdigest()[:32]
            descriptor = open_alone(path)
        partial = _Partial(path, descriptor)
        try:
            yield partial
        finally:
            if not partial.is_kept:
                partial.remove()
            if descriptor is not None:
                os.close(descriptor)

    @property
    def is_kept(self) -> bool:
        return self._descriptor is not None and bool(self.version and self.data)

    def begin(self, version: str) -> None:
        """Start with nothing of a file of this version."""
        self.continued = False
        self.data, self.version = bytearray(), version
        self._write(f"{version}\n".encode() if version else b"", anew=True)

    def add(self, chunk: bytes) -> None:
        self.data += chunk
        if self.version:
            self._write(chunk)

    def remove(self) -> None:
        if self._path is not None and self._is_ours:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _write(self, data: bytes, *, anew: bool = False) -> None:
        if self._descriptor is None:
            return
        try:
            if anew:
                os.ftruncate(self._descriptor, 0)
                os.lseek(self._descriptor, 0, os.SEEK_SET)
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:  # a full disk: nothing can be continued later, and memory still can hold it
            self._descriptor = None


def _all_of(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()
