"""Tunes the problems of a list, one after the other, each with the same budget.

What happens is told as events (``tune.progress``); ``ready.watch`` folds them. ``model_session.tune_problems`` spends
one budget over all of them instead, where it gains most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tilesmith.compare.own_operator import load_pytorch
from tilesmith.errors import InterruptedSearchError, NoSolutionError
from tilesmith.ready.held import Held, Place, held_answer
from tilesmith.ready.telling import Effort, compare_and_tell, ended_of_held, search_and_tell
from tilesmith.ready.watch import Task
from tilesmith.tune.process import Workers
from tilesmith.tune.progress import PASSED_OVER, STOPPED, Ended, Watcher
from tilesmith.tune.retune import CurrentSetup, current_setup

# Seconds of a problem's budget from which PyTorch is timed beside it, in a list and alone. Loading PyTorch takes 2 to 8
# seconds: no problem of a list pays for it, and the limit of a single problem counts from the start of the process.
LEAST_S, LEAST_ALONE_S = 10.0, 30.0
CALLS, SHARE = 50, 0.1  # PyTorch is left out where so many calls of the untuned config exceed this part of the budget


def tune_list(
    tasks: Sequence[Task], place: Place, effort: Effort, watcher: Watcher, *, library: bool | None = False,
    resume: bool = False, start: Callable[[], float] = time.monotonic,
) -> bool:  # fmt: skip
    """Tune each problem; True if Ctrl-C ended it early. What was measured is kept either way.

    With ``library`` PyTorch's own operator is timed before each search, in the same budget; None: where that takes
    little of it. ``resume`` passes over the problems that an earlier run has tuned with today's solvers, compiler and
    machine. ``start`` gives the moment of ``time.monotonic`` from which the first problem's time counts. A problem
    without an answer is told as such, and the next one follows. Raises ``NoCompilerError`` and ``DatabaseError``.
    """
    now = current_setup(place.target, place.ordinal)
    anyway = library is True
    if library is None:
        library = effort.seconds is None or effort.seconds >= (LEAST_S if len(tasks) > 1 else LEAST_ALONE_S)
    at: Task | None = None
    try:
        if library and (anyway or len(tasks) > 1):
            load_pytorch(place.target)  # in no problem's time
            start()
        with Workers() as workers:
            for at in tasks:
                held = _held(at, place, now) if resume else None
                if held is not None and held.finished:
                    watcher(ended_of_held(at.key, PASSED_OVER, held))
                    continue
                began = start()
                if library and (anyway or _fits(at, place, effort)):
                    compare_and_tell(at.signature, place, watcher)
                search_and_tell(at.signature, place, effort, watcher, workers, began)
    except (KeyboardInterrupt, InterruptedSearchError):
        if at is not None:
            held = _held(at, place, now)
            watcher(Ended(at.key, STOPPED) if held is None else ended_of_held(at.key, STOPPED, held))
        return True
    return False


def _fits(task: Task, place: Place, effort: Effort) -> bool:
    """Whether timing PyTorch takes a small part of the budget, by the predicted time of the untuned config."""
    try:
        job = place.job(task.signature)
    except NoSolutionError:  # the search says why
        return False
    return effort.seconds is None or CALLS * job.predict(job.untuned) <= SHARE * effort.seconds


def _held(task: Task, place: Place, now: CurrentSetup) -> Held | None:
    try:
        return held_answer(task.signature, place, now)
    except NoSolutionError:  # the search says why
        return None
