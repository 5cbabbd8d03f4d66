"""How long a call takes: interleaved samples, a median, and how sure it is.

Method
------
- A *sample* is as many back-to-back calls as fill about 1.5 ms, divided by their number. The calls repeat on the same
  tensors, as the vendors' libraries are measured: what fits into the caches is warm, what does not is not.
- A *round* takes one sample of each candidate. The order rotates from round to round, so that slow drifts of the
  machine (clocks, neighbours) meet every candidate alike.
- One thread: the clock is the thread's CPU time, which stands still while another process has the core.
- More threads: the clock is wall time, and a sample during which a thread of this process had no core is discarded, as
  long as five others remain: the system took one away (``ru_nivcsw`` grew), or let a thread that could run wait for
  more than ``WAITED`` of the sample (``schedstat``). A thread that waits is counted when it gets its core, which may
  be after the sample: a sample is judged before the next call, after the pause where there is one.
  A pool that hands out its work goes on without a thread that never got a core, and nothing above tells: a sample
  with less than ``SHARE`` of the processor time a second that its candidate's best one had is discarded as well.
  NOTE: a library whose threads wait for each other then takes 10 to 300 times as long: 0.7 ms became 200 ms.
- Idle workers of a thread pool may spin for some milliseconds. Candidates are grouped by the pool they use, and a pause
  of ``PAUSE_S`` and an untimed call stand between groups.
- What slowed all candidates of a round is taken out of its samples: each is divided by the round's level, the median
  over the candidates of a sample over its candidate's median (one step of Tukey's median polish; the median level is
  1). A neighbour that has the caches for some rounds moves all alike, and would hide differences of some percent.
- The result is the median. ``spread_us`` is the half-width of the median's notch, ``1.57 * IQR / sqrt(n)`` (McGill,
  Tukey, Larsen: Variations of Box Plots, 1978): medians further apart than their notches differ. Less is a tie.
  A level is an estimate from ``k`` candidates, which takes a part of their own scatter with it: hence a factor
  ``sqrt(k / (k - 1))``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

K = TypeVar("K")
LEAST_ROUNDS: Final = 3  # of a race, whatever its seconds
SAMPLE_S: Final = 1.5e-3
PAUSE_S: Final = 0.012  # NOTE: libgomp spins 300,000 times before it sleeps, about 5-10 ms on Zen 5
ONE_THREAD: Final = "thread-cpu-time median"
MORE_THREADS: Final = "wall-time median"
WARM_S: Final = 4e-3  # a longer call brings its own data into the caches; a shorter one is called once untimed
WAITED: Final = 0.03
SHARE: Final = 0.85
PATIENCE: Final = 3  # times the budget, until there are enough undisturbed samples
_MOST: Final = 1 << 16  # calls of one sample
_ENOUGH: Final = 5  # undisturbed samples, for a median of them alone
_TASKS: Final = "/proc/self/task"


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median, its spread (see the module), samples kept, and the clock that was read.

    ``low_us`` is the lower quartile, ``discarded`` the number of samples during which a core was missing (on a GPU: for
    which the host was late). ``disturbed`` counts such samples that are part of the median all the same, because too
    few others were left.
    """

    median_us: float
    spread_us: float
    samples: int
    method: str
    low_us: float = 0.0
    discarded: int = 0
    disturbed: int = 0


@dataclass(frozen=True)
class _Sample:
    """Seconds of a call, in which round, with how many processors, and whether one was seen to be missing."""

    round: int
    seconds: float
    share: float
    disturbed: bool


@dataclass
class _Series:
    """One candidate's samples."""

    call: Callable[[], object]
    owner: str
    seconds: float = 0.0  # of one call, roughly
    samples: list[_Sample] = field(default_factory=list)
    dropped: bool = False

    @property
    def calls(self) -> int:
        return max(1, min(_MOST, round(SAMPLE_S / max(self.seconds, 1e-9))))

    def median(self) -> float:
        return quantile(sorted(sample.seconds for sample in self.samples), 0.5)

    def sorted_out(self) -> tuple[list[_Sample], list[_Sample]]:
        """Samples that had all the processors that this candidate ever had, and the others."""
        least = SHARE * max((sample.share for sample in self.samples if not sample.disturbed), default=0.0)
        good = [sample for sample in self.samples if not sample.disturbed and sample.share >= least]
        return good, [sample for sample in self.samples if sample.disturbed or sample.share < least]


