"""The worker as a process: started, spoken to, ended; and kept warm from one problem to the next.

A fresh worker loads NumPy and the driver and makes a CUDA context, and PyTorch where that takes part: seconds that a
search of seconds does not have. ``Workers`` keeps one for each device while a command goes through its problems, and
a search counts its seconds from when its worker is up. ``workers_of_process`` are for calls that come one by one; they
end when nothing comes for a while.
``verify_apart`` checks one plan in such a process, which may die of it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Final

from tilesmith.errors import LaunchError
from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.oracle import Oracle, write_oracle
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.work import flops
from tilesmith.targets.detect import usable_cores
from tilesmith.toolchain.files import scratch
from tilesmith.toolchain.python_process import child_environment
from tilesmith.tune.crash_report import CrashReport
from tilesmith.tune.messages import (
    Prepare,
    Prepared,
    Refused,
    Reply,
    Request,
    Reset,
    Verified,
    Verify,
    frame,
    take_reply,
)

PATIENCE_S = 10.0
_CPU: Final = -1
_LEAST_S: Final = 120.0  # for all checks of a small problem on a busy machine
_IDLE_S: Final = 60  # that a worker waits for the next call of this process
_RUNS: Final = 60  # of the slowest kernel that is one (0.1 GFLOP/s), and the oracles


class WorkerDiedError(Exception):
    """The worker crashed or did not answer; the message says which."""


class WorkerProcess:
    """One running ``tune.worker``, and the crash report that names the plan it runs.

    Where it is for a CUDA device, it makes the device's context first.
    """

    def __init__(self, device: int = _CPU) -> None:
        self._held = ExitStack()
        folder = self._held.enter_context(scratch())
        self.report = CrashReport(folder / "report")
        self._buffer = bytearray()
        self._up: float | None = None
        #: What it was started with; a worker kept for the next problem must have been started with the same.
        self.environment = dict(os.environ)
        self._process = _starter(os.getpid()).submit(_start, folder / "report").result()
        if device != _CPU:
            with contextlib.suppress(WorkerDiedError):  # it is met at the next request
                self.send(Prepare(device))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, request: Request) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame(request))
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise WorkerDiedError(self._how_it_ended()) from None

    def await_up(self, limit_s: float) -> float:
        """Wait until it has made the context of its device; the moment of ``time.monotonic`` when it had."""
        if self._up is None:
            reply = self._next(time.monotonic() + limit_s, f"was not up within {limit_s:.1f} s")
            assert isinstance(reply, Prepared)
            self._up = reply.moment
        return self._up

    def receive(self, limit_s: float) -> Reply:
        """The reply to a request, which stands behind that of the start."""
        deadline, late = time.monotonic() + limit_s, f"did not end within {limit_s:.1f} s"
        reply = self._next(deadline, late)
        if isinstance(reply, Prepared):
            self._up = reply.moment
            reply = self._next(deadline, late)
        return reply

    def _next(self, deadline: float, late: str) -> Reply:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while (reply := take_reply(self._buffer)) is None:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise WorkerDiedError(late)
                data = os.read(descriptor, 1 << 16)
                if not data:
                    raise WorkerDiedError(self._how_it_ended())
                self._buffer += data
        return reply

    def kill(self, patience_s: float = PATIENCE_S) -> None:
        """End it. One that still gives a device's memory back after ``patience_s`` seconds is left to the system."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self._held.close()

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if status < 0:
            fault = self.report.fault()
            told = f": it {fault}" if fault else ""
            try:
                return f"crashed ({signal.Signals(-status).name}){told}"
            except ValueError:
                return f"crashed (signal {-status}){told}"
        return f"ended with status {status}"


def _start(report: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tilesmith.tune.worker", str(report)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
        start_new_session=True,  # Ctrl-C is for the session, which then ends the worker
    )


