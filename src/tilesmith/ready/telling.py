"""Searches a problem and times the library on it, and tells both as events: common to every way through a list."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.compare.own_operator import remember_operator, remembered_operator, time_own_operator
from tilesmith.errors import CompileError, LaunchError, NoSolutionError, OutOfTimeError, ProblemError
from tilesmith.problems.rewrite import Signature
from tilesmith.ready.held import Held, Place
from tilesmith.ready.model_records import PYTORCH
from tilesmith.tune import session
from tilesmith.tune.process import Workers
from tilesmith.tune.progress import (
    ANSWERED,
    COMPARING,
    FAILED,
    LATE,
    MEASURING,
    SEARCHING,
    Began,
    Compared,
    Ended,
    Watcher,
)
from tilesmith.tune.session import TuneResult

_log = logging.getLogger("tilesmith.ready")


@dataclass(frozen=True)
class Effort:
    """The effort of one search.

    Args:
        strategy: Name of the strategy.
        trials: Largest number of configs. None: no limit.
        seconds: Time limit in seconds. None: no limit.
        seed: Of the random data and of the search.
        first: Solvers with configs to begin with.
        hard: Whether the time limit holds for the strategy ``defaults``, too.
    """

    strategy: str = "model"
    trials: int | None = None
    seconds: float | None = 15.0
    seed: int = 0
    first: Sequence[tuple[str, str]] = ()
    hard: bool = False


def search_and_tell(
    signature: Signature, place: Place, effort: Effort, watcher: Watcher, workers: Workers | None = None,
    started: float | None = None,
) -> TuneResult | Ended:  # fmt: skip
    """Search one problem; its time counts from ``started`` (default: now).

    Returns the result, or the event of a problem without an answer. Both are told. Raises ``NoCompilerError``,
    ``DatabaseError`` and ``InterruptedSearchError``.
    """
    key = signature.canonical.key()
    started = time.monotonic() if started is None else started
    watcher(Began(key, effort.seconds, MEASURING if effort.strategy == "defaults" else SEARCHING))
    try:
        result = session.tune(
            signature, place.target, database=place.layers.writable, cache=place.cache, strategy=effort.strategy,
            max_trials=effort.trials, max_seconds=effort.seconds, hard=effort.hard, seed=effort.seed,
            progress=watcher, device=place.ordinal, external=place.external, first=effort.first, workers=workers,
            started=started,
        )  # fmt: skip
    except OutOfTimeError as error:
        end = Ended(key, LATE, reason=str(error), seconds=time.monotonic() - started)
    except (NoSolutionError, CompileError, LaunchError, ProblemError) as error:
        _log.info("%s: %s", key, error)
        end = Ended(key, FAILED, reason=str(error), seconds=time.monotonic() - started)
    else:
        watcher(ended_of(key, result))
        return result
    watcher(end)
    return end


def ended_of(key: str, result: TuneResult) -> Ended:
    """The event of a search that has an answer."""
    record, default = result.record, result.default
    return Ended(
        key, ANSWERED, record.solver, record.config, None if default is None else default.time_us, record.time_us,
        record.spread_us, result.trials, result.new_trials, result.failed, result.seconds, result.ended,
        result.disturbed, tuple(result.stages.items()),
    )  # fmt: skip


def ended_of_held(key: str, outcome: str, held: Held) -> Ended:
    """The event of a problem that keeps what a database holds."""
    best, search = held.best, held.search
    return Ended(
        key, outcome, best.solver, best.config, held.untuned_us, best.time_us, best.spread_us,
        0 if search is None else search.trials, ended="" if search is None else search.ended,
    )  # fmt: skip


def compare_and_tell(signature: Signature, place: Place, watcher: Watcher) -> float | None:
    """Microseconds of PyTorch's own operator; None if PyTorch is not here, or has none that can be timed."""
    key = signature.canonical.key()
    watcher(Began(key, None, COMPARING))
    try:
        timing = time_own_operator(signature, place.target, place.cache, place.ordinal)
    except (LaunchError, MemoryError, RuntimeError) as error:
        _log.info("PyTorch has no time for %s: %s", key, error)
        return None
    if timing is None:
        return None
    remember_operator(signature, place.target, place.cache, timing.median_us)
    watcher(Compared(key, PYTORCH, timing.median_us))
    return timing.median_us


def recall_and_tell(signature: Signature, place: Place, watcher: Watcher) -> None:
    """Tell what an earlier run measured of PyTorch's own operator."""
    time_us = remembered_operator(signature, place.target, place.cache)
    if time_us is not None:
        watcher(Compared(signature.canonical.key(), PYTORCH, time_us))
