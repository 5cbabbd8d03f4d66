"""Mode ``background``: the first calls run the untuned choice, while another process measures what ``hybrid`` would.

A thread of this process hands one problem at a time to ``dispatch.background.process``, waits, and then replaces the
untuned choice. Another process measures, so nothing holds this one's interpreter, a kernel that crashes costs nothing
here, and no call to a device is made during a capture.

On a CPU the measurement and the program would slow each other, so a problem waits until this process has been quiet for
a moment, ``QUIET_MOST_S`` at most.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilesmith.db.waiting import patiently
from tilesmith.dispatch import hits
from tilesmith.dispatch.background.child import END_S, Child, message_of
from tilesmith.dispatch.choice import DATABASE, PACKAGES, SPEC, Resolved
from tilesmith.dispatch.locations import DatabasePaths
from tilesmith.dispatch.request import Request
from tilesmith.errors import TilesmithError
from tilesmith.targets.target import CpuTarget

MOST: Final = 512  # problems that wait; more are left to their untuned choices
JOB_S: Final = 180.0  # for one problem, the start of the process included
IDLE_S: Final = 10.0  # after which the process ends
QUIET_SHARE: Final = 0.3  # of a core that this process uses at most while it counts as quiet
QUIET_S: Final = 0.1  # over which that is read
QUIET_MOST_S: Final = 20.0
CAPTURE_MOST_S: Final = 120.0  # that a problem waits for the end of a capture
_log = logging.getLogger("tilesmith.dispatch")


@dataclass(frozen=True)
class Job:
    """A problem that runs untuned. ``replace`` takes the measured choice; ``is_capturing`` is true while the stream of
    the call that met the problem is captured (None: it was not)."""

    request: Request
    replace: Callable[[Resolved], None]
    is_capturing: Callable[[], bool] | None = None


def can_measure(request: Request, resolved: Resolved) -> bool:
    """Whether ``hybrid`` mode would measure a problem that was resolved in mode ``fast``, and another process can."""
    choice = resolved.choice
    if choice.basis in (DATABASE, SPEC, *PACKAGES) or not isinstance(request.databases, DatabasePaths):
        return False
    candidates = [line for line in choice.trace if not line.reason or line.solver == choice.solver]
    return len(candidates) > 1


def measure_later(job: Job) -> None:
    """Queue a problem; returns at once. A problem beyond ``MOST`` is dropped, which is logged once."""
    _background.add(job)


def wait_until_done(limit_s: float) -> bool:
    """Wait until no problem waits or is measured; false if that takes longer than ``limit_s`` seconds."""
    return _background.wait(limit_s)


class _Background:
    """The queue, its thread and the measuring process of this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._process: Child | None = None
        self._told: set[str] = set()

    def add(self, job: Job) -> None:
        with self._changed:
            if self._ending.is_set():
                return
            if len(self._jobs) >= MOST:
                self._tell_once(f"{MOST} problems wait to be measured; further ones keep their untuned choices")
                return
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tilesmith-background", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, limit_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs, limit_s)

    def end(self) -> None:
        """End the process and the thread; waits for a few times ``END_S`` seconds at most."""
        self._ending.set()
        with self._changed:
            self._jobs.clear()
            self._changed.notify_all()
            thread, process = self._thread, self._process
        if process is not None:
            process.end(END_S)
        if thread is not None:
            thread.join(END_S)

    def forget(self) -> None:
        """In the child of a fork, which has no thread: let go of the parent's process."""
        if self._process is not None:
            self._process.let_go()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._do(job)
            except Exception as error:  # whatever happens, the untuned choice stays
                if not self._ending.is_set():
                    self._tell_once(f"{job.request.problem} keeps its untuned choice: {error}")
            with self._changed:
                if self._jobs and self._jobs[0] is job:
                    self._jobs.popleft()
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """The next problem, which stays in the queue until it is done; None ends the thread and its process."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._ending.is_set(), IDLE_S)
            if self._jobs and not self._ending.is_set():
                return self._jobs[0]
            self._thread = None
            process, self._process = self._process, None
        if process is not None:
            process.end(END_S)
        return None

    def _do(self, job: Job) -> None:
        request = job.request
        if job.is_capturing is not None and not self._await(lambda: not _is_true(job.is_capturing), CAPTURE_MOST_S):
            raise TilesmithError(f"its stream was captured for {CAPTURE_MOST_S:.0f} s")
        if isinstance(request.target, CpuTarget):
            self._await(_was_quiet, QUIET_MOST_S)
        if self._ending.is_set():
            return
        if self._process is None or not self._process.alive:
            self._process = Child()
        answer = self._process.ask(message_of(request, "measure"), JOB_S)
        if answer:
            raise TilesmithError(answer)
        with patiently():
            resolved = _resolved_again(request)
        if resolved.choice.basis != DATABASE:
            raise TilesmithError("nothing could be measured or recorded")
        if not self._ending.is_set():
            job.replace(resolved)

    def _await(self, is_so: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not is_so():
            if time.monotonic() > deadline or self._ending.wait(QUIET_S):
                return False
        return True

    def _tell_once(self, message: str) -> None:
        level = logging.INFO if self._told else logging.WARNING
        self._told.add(message)
        _log.log(level, "in the background: %s", message)


def _is_true(ask: Callable[[], bool] | None) -> bool:
    return ask is not None and ask()


def _was_quiet() -> bool:
    """Whether this process uses next to no processor time now."""
    begun, used = time.monotonic(), time.process_time()
    time.sleep(QUIET_S)
    return time.process_time() - used < QUIET_SHARE * (time.monotonic() - begun)


def _resolved_again(request: Request) -> Resolved:
    """The choice that the other process has recorded, from its database and the cache."""
    from tilesmith.dispatch import resolve

    resolved = resolve.resolve(request)
    hits.keep(request, resolved, resolve.recorded_hit)
    return resolved


_background = _Background()


def _begin_anew() -> None:
    global _background
    _background.forget()
    _background = _Background()


def _end() -> None:
    _background.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_end)
