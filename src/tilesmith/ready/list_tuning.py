"""Tunes the problems of a list, one after the other, each with the same budget.

What happens is told as events (``tune.progress``); ``ready.watch`` folds them. ``model_session.tune_problems`` spends
one budget over all of them instead, where it gains most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tilesmith.errors import InterruptedSearchError, NoSolutionError
from tilesmith.ready.held import Held, Place, held_answer
from tilesmith.ready.telling import Effort, compare_and_tell, ended_of_held, search_and_tell
from tilesmith.ready.watch import Task
from tilesmith.tune.process import Workers
from tilesmith.tune.progress import PASSED_OVER, STOPPED, Ended, Watcher
from tilesmith.tune.retune import CurrentSetup, current_setup

LIBRARY_LEAST_S = 10.0  # of a problem's budget: PyTorch's import alone takes seconds of a shorter one


def tune_list(
    tasks: Sequence[Task], place: Place, effort: Effort, watcher: Watcher, *, library: bool = False,
    resume: bool = False, start: Callable[[], float] = time.monotonic,
) -> bool:  # fmt: skip
    """Tune each problem; True if Ctrl-C ended it early. What was measured is kept either way.

    With ``library`` PyTorch's own operator is timed before each search, in the same budget. ``resume`` passes over the
    problems that an earlier run has tuned with today's solvers, compiler and machine. ``start`` gives the moment of
    ``time.monotonic`` from which the next problem's time counts. A problem without an answer is told as such, and the
    next one follows. Raises ``NoCompilerError`` and ``DatabaseError``.
    """
    now = current_setup(place.target, place.ordinal)
    library = library and (effort.seconds is None or effort.seconds >= LIBRARY_LEAST_S)
    at: Task | None = None
    try:
        with Workers() as workers:
            for at in tasks:
                held = _held(at, place, now) if resume else None
                if held is not None and held.finished:
                    watcher(ended_of_held(at.key, PASSED_OVER, held))
                    continue
                began = start()
                if library:
                    compare_and_tell(at.signature, place, watcher)
                search_and_tell(at.signature, place, effort, watcher, workers, began)
    except (KeyboardInterrupt, InterruptedSearchError):
        if at is not None:
            held = _held(at, place, now)
            watcher(Ended(at.key, STOPPED) if held is None else ended_of_held(at.key, STOPPED, held))
        return True
    return False


def _held(task: Task, place: Place, now: CurrentSetup) -> Held | None:
    try:
        return held_answer(task.signature, place, now)
    except NoSolutionError:  # the search says why
        return None