def interleave(
    callables: Mapping[str, Callable[[], object]], *, budget_s: float, rounds: int, threads: int,
    owners: Mapping[str, str] | None = None, drop_ratio: float | None = None,
    before: Callable[[str], None] | None = None, estimates: Mapping[str, float] | None = None, patient: bool = False,
) -> dict[str, Timing]:  # fmt: skip
    """Time every candidate, ``rounds`` samples each, or as many as ``budget_s`` seconds allow (three at least).
    ``patient`` goes on, up to ``PATIENCE`` times as long, until every candidate has enough undisturbed samples.

    ``owners`` names the thread pool that a candidate uses, where they differ. With ``drop_ratio``, a candidate
    whose every sample is slower than that many times the best one's median is left out after
    three rounds (it keeps its first samples).
    ``before(name)`` is called before each sample: it records the running candidate. ``estimates`` (seconds of a call)
    save the calls that find out how many make a sample.
    """
    if not callables:
        return {}
    note = before or (lambda name: None)
    series = {name: _Series(call, (owners or {}).get(name, "")) for name, call in callables.items()}
    order = sorted(series, key=lambda name: series[name].owner)  # stable: the caller's order within an owner
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    started = time.perf_counter()
    previous = ""
    watch = _Watch(threads)
    for name in order:
        note(name)
        item = series[name]
        item.seconds = (estimates or {}).get(name, 0.0)
        if not item.seconds:
            previous = _switch(previous, item, threads, watch)
            item.seconds = _roughly(item.call)
    for done in range(rounds * PATIENCE if patient else rounds):
        spent = time.perf_counter() - started
        lacking = patient and any(len(item.sorted_out()[0]) < _ENOUGH for item in series.values() if not item.dropped)
        over = done >= rounds or spent > budget_s
        if done >= LEAST_ROUNDS and over and not (lacking and spent < PATIENCE * budget_s):
            break
        for name in _rotated(order, done, series):
            item = series[name]
            if item.dropped:
                continue
            note(name)
            previous = _switch(previous, item, threads, watch)
            _sample(item, done, clock, watch)
        watch.judge()
        if drop_ratio is not None and done + 1 >= LEAST_ROUNDS:
            _drop_slow(series, drop_ratio)
    method = ONE_THREAD if threads == 1 else MORE_THREADS
    return _levelled(series, method)


def summarize(kept: Sequence[float], disturbed: Sequence[float], method: str) -> Timing:
    """Median, notch and lower quartile of samples in seconds; ``disturbed`` ones count if too few others remain."""
    enough = len(kept) >= _ENOUGH
    samples = sorted(kept if enough else [*kept, *disturbed])
    quarter, middle, upper = (quantile(samples, q) * 1e6 for q in (0.25, 0.5, 0.75))
    notch = 1.57 * (upper - quarter) / len(samples) ** 0.5
    discarded, counted = (len(disturbed), 0) if enough else (0, len(disturbed))
    return Timing(middle, notch, len(samples), method, quarter, discarded, counted)


