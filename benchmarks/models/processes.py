"""Processes of ``worker.py``: asked with a deadline, in a folder of their own for what compilers leave."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
START_S = 120.0  # until the first answer, beyond the task's own time
END_S = 60.0  # a process that is killed gives back what it holds of a busy device first
TOLD_S = 2.0  # until a process that is too late has written where it is
STACK = "Stack (most recent call first)"  # as faulthandler begins
LINES, FRAMES, WIDTH = 6, 12, 200  # of what a process that died has said last, and of where it was


def session_cpu_s() -> float:
    """Processor seconds of this process's session, and of all below it that have one of their own.

    Processes that have ended count if their parents have waited for them.
    """
    found: dict[int, tuple[int, int, int]] = {}  # parent, session and ticks by process
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[1]), int(fields[3]), sum(map(int, fields[11:15]))
    counted, session = set(), os.getsid(0)
    new = {process for process, (_, own, _) in found.items() if own == session}
    while new:
        counted |= new
        new = {process for process, (parent, _, _) in found.items() if parent in new} - counted
    return sum(found[process][2] for process in counted) / os.sysconf("SC_CLK_TCK")


class Process:
    """``stores`` is where Tilesmith keeps databases and kernels; None: the process begins from nothing.

    ``threads`` are those of a processor, for all libraries alike. ``gpu`` is the number of the one that it sees; None:
    all of them. ``temporary`` is where all libraries put what they need for a moment; None: the system's folder.
    """

    def __init__(
        self, log: Path, threads: int, stores: Path | None = None, compiled: Path | None = None,
        gpu: int | None = None, temporary: Path | None = None,
    ) -> None:  # fmt: skip
        self.folder = Path(tempfile.mkdtemp(prefix="tilesmith-models-"))
        kept = stores or self.folder
        path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
        inherited = {name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {
            # Modules are compiled once, as in an installation.
            **inherited, "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "models" / "bytecode"), "PYTHONPATH": path,
            "TORCHINDUCTOR_CACHE_DIR": str(compiled or self.folder / "inductor"),
            "OMP_NUM_THREADS": str(threads), "TILESMITH_NUM_THREADS": str(threads),
            "TILESMITH_CACHE_DIR": str(kept / "cache"), "TILESMITH_DB_PATH": str(kept / "tilesmith.db"),
        }  # fmt: skip
        if temporary is not None:
            environment["TMPDIR"] = str(temporary)
        if gpu is not None:
            shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            environment["CUDA_VISIBLE_DEVICES"] = shown.split(",")[gpu] if shown else str(gpu)
        self._log = log
        with log.open("a") as said:
            # A session of its own: what it starts to compile ends with it.
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
                env=environment, start_new_session=True,
            )  # fmt: skip
        self.extra_s = START_S

    def ask(self, task: dict, limit_s: float) -> dict:
        """The answer; where the process gave none, and has ended, why it ``died`` and the last lines that it ``said``.

        A process that is too late writes first where each of its threads is.
        """
        try:
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return self._died(f"the process ended with {self.process.wait()}")
        said, deadline = b"", time.monotonic() + limit_s + self.extra_s
        self.extra_s = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not said.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.process.send_signal(signal.SIGUSR1)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(TOLD_S)
                    self.end()
                    return self._died(f"gave no result within {limit_s:.0f} s")
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                if not data:
                    return self._died(f"the process ended with {self.process.wait()}")
                said += data
        return json.loads(said)

    def _died(self, why: str) -> dict:
        said, begin, stack = self._log.read_text(errors="replace").partition(STACK)
        lines = [*said.splitlines()[-LINES:], *(begin + stack).splitlines()[:FRAMES]]
        return {"died": why, "said": [line[:WIDTH] for line in lines]}

    def pause(self, stopped: bool) -> None:
        """Stop it with all that it has started, or let it go on."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGSTOP if stopped else signal.SIGCONT)

    def end(self) -> None:
        """Idle or not, with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(END_S)
        self.process.stdin.close()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
