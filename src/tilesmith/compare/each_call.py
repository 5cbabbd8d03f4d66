"""Times calls one by one, ours and those of other libraries: the least, the most, the mean and the scatter of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tilesmith.compare.bench_records import OURS
from tilesmith.compare.rival import Rival, Setting
from tilesmith.dispatch.launchable import Launchable
from tilesmith.dispatch.measuring import device_bench_of, steady_call
from tilesmith.errors import TilesmithError, shortened
from tilesmith.measure.device_flush import WAIT_CYCLES, Flush
from tilesmith.runtime.device import Event, Stream
from tilesmith.targets.target import CudaTarget

NOT_COMPUTED = "it does not compute this problem"
_TRIED = 3  # calls of each way of a library, to find its fastest


@dataclass(frozen=True)
class CallTimes:
    """Microseconds of calls that were timed one by one, each with a warm-up before them."""

    us: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.us)

    @property
    def most(self) -> float:
        return max(self.us)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.us)

    @property
    def stddev(self) -> float:
        """The sample's standard deviation; 0 of a single call."""
        return statistics.stdev(self.us) if len(self.us) > 1 else 0.0


Timer = Callable[[Callable[[int], object], int], tuple[float, ...]]


def time_each_call(
    launch: Launchable, values: tuple[Any, ...], rivals: Sequence[Rival], count: int
) -> dict[str, CallTimes | str]:
    """The times of ``count`` calls of ours and of each rival's fastest way, by name; or the reason why it has none.

    ``values`` are arguments of the problem, on a GPU of its canonical form. On a GPU a call is timed between two
    events, with a cold L2 cache; on a CPU by the clock on the wall.
    """
    ours: Callable[[int], object]
    with ExitStack() as held:
        if isinstance(launch.target, CudaTarget):
            place = device_bench_of(launch, values)
            stream, rows = place.checker.stream, place.calls
            plan = place.timed.plan(launch.executable)
            ours, timer = plan.run, _device_timer(stream, place.flush, rows)
            problem = launch.signature.canonical
            setting = Setting(problem, values, launch.target, launch.ordinal, stream.handle, rows)
        else:
            run = steady_call(launch, values)
            ours, timer = (lambda place: run()), _host_timer
            setting = Setting(launch.signature, values, launch.target)
        found: dict[str, CallTimes | str] = {OURS: CallTimes(timer(ours, count))}
        for rival in rivals:
            try:
                found[rival.name] = _times_of(held.enter_context(rival.ways(setting)), timer, count)
            except TilesmithError as error:
                found[rival.name] = str(error)
            except Exception as error:  # whatever another library raises costs itself alone
                found[rival.name] = shortened(f"{type(error).__name__}: {error}")
    return found


def _times_of(ways: Sequence[Any], timer: Timer, count: int) -> CallTimes | str:
    if not ways:
        return NOT_COMPUTED
    calls = [_on_row(way.calls) for way in ways]
    fastest = min(calls, key=lambda call: min(timer(call, _TRIED)))
    return CallTimes(timer(fastest, count))


def _on_row(calls: Sequence[Callable[[], object]]) -> Callable[[int], object]:
    return lambda place: calls[place]()


def _host_timer(call: Callable[[int], object], count: int) -> tuple[float, ...]:
    call(0)
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call(0)
        times.append((time.perf_counter() - begin) * 1e6)
    return tuple(times)


def _device_timer(stream: Stream, flush: Flush, rows: int) -> Timer:
    def timed(call: Callable[[int], object], count: int) -> tuple[float, ...]:
        call(0)
        stream.synchronize()
        times = []
        for number in range(count):
            begin, end = Event(stream.device), Event(stream.device)
            flush.queue(stream, WAIT_CYCLES)
            begin.record(stream)
            call(number % rows)
            end.record(stream)
            end.synchronize()
            times.append(end.microseconds_since(begin))
        return tuple(times)

    return timed
