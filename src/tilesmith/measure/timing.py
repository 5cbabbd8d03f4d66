"""How long a call takes: interleaved samples, a median, and how sure it is.

Method
------
- A *sample* is as many back-to-back calls as fill about 1.5 ms, divided by their number. The calls repeat on the same
  tensors, as the vendors' libraries are measured: what fits into the caches is warm, what does not is not.
- A *round* takes one sample of each candidate. The order rotates from round to round, so that slow drifts of the
  machine (clocks, neighbours) meet every candidate alike.
- One thread: the clock is the thread's CPU time, which stands still while another process has the core.
- More threads: the clock is wall time, and a sample during which the system took a core away from this process
  (``ru_nivcsw`` grew) is discarded, as long as at least half of the samples (and five) remain.
- Idle workers of a thread pool may spin for some milliseconds. Candidates are grouped by the pool they use, and a pause
  of ``PAUSE_S`` and an untimed call stand between groups.
- The result is the median. ``spread_us`` is the half-width of the median's notch, ``1.57 * IQR / sqrt(n)`` (McGill,
  Tukey, Larsen: Variations of Box Plots, 1978): medians further apart than their notches differ. Less is a tie.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

SAMPLE_S: Final = 1.5e-3
PAUSE_S: Final = 0.012  # NOTE: libgomp spins 300,000 times before it sleeps, about 5-10 ms on Zen 5
ONE_THREAD: Final = "thread-cpu-time median"
MORE_THREADS: Final = "wall-time median"
WARM_S: Final = 4e-3  # a longer call brings its own data into the caches; a shorter one is called once untimed
_MOST: Final = 1 << 16  # calls of one sample


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median, its spread (see the module), samples kept, and the clock that was read.

    ``low_us`` is the lower quartile, ``discarded`` the number of samples during which a core was taken away.
    """

    median_us: float
    spread_us: float
    samples: int
    method: str
    low_us: float = 0.0
    discarded: int = 0


@dataclass
class _Series:
    """One candidate's samples."""

    call: Callable[[], object]
    owner: str
    seconds: float = 0.0  # of one call, roughly
    kept: list[float] = field(default_factory=list)
    disturbed: list[float] = field(default_factory=list)
    dropped: bool = False

    @property
    def calls(self) -> int:
        return max(1, min(_MOST, round(SAMPLE_S / max(self.seconds, 1e-9))))

    def all_samples(self) -> list[float]:
        return self.kept + self.disturbed


def interleave(
    callables: Mapping[str, Callable[[], object]],
    *,
    budget_s: float,
    rounds: int,
    threads: int,
    owners: Mapping[str, str] | None = None,
    drop_ratio: float | None = None,
    before: Callable[[str], None] | None = None,
    estimates: Mapping[str, float] | None = None,
) -> dict[str, Timing]:
    """Time every candidate, ``rounds`` samples each, or as many as ``budget_s`` seconds allow (three at least).

    ``owners`` names the thread pool that a candidate uses, where they differ. With ``drop_ratio``, a candidate
    whose every sample is slower than that many times the best one's median is left out after
    three rounds (it keeps its first samples).
    ``before(name)`` is called before each sample: a watcher's note of who is running. ``estimates`` (seconds of a call)
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
    for name in order:
        note(name)
        item = series[name]
        item.seconds = (estimates or {}).get(name, 0.0)
        if not item.seconds:
            previous = _switch(previous, item, threads)
            item.seconds = _roughly(item.call)
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - started > budget_s:
            break
        for name in _rotated(order, done, series):
            item = series[name]
            if item.dropped:
                continue
            note(name)
            previous = _switch(previous, item, threads)
            _sample(item, clock, threads)
        if drop_ratio is not None and done >= 2:
            _drop_slow(series, drop_ratio)
    method = ONE_THREAD if threads == 1 else MORE_THREADS
    return {name: summarize(item.kept, item.disturbed, method) for name, item in series.items()}


def summarize(kept: Sequence[float], disturbed: Sequence[float], method: str) -> Timing:
    """Median, notch and lower quartile of samples in seconds; ``disturbed`` ones count if too few others remain."""
    enough = len(kept) >= 5 and len(kept) >= len(disturbed)
    samples = sorted(kept if enough else [*kept, *disturbed])
    quarter, middle, upper = (quantile(samples, q) * 1e6 for q in (0.25, 0.5, 0.75))
    notch = 1.57 * (upper - quarter) / len(samples) ** 0.5
    return Timing(middle, notch, len(samples), method, quarter, len(disturbed) if enough else 0)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics."""
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def is_tie(a: Timing, b: Timing) -> bool:
    """The difference of the medians is within the larger spread."""
    return abs(a.median_us - b.median_us) <= max(a.spread_us, b.spread_us)


def pick(timings: Mapping[str, Timing], order: Sequence[str]) -> str:
    """The fastest; of those that tie with it, the first in ``order``. ``order`` names every candidate."""
    best = min(order, key=lambda name: timings[name].median_us)
    return next(name for name in order if is_tie(timings[name], timings[best]))


def _rotated(order: Sequence[str], turn: int, series: Mapping[str, _Series]) -> list[str]:
    """``order`` rotated by ``turn`` within each owner, and the owners in alternating order: few pool switches."""
    groups: dict[str, list[str]] = {}
    for name in order:
        groups.setdefault(series[name].owner, []).append(name)
    owners = list(groups) if turn % 2 == 0 else list(reversed(groups))
    turned: list[str] = []
    for owner in owners:
        names = groups[owner]
        at = turn % len(names)
        turned += names[at:] + names[:at]
    return turned


def _switch(previous: str, item: _Series, threads: int) -> str:
    """Let another pool's workers fall asleep, and wake this one's, before its first sample."""
    if threads > 1 and previous != item.owner:
        time.sleep(PAUSE_S)
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


def _sample(item: _Series, clock: Callable[[], int], threads: int) -> None:
    call, repeat = item.call, range(item.calls)
    lost = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw if threads > 1 else 0
    begin = clock()
    for _ in repeat:
        call()
    seconds = (clock() - begin) * 1e-9 / item.calls
    disturbed = threads > 1 and resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw != lost
    (item.disturbed if disturbed else item.kept).append(seconds)


def _drop_slow(series: Mapping[str, _Series], ratio: float) -> None:
    running = [item for item in series.values() if not item.dropped]
    best = min(quantile(sorted(item.all_samples()), 0.5) for item in running)
    for item in running:
        item.dropped = min(item.all_samples()) > ratio * best
