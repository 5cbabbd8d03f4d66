"""Compilers as processes that end when they have to, with all that they have started.

A driver such as gcc starts the compiler proper. Killed alone, it leaves a child that works on and holds its pipe open:
the reader of the pipe waits for that child. So a compiler that has an owner has a process group of its own, and the
group is killed. One without an owner stays in the group of this process, where Ctrl-C in a terminal reaches it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

_HAS_GROUPS = os.name == "posix"
_here = threading.local()  # whose processes this thread starts


class Processes:
    """Those that one owner starts. ``with owner:`` around the code of a thread makes what it starts the owner's."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def __enter__(self) -> Processes:
        _here.owners = [*getattr(_here, "owners", []), self]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _here.owners = _here.owners[:-1]

    def end(self) -> None:
        """Kill those that run; what is started from now on is killed at once."""
        with self._lock:
            self._ended = True
            running = list(self._running)
        for process in running:
            _kill(process)

    def add(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.add(process)
            ended = self._ended
        if ended:
            _kill(process)

    def remove(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(process)


def run(command: Sequence[str], *, timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """``subprocess.run`` with captured text; a process beyond ``timeout`` seconds is killed, and after an interruption.

    With an owner its children are, too, and both at the owner's ``end``. Raises ``subprocess.TimeoutExpired``, and
    ``OSError`` where there is no such command.
    """
    owner = next(iter(getattr(_here, "owners", [])[-1:]), None)
    group: dict[str, Any] = {"process_group": 0} if _HAS_GROUPS and owner is not None else {}
    # Between its start and the ``try`` an interruption would leave it running, so nothing stands there.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **group, **options
    )
    try:
        if owner is not None:
            owner.add(process)
        output, errors = process.communicate(timeout=timeout)
    except BaseException:
        _kill(process, whole=owner is not None)
        process.communicate()
        raise
    finally:
        if owner is not None:
            owner.remove(process)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _kill(process: subprocess.Popen[str], whole: bool = True) -> None:
    with contextlib.suppress(OSError):  # it has ended
        if _HAS_GROUPS and whole:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
