"""Records of the events of a search: a search sends them, and listeners show them or sum them up.

A list of problems gives, for each problem, ``Began``, any number of ``Progress`` and ``Compared``, then one ``Ended``.
A problem may begin again after it ended. Every field is text or a number, so that a worker process or another machine
can send the records; ``worker`` names it then. A search of this process tells its listener ``Progress`` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Values of ``Progress.phase``.
SEARCH, PLAYOFF, DONE = "search", "playoff", "done"
# Values of ``Began.doing``.
SEARCHING, MEASURING, COMPARING = "searching", "measuring", "comparing"
# Values of ``Ended.outcome``.
ANSWERED, PASSED_OVER, FAILED, LATE, STOPPED = "answered", "passed over", "failed", "late", "stopped"


@dataclass(frozen=True)
class Began:
    """The work on a problem begins.

    Args:
        problem: Canonical key of the problem.
        budget_s: Seconds that this search may take; None: no limit.
        doing: ``"searching"``, ``"measuring"`` (the defaults of the solvers) or ``"comparing"`` (a library's time).
        worker: Which worker does it; empty: this process.
    """

    problem: str
    budget_s: float | None = None
    doing: str = SEARCHING
    worker: str = ""


@dataclass(frozen=True)
class Progress:
    """The state of one search, after each batch.

    Args:
        problem: Canonical key of the problem.
        phase: ``"search"``, ``"playoff"`` or ``"done"``.
        trials: Configs tried in this search and in earlier ones.
        failed: Those of them that failed.
        seconds: Seconds since the search began.
        budget_s: Seconds that it may take; None: no limit.
        best: Solver and config of the fastest so far; empty: none is known.
        best_us: Its microseconds.
        untuned_us: Microseconds of the config that is chosen without a measurement; None: not measured yet.
        left: The largest number of configs that may still be tried; None: only the time limits them.
        new_trials: Configs tried in this search.
        worker: Which worker searches; empty: this process.
    """

    problem: str
    phase: str
    trials: int
    failed: int
    seconds: float
    budget_s: float | None
    best: str = ""
    best_us: float | None = None
    untuned_us: float | None = None
    left: int | None = None
    new_trials: int = 0
    worker: str = ""


@dataclass(frozen=True)
class Compared:
    """A library was timed on a problem.

    Args:
        problem: Canonical key of the problem.
        library: Name of the library.
        time_us: Microseconds of one call.
        worker: Which worker timed it; empty: this process.
    """

    problem: str
    library: str
    time_us: float
    worker: str = ""


@dataclass(frozen=True)
class Ended:
    """The work on a problem ended.

    Args:
        problem: Canonical key of the problem.
        outcome: ``"answered"``, ``"passed over"`` (an earlier run tuned it; the fields are that answer's),
            ``"failed"``, ``"late"`` (the time was over before an answer) or ``"stopped"`` (by Ctrl-C).
        solver: Solver of the winner; empty: there is no answer.
        config: Its config.
        untuned_us: Microseconds of the config that is chosen without a measurement, from the winner's race.
        tuned_us: Microseconds of the winner.
        spread_us: Their spread.
        trials: Configs tried in this search and in earlier ones.
        new_trials: Configs tried in this search.
        failed: Configs that failed.
        seconds: Seconds that it took.
        ended: ``"converged"``, ``"budget"``, or empty without an answer.
        disturbed: Samples of these times that other processes disturbed, and that count.
        stages: When the search reached each of its stages, in seconds since it began.
        reason: Why there is no answer.
        worker: Which worker did it; empty: this process.
    """

    problem: str
    outcome: str
    solver: str = ""
    config: str = ""
    untuned_us: float | None = None
    tuned_us: float | None = None
    spread_us: float | None = None
    trials: int = 0
    new_trials: int = 0
    failed: int = 0
    seconds: float = 0.0
    ended: str = ""
    disturbed: int = 0
    stages: tuple[tuple[str, float], ...] = ()
    reason: str = ""
    worker: str = ""


Event = Began | Progress | Compared | Ended
Watcher = Callable[[Event], None]
Listener = Callable[[Progress], None]  # of one search: called after each batch, in the thread of the search


def silent(event: Event) -> None:
    """Shows nothing."""
