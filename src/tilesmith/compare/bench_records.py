"""The record of one benchmark of one problem, and how other libraries' ways to compute it are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from tilesmith.compare.rival import Way
from tilesmith.dispatch.launchable import Launchable
from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.machine import Machine, roofline_seconds
from tilesmith.measure.oracle import Oracle
from tilesmith.measure.timing import Timing
from tilesmith.problems.work import flops

Call = TypeVar("Call")

OURS = "tilesmith"
OK, DISTURBED, FAILED = "ok", "disturbed", "failed"
NEAR = 1.2  # modes within this of a library's fastest run against ours
ROUNDS = 21
ROUNDS_A_SECOND = 20  # of measuring time, where that is more: short problems would end before a slow neighbour does
# Another library may compute in another order or algorithm; further off than this it has computed something else.
FOREIGN_TOLERANCE = 0.05


@dataclass(frozen=True)
class Against:
    """Another library's time, and the mode that reached it. ``single_us``: of its best mode, called once.

    ``given_us`` and ``given_single_us``, on GPUs: of its best mode whose operands lie as given. ``time_us`` may be that
    of a mode whose operands were copied before, which no time counts. None where there are such modes alone, or the
    host was late for the others.
    """

    time_us: float
    spread_us: float
    mode: str
    single_us: float | None = None
    given_us: float | None = None
    given_single_us: float | None = None


@dataclass(frozen=True)
class Bench:
    """One problem measured. ``status`` is ``ok``, or with a ``reason`` ``failed`` or ``disturbed``: its numbers are
    right, and its times say little. A ratio is theirs over ours.

    Of all samples taken of it, ``disturbed`` are part of the medians though other processes had a core (on a GPU: the
    host was late), and ``discarded`` are no part of them for that reason.
    ``roofline`` is the least time that the machine allows over the time taken: 1 is perfect.
    On a GPU ``time_us`` is that of a call in a row of calls, as in a model; ``single_us`` that of one call between two
    events, which are 3 us apart with nothing between them.
    """

    status: str
    reason: str = ""
    time_us: float | None = None
    spread_us: float | None = None
    samples: int = 0
    disturbed: int = 0
    discarded: int = 0
    prepare_us: float | None = None
    gflops: float | None = None
    roofline: float | None = None
    error: float | None = None
    bound: float | None = None
    method: str = ""
    against: Mapping[str, Against] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    single_us: float | None = None

    @property
    def ratio(self) -> dict[str, float]:
        if not self.time_us:
            return {}
        return {name: them.time_us / self.time_us for name, them in self.against.items()}

    @property
    def single_ratio(self) -> dict[str, float]:
        if not self.single_us:
            return {}
        return {name: them.single_us / self.single_us for name, them in self.against.items() if them.single_us}


def disturbance(timings: Mapping[str, Timing], what: str) -> str:
    """Warns of disturbed samples behind these times; empty when every sample that counts was undisturbed.

    ``what`` says what disturbs there, as the beginning of a sentence.
    """
    told = [
        f"{timing.disturbed} of {timing.samples} samples of {name}"
        for name, timing in timings.items()
        if timing.disturbed
    ]
    return f"{what} {', '.join(told)}: these times say little" if told else ""


def is_close(result: np.ndarray[Any, Any], truth: Oracle) -> bool:
    """Whether another library has computed this problem and no other."""
    value = truth.value
    if result.size != value.size:
        return False
    # Results may have 2 GB in float64: one copy of that, in the order in which they lie.
    apart = np.subtract(result.reshape(value.shape), value, dtype=np.float64)
    error = float(np.abs(apart, out=apart).max(initial=0.0))
    scale = float(max(value.max(initial=0), -value.min(initial=0))) or 1.0
    return error <= FOREIGN_TOLERANCE * scale


def right_ways(ways: Sequence[Way], is_right: Callable[[Way], bool]) -> tuple[dict[str, Way], str]:
    """The ways of a library that compute right numbers, by name; or the reason why there is none."""
    found, wrong = {}, []
    for way in ways:
        if is_right(way):
            found[way.name] = way
        else:
            wrong.append(way.name)
    if found:
        return found, ""
    return {}, f"wrong numbers: {', '.join(wrong)}" if wrong else "it does not compute this problem"


def fastest(calls: dict[str, Call], race: Callable[[dict[str, Call]], Mapping[str, Timing]]) -> list[str]:
    """Of one library's calls, those near its fastest in a short race."""
    if len(calls) < 2:
        return list(calls)
    timings = race(calls)
    best = min(timing.low_us for timing in timings.values())
    return [name for name, timing in timings.items() if timing.low_us <= NEAR * best]


def unraced(given: Mapping[str, Call], raced: Iterable[str]) -> dict[str, Call]:
    """Calls (``library way``) of ``given``, on operands as given, of libraries without such a call in ``raced``."""
    there = {name.split(" ")[0] for name in raced if name in given}
    return {name: call for name, call in given.items() if name.split(" ")[0] not in there}


def bench_of(
    launch: Launchable, machine: Machine, verdict: Accuracy, timings: Mapping[str, Timing], missing: Mapping[str, str],
    prepare_us: float, late: str, single: Mapping[str, Timing] | None = None,
    given: Mapping[str, tuple[Timing, Timing]] | None = None,
) -> Bench:  # fmt: skip
    """The times of ``OURS`` and of the libraries' calls (``library way``) as what one benchmark says.

    ``missing`` has each library, and why it has no call (empty: it has); ``late`` says what disturbs samples there.
    ``single`` are times of the same calls, one by one; ``given`` both times of calls whose operands lie as given.
    """
    singles = single or {}
    reason, mine = disturbance(timings, late), timings[OURS]
    return Bench(
        status=DISTURBED if reason else OK, reason=reason, time_us=mine.median_us, spread_us=mine.spread_us,
        samples=mine.samples, disturbed=sum(timing.disturbed for timing in timings.values()),
        discarded=sum(timing.discarded for timing in timings.values()), prepare_us=prepare_us,
        single_us=singles[OURS].median_us if singles else None,
        gflops=flops(launch.signature) / mine.median_us * 1e-3,
        roofline=roofline_seconds(launch.signature, launch.target, machine) / mine.median_us * 1e6, error=verdict.error,
        bound=verdict.bound, method=mine.method,
        against={
            library: _with_given(best, library, given or {}) for library in missing
            if (best := _best_way(library, timings, singles)) is not None
        },
        missing={library: why for library, why in missing.items() if why},
    )  # fmt: skip


def _best_way(library: str, timings: Mapping[str, Timing], single: Mapping[str, Timing]) -> Against | None:
    """The fastest way of ``library``; None if it has none."""
    once = min((t.median_us for name, t in single.items() if name.startswith(f"{library} ")), default=None)
    mine = {name: timing for name, timing in timings.items() if name.startswith(f"{library} ")}
    if not mine:
        return None
    name = min(mine, key=lambda each: mine[each].median_us)
    return Against(mine[name].median_us, mine[name].spread_us, name.removeprefix(f"{library} "), once)


def _with_given(best: Against, library: str, given: Mapping[str, tuple[Timing, Timing]]) -> Against:
    """With the times of the fastest way of ``library`` on operands as given, of those that nothing disturbed."""
    undisturbed = {name: both for name, both in given.items() if not any(timing.disturbed for timing in both)}
    mine = [both for name, both in undisturbed.items() if name.startswith(f"{library} ")]
    if not mine:
        return best
    row, single = (min(timing.median_us for timing in times) for times in zip(*mine, strict=True))
    return replace(best, given_us=row, given_single_us=single)
