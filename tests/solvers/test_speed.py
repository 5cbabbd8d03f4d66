"""`applicable` and `default_config` answer in under 50 us, for problems of every list of benchmarks/problems.

The first answers about a problem are excluded. A verdict looks for one tile that fits, and takes under 50 ms: it is
timed once, without the garbage collector, which looks at all that other tests have left. A default looks through some
hundreds of tiles, and takes up to a fifth of a second of a core. That is why each ``EVERY``th problem of a list is
asked about. Each answer after it is timed: the median of several calls in CPU time of the thread, so that what other
processes do counts little, and the least of a few such medians where the first is too long.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tilesmith.problems.features import features_of
from tilesmith.problems.rewrite import rewrites
from tilesmith.solvers.solver import Accepted, refusal
from tilesmith.solvers.table import solvers_for
from tilesmith.targets.cpu import cpu_target
from tilesmith.targets.cuda import cuda_target

LISTS = Path(__file__).parents[2] / "benchmarks" / "problems"
sys.path.insert(0, str(LISTS.parent / "gpu"))

from gpu_cases import list_names, listed  # noqa: E402

LIMIT_US, CALLS, TRIES = 50.0, 5, 8
FIRST_US = 50_000.0
EVERY = 9
TARGETS = {"gpu": cuda_target("sm_90a", 132), "cpu": cpu_target("x86_64-v4-bf16", 2)}


def median_us(ask) -> float:
    """CPU time of a call: the median of several."""
    times = []
    for _ in range(CALLS):
        before = time.thread_time_ns()
        ask()
        times.append(time.thread_time_ns() - before)
    return statistics.median(times) / 1000


def too_slow(ask) -> float | None:
    """The time of an answer that was given before, if it is never within the limit."""
    ask()
    least = LIMIT_US
    for _ in range(TRIES):
        least = median_us(ask)
        if least < LIMIT_US:
            return None
    return least


def first_verdict(solver, geometry, target):
    """Whether the solver takes a problem, and the CPU time until it says so."""
    gc.disable()
    try:
        before = time.thread_time_ns()
        verdict = solver.applicable(geometry, target)
        return verdict, (time.thread_time_ns() - before) / 1000
    finally:
        gc.enable()


@pytest.mark.parametrize("name", sorted(path.stem for path in LISTS.glob("*.txt")))
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_answers_are_quick(name, target):
    found, asked = [], 0
    for signature in list(dict.fromkeys(signature.canonical for _, _, signature in listed(name)))[::EVERY]:
        for rewrite in rewrites(signature):
            geometry = rewrite.signature.geometry
            for solver in solvers_for(target):
                if refusal(solver.features, features_of(geometry)) is not None:
                    continue
                asks = [("applicable", solver.applicable)]
                verdict, us = first_verdict(solver, geometry, target)
                if us > FIRST_US:
                    found.append(f"{solver.name}: {us:.0f} us for a first verdict on {signature.key()}")
                if isinstance(verdict, Accepted):
                    asks.append(("default_config", solver.default_config))
                for what, method in asks:
                    asked += 1
                    us = too_slow(partial(method, geometry, target))
                    if us is not None:
                        found.append(f"{solver.name}.{what}: {us:.0f} us for {signature.key()}")
    assert asked
    assert not found


def test_every_list_is_asked_about():
    assert {path.stem for path in LISTS.glob("*.txt")} <= set(list_names())
