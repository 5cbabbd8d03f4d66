"""The progress that a search reports while it runs. The listener, such as the command line, decides how to show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

SEARCH, PLAYOFF, DONE = "search", "playoff", "done"


@dataclass(frozen=True)
class Progress:
    """The state of one search: configs tried in all and this time, failures, and the fastest so far."""

    problem: str
    phase: str
    trials: int
    failed: int
    seconds: float
    budget_s: float | None
    best: str = ""
    best_us: float | None = None


class Listener(Protocol):
    """Called after each batch, in the thread of the search."""

    def __call__(self, progress: Progress) -> None: ...


def silent(progress: Progress) -> None:
    """Shows nothing."""
