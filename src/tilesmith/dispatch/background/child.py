"""A process that does one job after the other beside the program, as the program sees it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any, Final

from tilesmith.dispatch.locations import DatabasePaths
from tilesmith.dispatch.request import Request
from tilesmith.toolchain.python_process import child_environment

END_S: Final = 1.0  # at the exit: for the process to end by itself


def message_of(request: Request, work: str) -> dict[str, Any]:
    """The message to ``dispatch.background.process``: a request, and the work on it.

    ``work`` is ``"measure"`` (as mode ``hybrid``), ``"decide"`` (the untuned choice) or ``"build"`` (its plan, too).
    """
    databases = request.databases
    assert isinstance(databases, DatabasePaths)
    return {
        "work": work, "key": request.problem, "target": [request.target.family, asdict(request.target)],
        "device": request.device, "databases": list(databases.paths), "system": databases.system,
        "cache": str(request.cache.directory), "only": request.only, "external": request.external,
        "frozen": request.frozen,
    }  # fmt: skip


class Child:
    """A process that takes one job at a time: a line of JSON for each, and one for each answer."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilesmith.dispatch.background.process"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            env=child_environment(), start_new_session=True,
        )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: dict[str, Any], limit_s: float) -> str:
        """Why a job was not done; empty if it was. Raises ``OSError`` if the process is gone."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(message).encode() + b"\n")
        line, deadline = b"", time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.end(0.0)
                    return f"it did not end within {limit_s:.0f} s"
                data = os.read(stdout.fileno(), 1 << 16)
                if not data:
                    return f"the process ended with status {self._process.wait(END_S)}"
                line += data
        return str(json.loads(line)["error"])

    def end(self, patience_s: float) -> None:
        """Interrupt it, which ends its search and removes its files; kill it if that takes too long."""
        self.interrupt()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self.let_go()

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGINT)

    def let_go(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
