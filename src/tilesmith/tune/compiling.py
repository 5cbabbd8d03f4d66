"""Generates and compiles points, and hands each to the worker as soon as it is ready."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

from tilesmith.plan.records import Draft
from tilesmith.toolchain.build import COMPILE_S
from tilesmith.tune.clock import TimeOverError
from tilesmith.tune.job import Job
from tilesmith.tune.space import Point
from tilesmith.tune.units import UnitBuilder


@dataclass(frozen=True)
class CompiledPoint:
    """A point with its compiled kernels, or the reason why they could not be compiled."""

    point: Point
    draft: Draft | None
    paths: tuple[Path, ...] = ()
    digests: tuple[str, ...] = ()  # of the files at ``paths``
    error: str = ""


@dataclass(frozen=True)
class _Waiting:
    point: Point
    draft: Draft | str
    work: tuple[Future[None], ...]

    @property
    def ready(self) -> bool:
        return all(work.done() for work in self.work)


class CompileQueue:
    """Points between the strategy and the worker. ``limit_s`` says how long a compiler that starts now may take."""

    def __init__(self, job: Job, units: UnitBuilder, limit_s: Callable[[], float]) -> None:
        self._job, self._units, self._limit_s = job, units, limit_s
        self._waiting: list[_Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def has(self, point: Point) -> bool:
        """Whether a point waits here."""
        return any(each.point == point for each in self._waiting)

    def submit(self, points: Sequence[Point], limit_s: Callable[[], float] | None = None) -> None:
        """Begin with points; the first ones are compiled first. ``limit_s`` is for these alone."""
        for point in points:
            try:
                draft: Draft | str = self._job.draft(point)
            except Exception as error:  # a solver's bug costs this config alone
                draft = f"no kernel was generated: {type(error).__name__}: {error}"
            self._waiting.append(_Waiting(point, draft, ()))
        fresh = self._waiting[len(self._waiting) - len(points) :]
        drafts = [each.draft for each in fresh if isinstance(each.draft, Draft)]
        works = iter(self._units.start(drafts, limit_s or self._limit_s))
        for place, each in enumerate(fresh, len(self._waiting) - len(points)):
            if isinstance(each.draft, Draft):
                self._waiting[place] = _Waiting(each.point, each.draft, tuple(next(works)))

    def take(self, most: int | None, wait_s: float) -> list[CompiledPoint]:
        """Up to ``most`` points that are ready, in the order of ``submit``: at least one, unless ``wait_s`` is over.

        With ``most`` None: all points, when all are ready or ``wait_s`` is over. Points that there was no time to
        compile are left out.
        """
        if most is None:
            wait({work for each in self._waiting for work in each.work}, None if math.isinf(wait_s) else wait_s)
        deadline = time.monotonic() + wait_s
        while not (ready := [each for each in self._waiting if each.ready][:most]) and self._waiting:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            unready = {work for each in self._waiting for work in each.work if not work.done()}
            wait(unready, None if math.isinf(left) else left, FIRST_COMPLETED)
        gone = set(map(id, ready))
        self._waiting = [each for each in self._waiting if id(each) not in gone]
        return [self._built(each) for each in ready if not self._units.is_cut(each.draft)]

    def drop(self) -> set[Future[None]]:
        """Forget waiting points. Compilers that run continue; returns their futures."""
        works = {work for each in self._waiting for work in each.work}
        self._waiting = []
        return {work for work in works if not work.cancel()}

    def _built(self, each: _Waiting) -> CompiledPoint:
        outcome = each.draft if isinstance(each.draft, str) else self._units.outcome(each.draft)
        if isinstance(outcome, str) or isinstance(each.draft, str):
            return CompiledPoint(each.point, None, error=str(outcome))
        return CompiledPoint(each.point, each.draft, outcome, tuple(map(self._units.digest, outcome)))


def build(job: Job, units: UnitBuilder, points: Sequence[Point], limit_s: float = COMPILE_S) -> list[CompiledPoint]:
    """Generate and compile; a kernel that takes longer than ``limit_s`` seconds counts as failed.

    Raises ``TimeOverError`` where the search has no time for all of them.
    """
    queue = CompileQueue(job, units, lambda: limit_s)
    queue.submit(points)
    # A compiler that was begun before the clock does not end with it.
    built = queue.take(None, max(0.0, units.clock.left_s()))
    if len(built) < len(points):
        raise TimeOverError
    return built
