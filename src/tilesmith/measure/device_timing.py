"""How long a kernel takes on a GPU: interleaved samples with a cold cache, on a card that has time to cool.

Method
------
- A *sample* is a row of calls between two events on a stream, one directly after the other as in a model: the time of a
  call is the row's time, divided. Each call has its own tensors, and before the row a kernel reads twice the L2 cache
  (``device_flush``): so every operand comes from memory. Rows last about ``_ROW_S``, so that what an event costs counts
  little; a call that lasts longer than that is a row by itself. All candidates have rows of one length, except those
  whose row would take over ``_LONGEST_ROW_S``.
- The host has queued the row before the kernel ahead of it ends. Samples for which it came too late (the device was at
  the first event before the last was queued) are taken again, behind a kernel that waits twice as long, up to
  ``_LONGEST_WAIT``. Those for which it is late even then are discarded as long as five others remain; else they are
  part of the median, and counted (``Timing.disturbed``).
- A *round* takes one sample of each candidate, in an order that rotates; for short kernels a round takes several
  samples each, so that the host waits for the device once a round.
- After a sample of a kernel longer than ``LONG_S`` the device rests ten times as long: a card at its power limit
  lowers its clock, and the times of a hot card rank its coolers. A first, rough measurement has no rests.
- The result is the median, with the notch of ``measure.timing``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tilesmith.measure.device_flush import WAIT_CYCLES, Flush
from tilesmith.measure.timing import LEAST_ROUNDS, Timing, quantile, summarize
from tilesmith.runtime.device import Event, Stream

METHOD: Final = "device events around rows of calls, cold L2, median"
LONG_S: Final = 100e-6
REST: Final = 10.0
_ROW_S: Final = 120e-6
_LONGEST_ROW_S: Final = 1e-3
_MOST_CALLS: Final = 16
_ROW_BYTES: Final = 512 << 20  # the tensors of a row, together,
_ROW_SHARE: Final = 8  # and at most one part in so many of the memory that is free
_ROUND_S: Final = 200e-6  # samples of one candidate in a round, together, without what flushes the cache
_MOST: Final = 16
_LONGEST_WAIT: Final = 16 * WAIT_CYCLES

#: Queues a call on the tensors of a place in the row.
Call = Callable[[int], object]


def rested(seconds: float) -> float:
    """Seconds of one sample of a call that takes ``seconds``, and of the rest that follows it (see *Method*)."""
    return seconds * (1 + REST) if seconds > LONG_S else seconds


def calls_in_row(least_s: float, nbytes: float, free_bytes: float) -> int:
    """The calls of a sample, for a problem that takes ``least_s`` seconds at least on tensors of ``nbytes``."""
    room = min(_ROW_BYTES, free_bytes / _ROW_SHARE)
    return max(1, min(_MOST_CALLS, int(_ROW_S / least_s), int(room / nbytes)))


@dataclass
class _Series:
    call: Call
    seconds: float  # of one call
    calls: int = 1
    samples: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)  # samples for which the host was late
    dropped: bool = False


@dataclass
class _Pace:
    """Cycles for which the device waits before each sample, for every candidate alike."""

    wait: int = WAIT_CYCLES


def interleave_on_device(
    callables: Mapping[str, Call], stream: Stream, flush: Flush, *, calls: int, budget_s: float, rounds: int,
    drop_ratio: float | None = None, before: Callable[[str], None] | None = None,
    estimates: Mapping[str, float] | None = None, rests: bool = True,
) -> dict[str, Timing]:  # fmt: skip
    """Time every candidate: ``rounds`` rounds, or as many as ``budget_s`` seconds allow (three at least).

    Each callable queues its work on ``stream``, for ``calls`` places in a row. With ``drop_ratio``, a candidate whose
    every sample is slower than that many times the best one's median is left out after three rounds. ``estimates`` are
    seconds of a call. Raises ``LaunchError`` for work that the device refuses.
    """
    note = before or (lambda name: None)
    started = time.perf_counter()
    series, pace = {}, _Pace()
    for name, call in callables.items():
        note(name)
        call(0)  # the first may load code
        stream.synchronize()
        item = series[name] = _Series(call, (estimates or {}).get(name, 0.0))
        item.seconds = item.seconds or _sample(item, stream, flush, 1, pace)[0][0]
        item.calls = max(1, min(calls, int(_LONGEST_ROW_S / max(item.seconds, 1e-9))))
        held = [call(place) for place in range(item.calls)]  # the first row may allocate memory
        stream.synchronize()
        del held
    names = list(series)
    for done in range(rounds):
        if done >= LEAST_ROUNDS and time.perf_counter() - started > budget_s:
            break
        at = done % max(1, len(names))
        for name in names[at:] + names[:at]:
            item = series[name]
            if item.dropped:
                continue
            note(name)
            count = max(1, min(_MOST, round(_ROUND_S / max(item.seconds * item.calls, 1e-9))))
            for seconds, late in _sample(item, stream, flush, count, pace):
                (item.late if late else item.samples).append(seconds)
            item.seconds = quantile(sorted(item.samples or item.late), 0.5)
            if rests and item.seconds > LONG_S:
                time.sleep(rested(item.seconds) - item.seconds)
        if drop_ratio is not None and done + 1 >= LEAST_ROUNDS:
            best = min(item.seconds for item in series.values() if not item.dropped)
            for item in series.values():
                item.dropped = item.dropped or min(item.samples or item.late) > drop_ratio * best
    return {name: summarize(item.samples, item.late, METHOD) for name, item in series.items()}


def _sample(item: _Series, stream: Stream, flush: Flush, count: int, pace: _Pace) -> list[tuple[float, bool]]:
    """Seconds of a call in each of ``count`` rows, and whether the host was late; it waits once, at the end."""
    while True:
        rows = []
        for _ in range(count):
            begin, end = Event(stream.device), Event(stream.device)
            flush.queue(stream, pace.wait)
            begin.record(stream)
            held = [item.call(place) for place in range(item.calls)]  # until the end: memory of its own for each result
            end.record(stream)
            del held
            rows.append((begin, end, begin.passed))
        rows[-1][1].synchronize()
        if pace.wait >= _LONGEST_WAIT or not any(late for _, _, late in rows):
            return [(end.microseconds_since(begin) * 1e-6 / item.calls, late) for begin, end, late in rows]
        pace.wait *= 2
