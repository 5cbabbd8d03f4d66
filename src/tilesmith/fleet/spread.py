"""Spreads jobs over the workers of an executor: one at a time on each, again elsewhere if a worker is lost or hangs.

The longest jobs begin first, so that no long one begins last.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tilesmith.fleet.executor import Event, Executor, Place, Told

ATTEMPTS = 5  # of a job
WAIT_S = 60.0  # for a worker, if there is none
AHEAD_FACTOR = 1  # jobs for each worker: with more of them a busy worker gets its next job
MOST_TOGETHER = 256  # outcomes
POLL_S = 0.5  # between two looks at the workers
END_S = 30.0  # for a question to the executor that is under way
WAKE_S = 0.05  # until the thread that waits for events sees that the run is over
_log = logging.getLogger("tilesmith.fleet")


@dataclass(frozen=True)
class Job:
    """A task that waits for a worker.

    Args:
        name: Its name.
        payload: Makes the task's bytes for the worker that it begins on.
        target: Name of the target whose workers may run it; empty: any.
        limit_s: Seconds after which its worker counts as hanging.
        expected_s: Seconds that it will probably take.
        avoid: A machine that must not run it.
        host: The one machine that may run it; empty: any.
    """

    name: str
    payload: Callable[[Place], bytes]
    target: str
    limit_s: float
    expected_s: float = 0.0
    avoid: str = ""
    host: str = ""

    def fits(self, place: Place) -> bool:
        return self.target in ("", place.target) and self.avoid != place.host and self.host in ("", place.host)


@dataclass(frozen=True)
class Began:
    """A job begins on a worker."""

    job: Job
    place: Place


@dataclass(frozen=True)
class Heard:
    """Progress of a job."""

    job: Job
    place: Place
    payload: bytes


@dataclass(frozen=True)
class Finished:
    """A reply. The caller may ask for the job again (``Spread.again``)."""

    job: Job
    place: Place
    payload: bytes


@dataclass(frozen=True)
class Failed:
    """A job that is given up, with the last reason."""

    job: Job
    reason: str


Outcome = Began | Heard | Finished | Failed


@dataclass
class _Running:
    job: Job
    place: Place
    ends: float
    waits: bool = False  # behind another one on its worker


@dataclass
class _Attempts:
    count: int = 0
    failed_on: set[str] = field(default_factory=set)  # names of workers


class Spread:
    """Jobs and where they run. ``run`` hands out what happens until no job is left; jobs may be added meanwhile.

    A thread waits for replies and begins the next job at once, so that no worker waits for what the caller does with a
    reply.

    Args:
        executor: Runs the jobs.
        wait_s: Seconds to wait for a worker that may run a job before the job fails.
        attempts: How often a job is begun at most.
    """

    def __init__(self, executor: Executor, wait_s: float = WAIT_S, attempts: int = ATTEMPTS) -> None:
        self._executor, self._wait_s, self._most = executor, wait_s, attempts
        self._lock = threading.RLock()  # around all that follows
        self._waiting: list[tuple[float, int, Job]] = []  # a heap
        self._running: dict[str, _Running] = {}  # by the name of the attempt
        self._attempts: dict[str, _Attempts] = {}
        self._serial = itertools.count()
        self._places: dict[str, Place] = {}
        self._orphaned: dict[tuple[str, str, str], float] = {}  # since when no worker fits jobs of this kind
        self._outcomes: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()

    @property
    def places(self) -> tuple[Place, ...]:
        """The workers as they were last seen."""
        with self._lock:
            return tuple(self._places.values())

    def add(self, job: Job) -> None:
        """Let a job wait for a worker."""
        with self._lock:
            heapq.heappush(self._waiting, (-job.expected_s, next(self._serial), job))

    def discard(self, name: str) -> None:
        """Take a job back that has not begun."""
        with self._lock:
            self._waiting = [each for each in self._waiting if each[2].name != name]
            heapq.heapify(self._waiting)

    def again(self, job: Job, place: Place, reason: str) -> None:
        """Begin a job once more, on another worker if there is one; give it up after the last attempt."""
        with self._lock:
            tried = self._attempts.setdefault(job.name, _Attempts())
            tried.failed_on.add(place.name)
            if tried.count >= self._most:
                self._outcomes.put(Failed(job, f"{reason} ({tried.count} attempts)"))
            else:
                _log.warning("%s: %s; it is tried again", job.name, reason)
                self.add(job)

    def look(self) -> tuple[Place, ...]:
        """Ask the executor for its workers, and begin again what lost ones ran."""
        places = self._executor.places()
        with self._lock:
            self._places = {place.name: place for place in places}
            for attempt, each in list(self._running.items()):
                if each.place.name in self._places:
                    continue
                del self._running[attempt]
                if each.waits:  # it had not begun
                    self._attempts[each.job.name].count -= 1
                    self.add(each.job)
                else:
                    self.again(each.job, each.place, f"worker {each.place.name} was lost")
        return places

    def run(self) -> Iterator[list[Outcome]]:
        """Until no job is left: all that has happened since the last time, and so on. Raises what the executor raises.

        A caller that takes long is given more at once.
        """
        over = threading.Event()
        pump = threading.Thread(target=self._pump, args=(over,), daemon=True)
        pump.start()
        try:
            while not self._is_done():
                outcomes = self._take_all()
                if not outcomes:
                    continue
                yield outcomes
                with self._lock:  # the caller may have added jobs
                    self._begin_all()
        finally:
            over.set()
            pump.join(END_S)  # it must not take events of what comes next

    def _take_all(self) -> list[Outcome]:
        """Waits for the first."""
        found: list[Outcome] = []
        with contextlib.suppress(queue.Empty):
            while len(found) < MOST_TOGETHER:
                outcome = self._outcomes.get(timeout=0.0 if found else POLL_S)
                if isinstance(outcome, BaseException):
                    raise outcome
                found.append(outcome)
        return found

    def _is_done(self) -> bool:
        with self._lock:
            return not (self._waiting or self._running) and self._outcomes.empty()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _pump(self, over: threading.Event) -> None:
        looked = -POLL_S
        try:
            while not over.is_set():
                if time.monotonic() - looked >= POLL_S:
                    looked = time.monotonic()
                    self.look()
                    with self._lock:
                        self._end_late()
                        self._give_up()
                with self._lock:
                    self._begin_all()
                events = self._executor.wait(WAKE_S)
                with self._lock:
                    for event in events:
                        self._take(event)
        except BaseException as error:
            self._outcomes.put(error)

    def _take(self, event: Event) -> None:
        each = self._running.get(event.task)
        if each is None:  # of a worker that counts as lost: another one has the job
            return
        if isinstance(event, Told):
            self._outcomes.put(Heard(each.job, each.place, event.payload))
            return
        # What takes the reply may ask for the job again, so the job must not count as done before.
        if event.reason:
            self.again(each.job, each.place, event.reason)
        else:
            self._outcomes.put(Finished(each.job, each.place, event.payload))
        del self._running[event.task]
        self._promote(each.place)
        self._begin_all()

    def _promote(self, place: Place) -> None:
        """The worker goes on with the job that waited behind the one that has ended."""
        for each in self._running.values():
            if each.place.name == place.name and each.waits:
                each.waits, each.ends = False, time.monotonic() + each.job.limit_s
                self._outcomes.put(Began(each.job, place))

    def _begin_all(self) -> None:
        """Give each free worker a job, and, as long as there are many jobs, each busy one the next."""
        busy = {each.place.name for each in self._running.values() if not each.waits}
        self._give([place for place in self._places.values() if place.name not in busy], False)
        if self._executor.ahead and len(self._waiting) > AHEAD_FACTOR * len(self._places):
            full = {each.place.name for each in self._running.values() if each.waits}
            self._give([place for place in self._places.values() if place.name in busy - full], True)

    def _give(self, free: list[Place], waits: bool) -> None:
        passed: list[tuple[float, int, Job]] = []
        while free and self._waiting:
            entry = heapq.heappop(self._waiting)
            place = self._best(entry[2], free)
            if place is None:
                passed.append(entry)
                continue
            free.remove(place)
            self._begin(entry[2], place, waits)
        for entry in passed:
            heapq.heappush(self._waiting, entry)

    def _best(self, job: Job, free: list[Place]) -> Place | None:
        """A free worker that has not failed on the job; one that has only where no other worker fits."""
        fitting = [place for place in free if job.fits(place)]
        failed_on = self._attempts[job.name].failed_on if job.name in self._attempts else set()
        fresh = next((place for place in fitting if place.name not in failed_on), None)
        if fresh is not None or not fitting:
            return fresh
        others = any(job.fits(place) and place.name not in failed_on for place in self._places.values())
        return None if others else fitting[0]

    def _begin(self, job: Job, place: Place, waits: bool) -> None:
        attempt = f"{job.name}-{next(self._serial)}"
        self._attempts.setdefault(job.name, _Attempts()).count += 1
        ends = math.inf if waits else time.monotonic() + job.limit_s
        self._running[attempt] = _Running(job, place, ends, waits)
        if not waits:
            self._outcomes.put(Began(job, place))
        self._executor.begin(place, attempt, job.payload(place))

    def _end_late(self) -> None:
        now = time.monotonic()
        for attempt, each in list(self._running.items()):
            if now > each.ends:
                del self._running[attempt]
                self._places.pop(each.place.name, None)
                self._executor.drop(each.place)
                self.again(
                    each.job, each.place, f"worker {each.place.name} did not end within {each.job.limit_s:.0f} s"
                )

    def _give_up(self) -> None:
        """Fail the jobs for which no worker has been there for ``wait_s`` seconds."""
        now = time.monotonic()
        orphans: dict[tuple[str, str, str], list[Job]] = {}
        for _, _, job in self._waiting:
            kind = (job.target, job.avoid, job.host)
            if kind in orphans or not any(job.fits(place) for place in self._places.values()):
                orphans.setdefault(kind, []).append(job)
        self._orphaned = {kind: self._orphaned.get(kind, now) for kind in orphans}
        for kind, jobs in orphans.items():
            if now - self._orphaned[kind] < self._wait_s:
                continue
            words = f"of target {kind[0]} " if kind[0] else ""
            for job in jobs:
                self.discard(job.name)
                self._outcomes.put(Failed(job, f"no worker {words}has been there for {self._wait_s:.0f} s"))
