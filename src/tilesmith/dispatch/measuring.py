"""Measures the time of a launchable and checks its numbers, on sample arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.dispatch.launchable import Launchable
from tilesmith.dispatch.locations import open_cache
from tilesmith.measure.accuracy import Accuracy, plant_specials, verify
from tilesmith.measure.device_bench import FILTER, DeviceBench, device_bench, time_plan, time_plans
from tilesmith.measure.device_oracle import device_oracle
from tilesmith.measure.memory import check_bytes, require_memory
from tilesmith.measure.oracle import Oracle
from tilesmith.measure.timing import Timing, interleave
from tilesmith.plan.records import Launch, Step
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import DeviceArray, device, to_device, to_host
from tilesmith.runtime.executable import Executable
from tilesmith.targets.target import CudaTarget


def steady_call(launch: Launchable, arguments: Sequence[Any]) -> Callable[[], object]:
    """The call to be timed: the filter is packed once if the plan packs it, and each call has a new result."""
    run = launch.bound
    if not launch.has_filter:
        return lambda: run(*arguments)
    prepared = launch.prepare(arguments[FILTER])
    rest = [value for index, value in enumerate(arguments) if index != FILTER]
    return lambda: prepared(*rest)


def placed_arguments(launch: Launchable, values: Sequence[Any]) -> tuple[Any, ...]:
    """The arrays on the launchable's device: copied to its CUDA device, unchanged on a CPU."""
    if not isinstance(launch.target, CudaTarget):
        return tuple(values)
    return tuple(to_device(device(launch.ordinal), value) for value in values)


def call_on_arrays(launch: Launchable, arguments: Sequence[Any]) -> Any:
    """One call of ``placed_arguments``, done when this returns; a GEMM's initial c becomes its result on a device."""
    if not isinstance(launch.target, CudaTarget):
        return launch(*arguments)
    signature = launch.signature
    initial = isinstance(signature, GemmSignature) and signature.beta != 0
    found = launch(*arguments, out=arguments[-1] if initial else None)
    device(launch.ordinal).synchronize()
    return found


def host_array(result: Any) -> np.ndarray[Any, Any]:
    """The values of ``call_on_arrays``'s result."""
    return to_host(result) if isinstance(result, DeviceArray) else np.asarray(result)


def time_launchable(launch: Launchable, *, budget_s: float = 0.5, rounds: int = 21, seed: int = 0) -> Timing:
    """The median time of the plan's ``run`` on sample arguments, after the filter was packed, as in records."""
    return time_plan(
        launch.executable, launch.signature, launch.target, open_cache(), launch.ordinal, budget_s=budget_s,
        rounds=rounds, seed=seed,
    )  # fmt: skip


@dataclass(frozen=True)
class StepTime:
    """The time that one step of a plan adds to a call: ``step`` is a kernel's symbol, or ``memset N bytes``.

    Negative where the next step hides more than this one takes, or where both are within ``spread_us``.
    """

    step: str
    time_us: float
    spread_us: float


def time_steps(launch: Launchable, *, budget_s: float = 0.5, rounds: int = 21, seed: int = 0) -> tuple[StepTime, ...]:
    """The time that each step of the plan's ``run`` adds to a call, in the order of the steps.

    The plan's beginnings (its first step, its first two, ...) are timed interleaved, on the same tensors: each step
    reads what the steps ahead of it wrote, and what overlaps counts once. The times add up to that of the whole.
    Empty where the choice is a kernel of PyTorch, whose launches are its own.
    """
    plan = launch.plan
    if not launch.exportable:
        return ()
    files = [Path(file) for file in launch.executable.files]
    beginnings = [Executable(replace(plan, run=plan.run[: count + 1]), files) for count in range(len(plan.run))]
    timings = time_plans(
        beginnings, launch.signature, launch.target, open_cache(), launch.ordinal, budget_s=budget_s, rounds=rounds,
        seed=seed,
    )  # fmt: skip
    before = [0.0, *(timing.median_us for timing in timings)]
    return tuple(
        StepTime(_step_name(step), timing.median_us - earlier, timing.spread_us)
        for step, timing, earlier in zip(plan.run, timings, before, strict=False)
    )


def _step_name(step: Step) -> str:
    return step.symbol if isinstance(step, Launch) else f"memset {step.nbytes} bytes"


def time_prepare(launch: Launchable, arguments: Sequence[Any], *, rounds: int = 7) -> float:
    """Median microseconds of ``prepare``; 0 when the plan packs nothing."""
    if not launch.prepares:
        return 0.0
    w = arguments[FILTER]
    timings = interleave(
        {"prepare": lambda: launch.prepare(w)}, budget_s=0.1, rounds=rounds, threads=launch.target.cores
    )
    return timings["prepare"].median_us


def device_bench_of(launch: Launchable, values: tuple[Any, ...], truth: Oracle | None = None) -> DeviceBench:
    """The canonical problem of a launchable on its device, with these arguments; ``truth`` is the oracle's answer."""
    assert isinstance(launch.target, CudaTarget)
    return device_bench(launch.signature.canonical, values, launch.target, open_cache(), launch.ordinal, truth)


def checked_call(launch: Launchable) -> Callable[..., object]:
    """``launch`` with the calling convention of ``measure.accuracy``: the result's memory is last, with a GEMM's c."""
    signature = launch.signature
    reads_result = isinstance(signature, GemmSignature) and signature.beta != 0

    def call(*arguments: Any) -> object:
        *operands, out = arguments
        return launch.bound(*operands, *([out] if reads_result else []), out=out)

    return call


def check_launchable(launch: Launchable, seed: int = 0, truth: Oracle | None = None) -> Accuracy:
    """The numbers of a launchable against the float64 oracle: every check of ``measure.checker``.

    On a CPU the checks run in a separate process, because a kernel may crash. Raises ``LaunchError`` if the tensors do
    not fit into the free memory.
    """
    if isinstance(launch.target, CudaTarget):
        bench = device_bench_of(launch, sample_args(launch.signature.canonical, seed), truth)
        verdict = bench.check(launch.executable)
        certified = bench.certify(launch.executable) if verdict.ok else verdict
        return verdict if certified.ok else certified
    require_memory(check_bytes(launch.signature) + launch.plan.workspace_bytes, "checking this problem")
    problem = launch.signature.canonical
    same = problem == launch.signature
    verdict = _verified_apart(launch, seed, truth if same else None)
    if same or not verdict.ok:
        return verdict
    # The plan is right; so must be what makes this signature's arguments those of its plan.
    return verify(checked_call(launch), launch.signature, seed, truth)


def _verified_apart(launch: Launchable, seed: int, truth: Oracle | None = None, specials: bool = False) -> Accuracy:
    from tilesmith.tune.process import verify_apart

    executable = launch.executable
    files = tuple(map(Path, executable.files))
    return verify_apart(executable.data, files, launch.signature.canonical, seed, truth, specials)


def check_launchable_specials(launch: Launchable, seed: int = 0) -> Accuracy:
    """``measure.accuracy.check_specials`` of a launchable, on its device."""
    target = launch.target
    if not isinstance(target, CudaTarget):
        return _verified_apart(launch, seed, specials=True)

    def check_planted(values: tuple[Any, ...]) -> Accuracy:
        with np.errstate(all="ignore"):  # NaN and Inf are for the host to check
            truth = device_oracle(launch.signature.canonical, values, target, launch.ordinal, open_cache())
            return device_bench_of(launch, values, truth).check(launch.executable)

    return plant_specials(check_planted, launch.signature.canonical, seed)
