"""Times our kernels beside another library's, in one process, interleaved; the numbers of both are checked first.

Ours is what a user calls: the filter packed once, the result in new memory at each call, on PyTorch tensors as theirs.
New memory comes from a heap that keeps what is freed, for both: faults of new pages can take longer than the kernel.
Theirs is every way that the library offers for the problem; those within ``NEAR`` of its fastest in a first race run
against ours, and the fastest there is the library's time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from tilesmith.compare.bench_records import (
    FAILED,
    NEAR,
    OURS,
    ROUNDS,
    ROUNDS_A_SECOND,
    Bench,
    bench_of,
    fastest,
    is_close,
    right_ways,
    unraced,
)
from tilesmith.compare.rival import Rival, Setting, Way
from tilesmith.compare.trial import Tell, quiet, untried
from tilesmith.dispatch.launchable import Launchable
from tilesmith.dispatch.measuring import check_launchable, device_bench_of, steady_call, time_prepare
from tilesmith.errors import TilesmithError, shortened
from tilesmith.loading import import_whole
from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.device_check import can_check_on_device
from tilesmith.measure.device_timing import Call
from tilesmith.measure.machine import Machine
from tilesmith.measure.memory import keep_freed_memory, oracle_bytes, require_memory, tensor_bytes
from tilesmith.measure.oracle import logical, oracle
from tilesmith.measure.timing import Timing, interleave
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args, torch_args
from tilesmith.solvers.table import external_solver
from tilesmith.targets.target import CudaTarget

QUICK_ROUNDS = 7


def bench(
    launch: Launchable, machine: Machine, against: Sequence[Rival] = (), *, seconds: float = 2.0, seed: int = 0,
    tell: Tell = quiet,
) -> Bench:  # fmt: skip
    """Check and time one problem; ``against`` are rivals that run on the launchable's target (``rivals_of``), and
    ``tell`` is called with lines of progress of those that compile or tune."""
    if against and find_spec("torch") is not None:
        import_whole("torch")  # most rivals are called through it
    unfit = untried(against, launch.signature.canonical, launch.target, launch.ordinal, tell)
    if isinstance(launch.target, CudaTarget):
        return _with(unfit, bench_on_device(launch, machine, _fit(against, unfit), seconds=seconds, seed=seed))
    return _with(unfit, _bench_on_host(launch, machine, _fit(against, unfit), seconds=seconds, seed=seed))


def _fit(against: Sequence[Rival], unfit: Mapping[str, str]) -> list[Rival]:
    return [rival for rival in against if rival.name not in unfit]


def _with(unfit: Mapping[str, str], found: Bench) -> Bench:
    return replace(found, missing={**unfit, **found.missing})


def _bench_on_host(
    launch: Launchable, machine: Machine, against: Sequence[Rival], *, seconds: float, seed: int
) -> Bench:
    signature, threads = launch.signature, launch.target.cores
    require_memory(oracle_bytes(signature) + 2 * tensor_bytes(signature), "the float64 reference of this problem")
    arguments = sample_args(signature, seed)
    truth = oracle(signature, arguments)
    verdict = check_launchable(launch, seed, truth)
    if not verdict.ok:
        return Bench(FAILED, f"wrong numbers: {verdict.message}", error=verdict.error, bound=verdict.bound)
    keep_freed_memory()
    # Beside PyTorch we use its tensors: what allocating a result costs is then the same for both.
    ours_arguments = torch_args(arguments, "cpu") if against and find_spec("torch") is not None else arguments
    calls: dict[str, Callable[[], object]] = {OURS: steady_call(launch, ours_arguments)}
    owners = {OURS: OURS}
    missing = {}

    def is_right(way: Way) -> bool:
        return is_close(way.values(way.calls[0]()), truth)

    def race(theirs: dict[str, Callable[[], object]]) -> dict[str, Timing]:
        return interleave(theirs, budget_s=seconds / 4, rounds=7, threads=threads, drop_ratio=NEAR)

    with ExitStack() as held:
        for rival in against:
            right, missing[rival.name] = _entered(held, rival, Setting(signature, arguments, launch.target), is_right)
            theirs = {name: way.calls[0] for name, way in right.items()}
            for name in fastest(theirs, race):
                calls[f"{rival.name} {name}"] = theirs[name]
                owners[f"{rival.name} {name}"] = rival.name
        rounds = max(ROUNDS, round(ROUNDS_A_SECOND * seconds))
        timings = interleave(calls, budget_s=seconds, rounds=rounds, threads=threads, owners=owners, patient=True)
    prepare_us = time_prepare(launch, arguments)
    late = "other processes took cores during"
    return bench_of(launch, machine, verdict, timings, missing, prepare_us, late)


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
        given: dict[str, Call] = {}
        for rival in against:
            right, missing[rival.name] = _entered(held, rival, setting, lambda way: _is_right(signature, place, way))
            theirs = {name: _on_row(way) for name, way in right.items()}
            calls |= {f"{rival.name} {name}": theirs[name] for name in fastest(theirs, race)}
            given |= {f"{rival.name} {name}": theirs[name] for name, way in right.items() if not way.copied}
        timings = place.time(calls, budget_s=seconds, rounds=ROUNDS)
        single = place.time(calls, budget_s=seconds / 3, rounds=ROUNDS, calls=1)
        rows, ones = dict(timings), dict(single)
        if slower := unraced(given, calls):
            rows |= place.time(slower, budget_s=seconds / 4, rounds=QUICK_ROUNDS)
            ones |= place.time(slower, budget_s=seconds / 4, rounds=QUICK_ROUNDS, calls=1)
    as_given = {name: (rows[name], ones[name]) for name in given if name in rows}
    return bench_of(launch, machine, verdict, timings, missing, prepare_us, "the host was late for", single, as_given)


def _entered(
    held: ExitStack, rival: Rival, setting: Setting, is_right: Callable[[Way], bool]
) -> tuple[dict[str, Way], str]:
    """The right ways of a rival, by name, or the reason why it has none; whatever it raises costs itself alone."""
    try:
        return right_ways(held.enter_context(rival.ways(setting)), is_right)
    except TilesmithError as error:
        return {}, str(error)
    except Exception as error:
        return {}, shortened(f"{type(error).__name__}: {error}")


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
    return is_close(logical(signature, way.values(result(0))), place.checker.truth)