def _levelled(series: Mapping[str, _Series], method: str) -> dict[str, Timing]:
    """Every candidate's time, without what the candidates of a round have in common."""
    sorted_out = {name: item.sorted_out() for name, item in series.items()}
    of_round: dict[int, list[float]] = {}
    for good, _ in sorted_out.values():
        middle = quantile(sorted(sample.seconds for sample in good), 0.5) if good else 0.0
        for sample in good:
            of_round.setdefault(sample.round, []).append(sample.seconds / max(middle, 1e-12))
    shared = {turn: found for turn, found in of_round.items() if len(found) > 1}
    levels = {turn: quantile(sorted(found), 0.5) for turn, found in shared.items()}
    usual = quantile(sorted(levels.values()), 0.5) if levels else 1.0
    candidates = quantile(sorted(len(found) for found in shared.values()), 0.5) if shared else 0.0
    wider = (candidates / (candidates - 1)) ** 0.5 if candidates else 1.0
    result = {}
    for name, parts in sorted_out.items():
        kept, disturbed = ([s.seconds * usual / levels.get(s.round, usual) for s in part] for part in parts)
        timing = summarize(kept, disturbed, method)
        result[name] = replace(timing, spread_us=timing.spread_us * wider)
    return result


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics."""
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def is_tie(a: Timing, b: Timing) -> bool:
    """The difference of the medians is within the larger spread."""
    return _tied((a.median_us, a.spread_us), (b.median_us, b.spread_us))


def preferred(times: Mapping[K, tuple[float, float]], rank: Callable[[K], Any]) -> K:
    """Which of several to take by ``(median, spread)``: the fastest, or of those that tie with it the lowest rank.

    So the same times give the same choice, whatever their order.
    """
    fastest = min(times.values())
    return min((key for key, time in times.items() if _tied(time, fastest)), key=rank)


def _tied(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return abs(a[0] - b[0]) <= max(a[1], b[1])


def _rotated(order: Sequence[str], turn: int, series: Mapping[str, _Series]) -> list[str]:
    """``order`` rotated by ``turn`` within each owner, and the owners in alternating order: few pool switches."""
    groups: dict[str, list[str]] = {}
    for name in order:
        groups.setdefault(series[name].owner, []).append(name)
    owners = list(groups) if turn % 2 == 0 else list(reversed(groups))
    rotated: list[str] = []
    for owner in owners:
        names = groups[owner]
        at = turn % len(names)
        rotated += names[at:] + names[:at]
    return rotated


def _switch(previous: str, item: _Series, threads: int, watch: _Watch) -> str:
    """Let another pool's workers fall asleep, and wake this one's, before its first sample."""
    if threads > 1 and previous != item.owner:
        time.sleep(PAUSE_S)
    watch.judge()
    if previous != item.owner or item.seconds < WARM_S:
        item.call()
    return item.owner


def _roughly(call: Callable[[], object]) -> float:
    """Seconds of one call, from enough calls that the clock can be trusted."""
    count = 1
    while True:
        begin = time.perf_counter_ns()
        for _ in range(count):
            call()
        seconds = (time.perf_counter_ns() - begin) * 1e-9
        if seconds > SAMPLE_S / 4 or count >= _MOST:
            return seconds / count
        count *= 4


class _Watch:
    """Sorts samples into those that had their cores and those that did not; with one thread all had theirs."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.on = threads > 1
        self._pending: tuple[_Series, _Sample, float] | None = None  # whose, and seconds of all its calls
        self._before = (0, 0)
        self._used = 0

    def begin(self) -> None:
        self.judge()
        self._before = _lost() if self.on else (0, 0)
        self._used = time.process_time_ns() if self.on else 0

    def end(self, item: _Series, turn: int, seconds: float, elapsed: float) -> None:
        share = 1.0
        if self.on:  # the system may account time late: no sample had more processors than threads
            share = min(float(self.threads), (time.process_time_ns() - self._used) * 1e-9 / max(elapsed, 1e-9))
        self._pending = (item, _Sample(turn, seconds, share, False), elapsed)
        if not self.on:
            self.judge()

    def judge(self) -> None:
        """Decide on the last sample."""
        if self._pending is None:
            return
        item, sample, elapsed = self._pending
        self._pending = None
        lost, waited = (now - before for now, before in zip(_lost(), self._before, strict=True)) if self.on else (0, 0)
        disturbed = lost > 0 or waited * 1e-9 > WAITED * elapsed
        item.samples.append(replace(sample, disturbed=disturbed))


def _sample(item: _Series, turn: int, clock: Callable[[], int], watch: _Watch) -> None:
    call, count = item.call, item.calls
    repeat = range(count)
    watch.begin()
    begin = clock()
    for _ in repeat:
        call()
    elapsed = (clock() - begin) * 1e-9
    watch.end(item, turn, elapsed / count, elapsed)


def _lost() -> tuple[int, int]:
    """How often a core was taken away from this process, and nanoseconds that its threads have waited for one."""
    waited = 0
    with contextlib.suppress(OSError):
        for task in os.listdir(_TASKS):
            # A thread may end meanwhile; systems without these files tell by the first number alone.
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"{_TASKS}/{task}/schedstat", "rb") as file:
                waited += int(file.read().split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, waited


def _drop_slow(series: Mapping[str, _Series], ratio: float) -> None:
    running = [item for item in series.values() if not item.dropped]
    best = min(item.median() for item in running)
    for item in running:
        item.dropped = min(sample.seconds for sample in item.samples) > ratio * best
