"""Decides and builds kernels in other processes, ahead of the calls that need them.

Estimates and kernel texts are Python: the threads of one process take turns at them, and with the program. What these
processes find lies in the cache, where the calls look first; a call whose work fails or is late here does it itself.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import queue
import threading
from concurrent.futures import Future
from typing import Final

from tilesmith import env
from tilesmith.dispatch.background.child import END_S, Child, message_of
from tilesmith.dispatch.packages import installed_packages
from tilesmith.dispatch.request import Request
from tilesmith.targets.detect import usable_cores
from tilesmith.targets.target import Target

MOST: Final = 8  # processes
SHARE: Final = 2  # cores for each of them: whatever compiles beside them has the others
LEAST: Final = 2  # of them, to be worth their start
JOB_S: Final = 60.0  # for one problem, the start of a process included
IDLE_S: Final = 5.0  # after which a process ends
_log = logging.getLogger("tilesmith.dispatch")


def start(target: Target, mode: str) -> None:
    """Start the processes, if they help: there are cores for them, and they find what this process would."""
    bound = env.ONLY_SOLVER.get() or env.TUNING_SPEC_PATH.get() is not None or installed_packages().state
    if target.family == "cuda" and mode == "fast" and not bound and env.CACHE_ON.get() and _count() >= LEAST:
        _ahead.start(_count())


def runs() -> bool:
    """Whether there are processes: they were started, and have not been idle for ``IDLE_S`` seconds."""
    return _ahead.runs


def decide_ahead(request: Request) -> Future[str]:
    """Decide a problem; the future says why that was not done, or nothing. Decisions come before kernels."""
    return _ahead.add(0, request, "decide")


def build_ahead(request: Request) -> Future[str]:
    """Decide a problem and build its kernel."""
    return _ahead.add(1, request, "build")


def _count() -> int:
    return min(MOST, usable_cores() // SHARE)


class _Ahead:
    """The queue, and a thread for each process, which hands it one job at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.PriorityQueue[tuple[int, int, Request, str, Future[str]]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._children: set[Child] = set()
        self._ending = False

    def start(self, count: int) -> None:
        with self._lock:
            for _ in range(0 if self._ending else count - len(self._children)):
                try:
                    child = Child()
                except OSError as error:
                    _log.info("no process can be started: %s", error)
                    return
                self._children.add(child)
                threading.Thread(target=self._run, args=(child,), name="tilesmith-ahead", daemon=True).start()

    def add(self, rank: int, request: Request, work: str) -> Future[str]:
        found: Future[str] = Future()
        self._jobs.put((rank, next(self._numbers), request, work, found))
        if not self._children:
            self._drain("no process is there")
        return found

    @property
    def runs(self) -> bool:
        return bool(self._children)

    def end(self) -> None:
        """End all processes; waits for a few times ``END_S`` seconds at most."""
        with self._lock:
            self._ending, children = True, list(self._children)
        for child in children:
            child.interrupt()
        for child in children:
            child.end(END_S)

    def forget(self) -> None:
        """In the child of a fork, which has no threads: let go of the parent's processes."""
        for child in self._children:
            child.let_go()

    def _run(self, child: Child) -> None:
        while child.alive and not self._ending:
            try:
                _, _, request, work, found = self._jobs.get(timeout=IDLE_S)
            except queue.Empty:
                break
            try:
                error = child.ask(message_of(request, work), JOB_S)
            except (OSError, ValueError) as gone:
                error = str(gone)
            if error:
                _log.info("not built ahead: %s: %s", request.problem, error)
            found.set_result(error)
        with self._lock:
            self._children.discard(child)
            last = not self._children
        if not self._ending:
            child.end(END_S)
        if last:
            self._drain("its process ended")

    def _drain(self, why: str) -> None:
        while True:
            try:
                *_, found = self._jobs.get_nowait()
            except queue.Empty:
                return
            found.set_result(why)


_ahead = _Ahead()


def _begin_anew() -> None:
    global _ahead
    _ahead.forget()
    _ahead = _Ahead()


def _end() -> None:
    _ahead.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_end)
