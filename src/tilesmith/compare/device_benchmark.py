"""Ours beside other libraries' on a CUDA device: one stream, one cold cache, interleaved, numbers checked.

Ours is the plan with its filter packed before, or another library's kernel where that is the choice. Theirs is every
way that a rival offers. Device events time both, in rows of calls and in single calls. Host time is excluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from tilesmith.compare.bench_records import (
    FAILED,
    NEAR,
    OURS,
    ROUNDS,
    Bench,
    bench_of,
    fastest,
    is_close,
    right_ways,
)
from tilesmith.compare.rival import Rival, Setting, Way
from tilesmith.dispatch.launchable import Launchable
from tilesmith.dispatch.measuring import device_bench_of
from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.device_check import can_check_on_device
from tilesmith.measure.device_timing import Call
from tilesmith.measure.machine import Machine
from tilesmith.measure.memory import oracle_bytes, require_memory, tensor_bytes
from tilesmith.measure.oracle import logical
from tilesmith.measure.timing import Timing
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.table import external_solver

QUICK_ROUNDS = 7


def bench_on_device(
    launch: Launchable, machine: Machine, against: Sequence[Rival], *, seconds: float, seed: int
) -> Bench:
    """``benchmark.bench`` for a launchable of a CUDA target."""
    signature = launch.signature.canonical
    # The float64 reference stays on the device where that can check by itself.
    reference = 0.0 if can_check_on_device(signature) else oracle_bytes(signature)
    require_memory(reference + 3 * tensor_bytes(signature), "the tensors of this problem and their reference")
    values = sample_args(signature, seed)
    place = device_bench_of(launch, values)
    verdict = place.check(launch.executable)
    if not verdict.ok:
        return _failed(verdict)
    stream, missing = place.checker.stream.handle, {}

    def race(theirs: dict[str, Call]) -> dict[str, Timing]:
        return place.time(theirs, budget_s=seconds / 4, rounds=QUICK_ROUNDS, drop_ratio=NEAR)

    with ExitStack() as held:
        plan = place.timed.plan(launch.executable)
        ours: Call = plan.run
        prepare_us = place.quick(plan.prepare).median_us if launch.prepares else 0.0
        library = external_solver(launch.solver)
        if library is not None:
            own = held.enter_context(library.measured(signature, values, launch.ordinal, stream, place.calls))
            ours, prepare_us = own.call(launch.config), 0.0
            verdict = place.check_call(ours, own.values)
            if not verdict.ok:
                return _failed(verdict)
        calls = {OURS: ours}
        setting = Setting(signature, values, launch.target, launch.ordinal, stream, place.calls)
        for rival in against:
            found = held.enter_context(rival.ways(setting))
            right, missing[rival.name] = right_ways(found, lambda way: _is_right(signature, place, way))
            theirs = {name: _on_row(way) for name, way in right.items()}
            calls |= {f"{rival.name} {name}": theirs[name] for name in fastest(theirs, race)}
        timings = place.time(calls, budget_s=seconds, rounds=ROUNDS)
        single = place.time(calls, budget_s=seconds / 3, rounds=ROUNDS, calls=1)
    return bench_of(launch, machine, verdict, timings, missing, prepare_us, "the host was late for", single)


def _failed(verdict: Accuracy) -> Bench:
    return Bench(FAILED, f"wrong numbers: {verdict.message}", error=verdict.error, bound=verdict.bound)


def _on_row(way: Way) -> Call:
    calls = way.calls
    return lambda place: calls[place]()


def _is_right(signature: Signature, place: DeviceBench, way: Way) -> bool:
    """Within our own bound, or as close as another algorithm or order of additions may come."""
    laid = way.laid
    if laid is None:
        return is_close(way.values(way.calls[0]()), place.checker.truth)

    def result(at: int) -> Any:
        return laid(way.calls[at]())

    if place.check_call(result, way.values).ok:
        return True
    found = logical(signature, way.values(result(0)))
    return is_close(np.ascontiguousarray(found), place.checker.truth)
