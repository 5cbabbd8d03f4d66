"""Ours beside PyTorch's cuDNN and cuBLAS on a CUDA device: one stream, one cold cache, interleaved, numbers checked.

Ours is the plan with its filter packed before, or PyTorch's own kernel where that is the choice. Theirs is every mode
that the library offers for tensors as the signature lays them. Device events time both, so that nobody's host counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np

from tilesmith.dispatch.bench_records import (
    DISTURBED,
    FAILED,
    NEAR,
    OK,
    OURS,
    ROUNDS,
    Bench,
    best_mode,
    disturbance,
    is_close,
)
from tilesmith.dispatch.launchable import Launchable
from tilesmith.dispatch.measuring import device_bench_of
from tilesmith.errors import ArgumentError
from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.device_check import can_check_on_device
from tilesmith.measure.device_library import call_on_row, check_library
from tilesmith.measure.device_timing import Call
from tilesmith.measure.machine import Machine, roofline_seconds
from tilesmith.measure.memory import oracle_bytes, require_memory, tensor_bytes
from tilesmith.measure.oracle import logical
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.problems.work import flops

QUICK_ROUNDS = 7


def bench_on_device(
    launch: Launchable, machine: Machine, against: Sequence[str], *, seconds: float, seed: int
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
    side = _torch_side(against, launch)
    with _on_stream(side, place, launch):
        plan = place.timed.plan(launch.executable)
        ours: Call = plan.run
        prepare_us = place.quick(plan.prepare).median_us if launch.prepares else 0.0
        if launch.external is not None:
            assert side is not None
            row = side.device_tensors(signature, values, launch.ordinal, place.calls)
            ours, prepare_us = call_on_row(side.library_call(signature, launch.config), row), 0.0
            verdict = check_library(place, signature, side, ours)
            if not verdict.ok:
                return _failed(verdict)
        calls, missing = {OURS: ours}, {}
        for library in against:
            theirs, missing[library] = _modes(library, side, launch, place, values)
            near = _fastest(theirs, place, seconds / 4)
            calls |= {f"{library} {mode}": theirs[mode] for mode in near}
        timings = place.time(calls, budget_s=seconds, rounds=ROUNDS)
    reason = disturbance(timings, "the host was late for")
    disturbed = sum(timing.disturbed for timing in timings.values())
    discarded = sum(timing.discarded for timing in timings.values())
    mine = timings.pop(OURS)
    return Bench(
        status=DISTURBED if reason else OK,
        reason=reason,
        time_us=mine.median_us,
        spread_us=mine.spread_us,
        samples=mine.samples,
        disturbed=disturbed,
        discarded=discarded,
        prepare_us=prepare_us,
        gflops=flops(signature) / mine.median_us * 1e-3,
        roofline=roofline_seconds(signature, launch.target, machine) / mine.median_us * 1e6,
        error=verdict.error,
        bound=verdict.bound,
        method=mine.method,
        against={library: best for library in against if (best := best_mode(library, timings)) is not None},
        missing={library: reason for library, reason in missing.items() if reason},
    )


def _failed(verdict: Accuracy) -> Bench:
    return Bench(FAILED, f"wrong numbers: {verdict.message}", error=verdict.error, bound=verdict.bound)


def _torch_side(against: Sequence[str], launch: Launchable) -> Any:
    """PyTorch's side where it takes part; None elsewhere."""
    if not against and launch.external is None:
        return None
    try:
        return import_module("tilesmith.solvers.external.library")
    except ImportError as error:
        names = ", ".join(against)
        raise ArgumentError(f"{names} is measured through PyTorch ({error}); install it: pip install torch") from None


def _on_stream(side: Any, place: DeviceBench, launch: Launchable) -> AbstractContextManager[Any]:
    if side is None:
        return nullcontext()
    tf32 = side.uses_tf32(launch.signature)
    found: AbstractContextManager[Any] = side.on_stream(launch.ordinal, place.checker.stream.handle, tf32)
    return found


def _modes(
    library: str, side: Any, launch: Launchable, place: DeviceBench, values: tuple[Any, ...]
) -> tuple[dict[str, Call], str]:
    """The calls of a library whose numbers are right, or why there is none."""
    signature, found, wrong = launch.signature.canonical, {}, []
    for mode in side.modes(library, signature, values, launch.ordinal, place.calls):
        if _is_right(side, signature, place, mode):
            found[mode.name] = mode.run
        else:
            wrong.append(mode.name)
    if found:
        return found, ""
    return {}, f"wrong numbers: {', '.join(wrong)}" if wrong else "it does not compute this problem"


def _is_right(side: Any, signature: Signature, place: DeviceBench, mode: Any) -> bool:
    """Within our own bound, or as close as another algorithm or order of additions may come."""

    def result(at: int) -> Any:
        return mode.laid(mode.run(at))

    if check_library(place, signature, side, result).ok:
        return True
    found = logical(signature, side.array_of(result(0)))
    return is_close(np.ascontiguousarray(found), place.checker.truth)


def _fastest(calls: Mapping[str, Call], place: DeviceBench, seconds: float) -> list[str]:
    if len(calls) < 2:
        return list(calls)
    timings = place.time(calls, budget_s=seconds, rounds=QUICK_ROUNDS, drop_ratio=NEAR)
    best = min(timing.low_us for timing in timings.values())
    return [name for name, timing in timings.items() if timing.low_us <= NEAR * best]
