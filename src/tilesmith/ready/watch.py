"""The state of a list that is tuned: its events, folded. What draws it and what sums it up read the same state."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilesmith.problems.rewrite import Signature
from tilesmith.ready.model_records import in_words
from tilesmith.tune.progress import COMPARING, PASSED_OVER, Began, Compared, Ended, Event, Progress


@dataclass(frozen=True)
class Task:
    """One problem of a list, and how often a program calls it."""

    signature: Signature
    calls: int = 1

    @cached_property
    def key(self) -> str:
        """The canonical key, as events name the problem."""
        return self.signature.canonical.key()

    @cached_property
    def name(self) -> str:
        """The problem in a few words."""
        return in_words(self.signature)


def tasks_of(calls: Iterable[tuple[Signature, int]]) -> list[Task]:
    """One task for each canonical problem, by the spelling that comes first; the calls of its spellings are added."""
    found: dict[Signature, Task] = {}
    for signature, count in calls:
        task = found.get(signature.canonical)
        found[signature.canonical] = (
            Task(signature, count) if task is None else Task(task.signature, task.calls + count)
        )
    return list(found.values())


@dataclass(frozen=True)
class TunedRow:
    """Facts of one problem: how its last search ended (None: none did), and the library's time."""

    task: Task
    end: Ended | None = None
    library: str = ""
    library_us: float | None = None

    @property
    def answered(self) -> bool:
        """Whether there is an answer, of this run or of an earlier one."""
        return self.end is not None and self.end.tuned_us is not None

    @property
    def speedup(self) -> float | None:
        """Untuned time over tuned time. None: one of them is not known."""
        return ratio(self.end.untuned_us, self.end.tuned_us) if self.end is not None else None

    @property
    def in_means(self) -> bool:
        """Whether both times are known, and other processes have not disturbed them."""
        return self.speedup is not None and self.end is not None and not self.end.disturbed

    @property
    def over_library(self) -> float | None:
        """The library's time over the tuned time."""
        return ratio(self.library_us, self.end.tuned_us) if self.end is not None else None

    @property
    def winner(self) -> str:
        """The library where it is faster than the tuned config, else the config's solver; empty: no answer."""
        over = self.over_library
        return self.library if over is not None and over < 1 else self.end.solver if self.end is not None else ""


@dataclass(frozen=True)
class Current:
    """The work of one worker; ``state`` is None until its search has sent an event."""

    task: Task
    began: Began
    since: float
    state: Progress | None = None


@dataclass
class Watch:
    """Folds events. It may be called from several threads.

    Args:
        tasks: The list; events of other problems are passed over.
        total_s: Seconds that the whole list may take. None: no limit.
        each_s: Seconds that each problem may take. None: no limit.
    """

    tasks: Iterable[Task]
    total_s: float | None = None
    each_s: float | None = None
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.rows = {task.key: TunedRow(task) for task in self.tasks}
        self.current: dict[str, Current] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            row = self.rows.get(event.problem)
            if row is None:
                return
            now = self.current.get(event.worker)
            if isinstance(event, Began):
                self.current[event.worker] = Current(row.task, event, time.monotonic())
            elif isinstance(event, Compared):
                self.rows[event.problem] = replace(row, library=event.library, library_us=event.time_us)
                if now is not None and now.began.doing == COMPARING:
                    del self.current[event.worker]
            elif isinstance(event, Progress):
                if now is not None and now.task.key == event.problem:
                    self.current[event.worker] = replace(now, state=event)
            else:
                if now is not None and now.task.key == event.problem:
                    del self.current[event.worker]
                # A search that found nothing leaves the answer that an earlier one has found.
                if event.tuned_us is not None or not row.answered:
                    self.rows[event.problem] = replace(row, end=event)

    # --- what is drawn and told ---------------------------------------------------------------------------------------

    @property
    def now(self) -> list[Current]:
        """The work of each worker, the one that began first at the top."""
        with self._lock:
            return sorted(self.current.values(), key=lambda each: each.since)

    @property
    def ended(self) -> list[TunedRow]:
        """The problems whose work has ended at least once, in the list's order."""
        with self._lock:
            return [row for row in self.rows.values() if row.end is not None]

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.began

    @staticmethod
    def elapsed_s(one: Current) -> float:
        """Seconds since a problem was begun."""
        return time.monotonic() - one.since

    @property
    def share(self) -> float:
        """The part of the work that is done, from 0 to 1: of the time where that is limited, else of the problems."""
        if self.total_s is not None and math.isfinite(self.total_s):
            return min(1.0, self.spent_s / self.total_s) if self.total_s else 1.0
        return len(self.ended) / len(self.rows) if self.rows else 1.0

    @property
    def left_s(self) -> float | None:
        """Seconds until the list is done, as far as they can be told; None: nothing is known of them."""
        if self.total_s is not None:
            return max(0.0, self.total_s - self.spent_s) if math.isfinite(self.total_s) else None
        took = [row.end.seconds for row in self.ended if row.end is not None and row.end.outcome != PASSED_OVER]
        each = statistics.mean(took) if took else self.each_s
        if each is None:
            return None
        running = self.now
        waiting = len(self.rows) - len({row.task.key for row in self.ended} | {each.task.key for each in running})
        started = sum(max(0.0, each - (time.monotonic() - one.since)) for one in running)
        return (started + each * waiting) / max(1, len(running))

    @property
    def gain(self) -> float | None:
        """Untuned time over tuned time of all calls of the problems that have both."""
        return ratio(*self.sums_us)

    @property
    def sums_us(self) -> tuple[float, float]:
        """Microseconds of all calls, untuned and tuned, of the problems that have both."""
        known = [(row.task.calls, row.end) for row in self.ended if row.in_means and row.end is not None]
        return (
            sum(calls * (end.untuned_us or 0.0) for calls, end in known),
            sum(calls * (end.tuned_us or 0.0) for calls, end in known),
        )


def ratio(before: float | None, after: float | None) -> float | None:
    """``before`` over ``after``, where both are known and positive."""
    return before / after if before and after else None
