"""Reading files that others have made or named: without waiting for them, and no more than what they may hold.

A pipe without a writer, a device without an end and a file without a bound are told by what they are, before memory or
time runs out.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tilesmith.errors import FileFormatError

STDIN: Final = "/dev/stdin"
SILENCE_S: Final = 60.0  # of a pipe, before it counts as broken
_MIB = 1 << 20
_CHUNK = 1 << 16
# Opening a pipe without a writer does not block, and a terminal does not become that of the process.
AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"), (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


def why_no_file(mode: int) -> str:
    """Says what ``st_mode`` shows if not a regular file (``is a pipe, not a file``); empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return next((f"is {name}, not a file" for test, name in _KINDS if test(mode)), "is not a file")


def read_named(path: Path | str, most: int, *, pipes: bool = True) -> bytes:
    """The bytes of a file, a pipe or standard input that a user names: at most ``most``.

    Raises ``FileFormatError`` for what is none of these, holds more, or cannot be read, and for a pipe through which
    nothing comes for ``SILENCE_S`` seconds. What is read more than once can be no pipe: ``pipes`` false refuses it.
    """
    return b"".join(_named(path, most, pipes=pipes))


def lines_named(path: Path | str, longest: int, most_piped: int) -> Iterator[bytes | None]:
    """The lines of such a file, without their ends, as they come; None in place of one of more than ``longest`` bytes.

    A file may have any size, a pipe brings at most ``most_piped`` bytes. Raises ``FileFormatError``.
    """
    begun, skips = b"", False
    for chunk in _named(path, None, most_piped):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line = begun + part
            yield None if skips or len(line) > longest else line
            begun, skips = b"", False
        begun += rest
        if len(begun) > longest:
            begun, skips = b"", True
    if begun or skips:
        yield None if skips else begun


def _named(path: Path | str, most: int | None, most_piped: int | None = None, *, pipes: bool = True) -> Iterator[bytes]:
    standard = str(path) == STDIN
    try:
        mode = os.stat(path).st_mode  # before it is opened: a device may do something then
        if not (standard or (pipes and stat.S_ISFIFO(mode))) and (wrong := why_no_file(mode)):
            raise FileFormatError(f"{path}: cannot be read: it {wrong}")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | AT_ONCE)
        try:
            about = os.fstat(descriptor)
            regular = stat.S_ISREG(about.st_mode)
            limit = most if regular or most_piped is None else most_piped
            if regular and limit is not None and about.st_size > limit:
                raise _too_long(path, limit)
            silence_s = None if standard else SILENCE_S  # what is typed, or comes from another command, takes its time
            yield from chunks(descriptor, limit, waits=not regular, silence_s=silence_s)
        finally:
            os.close(descriptor)
    except FileFormatError:
        raise
    except TooLongError as error:
        raise _too_long(path, error.most) from None
    except TimeoutError:
        raise FileFormatError(f"{path}: cannot be read: nothing came through this pipe for {SILENCE_S:g} s") from None
    except (OSError, ValueError) as error:  # a name with a null byte
        raise FileFormatError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


class TooLongError(OSError):
    """More came than may be read."""

    def __init__(self, most: int) -> None:
        super().__init__(errno.EFBIG, f"holds more than {most} bytes")
        self.most = most


def _too_long(path: Path | str, most: int) -> FileFormatError:
    shown = f"{most // _MIB} MiB" if most >= _MIB else f"{most} bytes"
    return FileFormatError(f"{path}: cannot be read: it holds more than {shown}")


def chunks(descriptor: int, most: int | None, *, waits: bool, silence_s: float | None = None) -> Iterator[bytes]:
    """Reads an open file up to its end; ``TimeoutError`` after a silence."""
    size = 0
    while True:
        if waits:
            _await(descriptor, silence_s)
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:  # another reader was faster
            continue
        if not chunk:
            return
        size += len(chunk)
        if most is not None and size > most:
            raise TooLongError(most)
        yield chunk


def _await(descriptor: int, silence_s: float | None) -> None:
    """Until something can be read, the end included. A pipe without a writer is silent."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = None if silence_s is None else time.monotonic() + silence_s
    while True:
        left_s = None if deadline is None else deadline - time.monotonic()
        if poll.poll(None if left_s is None else max(0, int(left_s * 1000))):
            return
        if left_s is not None and left_s <= 0:
            raise TimeoutError
