"""The progress of a run, in a file: after a client was lost, the next one goes on from there."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from types import TracebackType

from tilesmith.errors import FleetError
from tilesmith.fleet.outbox import own_folder
from tilesmith.toolchain.files import open_alone, read
from tilesmith.toolchain.trust import why_distrusted

MOST_BYTES = 1 << 28


def name_of_run(parts: Sequence[str]) -> str:
    """The name of the run that all this describes: the same for the same command, whenever it is given."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part};".encode("utf-8", "replace"))
    return digest.hexdigest()[:32]


class Journal:
    """The pairs (problem, target) that a run has settled. A context manager: inside, no other process has it."""

    def __init__(self, run: str) -> None:
        self._path = own_folder() / "runs" / run
        self._lock: int | None = None
        self._file = -1
        #: The pairs, and whether an earlier client has begun this run.
        self.done: set[tuple[str, str]] = set()
        self.resumes = False

    def __enter__(self) -> Journal:
        lock = self._path.with_suffix(".lock")
        self._lock = open_alone(lock)
        if self._lock is None:
            raise FleetError(f"another process tunes the same list into the same database (it holds {lock})")
        reason = why_distrusted(self._path.parent)
        if reason is not None:
            raise FleetError(f"{self._path.parent}: {reason}")
        self.resumes = self._path.exists()
        if self.resumes:
            self._read()
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file >= 0:
            os.close(self._file)
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path.with_suffix(".lock"))
            os.close(self._lock)

    def settle(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Note, durably, that the database has these answers."""
        found = list(pairs)
        if found:
            self.done.update(found)
            os.write(self._file, "".join(f"{problem}\t{target}\n" for problem, target in found).encode())
            os.fsync(self._file)

    def finish(self) -> None:
        """The run is over: the same command begins anew."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _read(self) -> None:
        """A line that was cut short when the machine stopped counts for nothing."""
        text = read(str(self._path), MOST_BYTES).decode("utf-8", "replace")
        for line in text.splitlines(keepends=True):
            problem, tab, target = line.partition("\t")
            if tab and target.endswith("\n"):
                self.done.add((problem, target[:-1]))