@lru_cache(maxsize=1)
def _starter(process: int) -> ThreadPoolExecutor:
    """A thread that lives as long as this process (its number; a fork's child has no threads).

    NOTE: Linux ends a worker that asked for it (``PR_SET_PDEATHSIG``) with the thread that has started it.
    """
    return ThreadPoolExecutor(1, "tilesmith-starter")


class Workers:
    """A context manager: inside, searches that are given it find the worker of the last problem on their device.

    ``most`` are kept idle for each device, for ``idle_s`` seconds (0: until ``close``); safe to call from several
    threads.
    """

    def __init__(self, most: int = 1, idle_s: int = 0) -> None:
        self._most, self._idle_s = most, idle_s
        self._idle: dict[int, list[tuple[WorkerProcess, float]]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all that are idle."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for worker, _ in (held for workers in idle.values() for held in workers):
            worker.kill()

    def take(self, device: int) -> WorkerProcess:
        """The idle worker of a device (-1: the CPU), or a new one."""
        while True:
            with self._lock:
                idle = self._idle.get(device)
                held, since = idle.pop() if idle else (None, 0.0)
            if held is None:
                return WorkerProcess(device)
            # One whose time is nearly over might end with the request.
            late = self._idle_s > 0 and time.monotonic() - since > 0.8 * self._idle_s
            if held.alive and not late and held.environment == dict(os.environ):
                return held
            held.kill()

    def prepare(self, device: int) -> None:
        """Start a worker for a CUDA device while nobody waits for it.

        For the first problem, and for the next one after a search that has ended its worker: to start takes three
        seconds on an H100's host beside 16 compilers, and 7 to 14 on some.
        """
        self._keep(device, WorkerProcess(device))

    def give(self, device: int, worker: WorkerProcess) -> None:
        """Keep a worker that owes no reply; it forgets its problem."""
        try:
            worker.send(Reset(self._idle_s))
        except WorkerDiedError:
            worker.kill()
            return
        self._keep(device, worker)

    def _keep(self, device: int, worker: WorkerProcess) -> None:
        with self._lock:
            idle = self._idle.setdefault(device, [])
            idle.append((worker, time.monotonic()))
            before = idle.pop(0)[0] if len(idle) > self._most else None
        if before is not None:
            before.kill()


def verify_apart(
    plan: bytes, artifacts: Sequence[Path], signature: Signature, seed: int = 0, truth: Oracle | None = None,
    specials: bool = False,
) -> Accuracy:  # fmt: skip
    """``measure.host_check.verify_plan`` of a CPU plan for a canonical problem.

    Raises ``LaunchError`` where the plan cannot be loaded, crashes, or does not end.
    """
    limit_s = _LEAST_S + _RUNS * flops(signature) / 1e8
    with scratch() as folder:
        path = folder / "oracle.npz"
        if truth is not None:
            write_oracle(path, truth)
        request = Verify(
            signature.key(), seed, plan, tuple(map(str, artifacts)), str(path) if truth is not None else "", specials
        )
        workers = workers_of_process()
        worker = workers.take(_CPU)
        try:
            worker.send(request)
            reply = worker.receive(limit_s)
        except WorkerDiedError as death:
            worker.kill()
            raise LaunchError(f"the kernel {death}") from None
        except BaseException:
            worker.kill()  # it owes a reply
            raise
    workers.give(_CPU, worker)
    if isinstance(reply, Refused):
        raise LaunchError(reply.reason)
    assert isinstance(reply, Verified)
    return Accuracy(reply.ok, reply.error, reply.bound, reply.worst_index, reply.message)


def workers_of_process() -> Workers:
    """Those for calls that come one by one: one for each core at most, so that several threads find one each."""
    return _workers_of(os.getpid())


@lru_cache(maxsize=1)
def _workers_of(process: int) -> Workers:
    """Of this process (its number): a fork's child must not speak to its parent's."""
    found = Workers(usable_cores(), _IDLE_S)
    atexit.register(found.close)
    return found
