"""How long a fleet takes for a list, by the searches that databases know."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.db.store import Database
from tilesmith.tune.session import BUDGET

BETWEEN_S = 0.02  # from a reply to the next task's begin: measured by benchmarks/fleet.py


@dataclass(frozen=True)
class Plan:
    """How long a list takes.

    Args:
        problems: Number of problems.
        known: Those of them whose last search a database knows.
        gpus: Number of workers.
        work_s: Seconds of all searches together.
        longest_s: Seconds of the longest search.
        wall_s: Seconds from the first task to the last reply.
        enough: The number of workers beyond which the longest search alone decides.
    """

    problems: int
    known: int
    gpus: int
    work_s: float
    longest_s: float
    wall_s: float
    enough: int


def past_seconds(databases: Sequence[Database], problem: str, target: str, budget_s: float | None) -> float | None:
    """Seconds of a problem's last search, as it would go with this budget; None if no database knows one.

    A search that its budget ended takes all of another budget, too.
    """
    for database in reversed(databases):
        found = database.search(problem, target)
        if found is None:
            continue
        if budget_s is None:
            return found.seconds
        return budget_s if found.ended == BUDGET else min(found.seconds, budget_s)
    return None


def expected_seconds(known: Sequence[float | None], budget_s: float | None) -> list[float]:
    """The same for a list; problems without a past search count as the median of the others, else as the budget."""
    told = [each for each in known if each is not None]
    other = statistics.median(told) if told else (budget_s or 0.0)
    return [other if each is None else each for each in known]


def wall_seconds(seconds: Sequence[float], workers: int, between_s: float = BETWEEN_S) -> float:
    """Seconds until the last of so many workers is done, if the longest search always begins next."""
    ends = [0.0] * max(1, min(workers, len(seconds)))
    for each in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + each + between_s)
    return max(ends)


def plan(known: Sequence[float | None], gpus: int, budget_s: float | None) -> Plan:
    """The plan for the past searches of a list's problems (``past_seconds``)."""
    seconds = expected_seconds(known, budget_s)
    longest = max(seconds, default=0.0)
    return Plan(
        len(seconds), sum(each is not None for each in known), gpus, sum(seconds), longest,
        wall_seconds(seconds, gpus), max(1, math.ceil(sum(seconds) / longest)) if longest else 1,
    )  # fmt: skip
