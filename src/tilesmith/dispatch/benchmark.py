"""Ours beside another library's, in one process, interleaved; numbers of both sides checked before they count.

Ours is what a user calls: the filter packed once, the result in new memory at each call, on PyTorch tensors as theirs.
New memory comes from a heap that keeps what is freed, for both: faults of new pages can take longer than the kernel.
Theirs is every mode that the
library offers for the problem; those within ``NEAR`` of its fastest in a first race run against ours, and the fastest
there is the library's time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tilesmith.dispatch.bench_records import (
    DISTURBED,
    FAILED,
    NEAR,
    OK,
    OURS,
    ROUNDS,
    ROUNDS_A_SECOND,
    Bench,
    best_mode,
    disturbance,
    is_close,
)
from tilesmith.dispatch.launchable import Launchable
from tilesmith.dispatch.measuring import check_launchable, steady_call, time_prepare
from tilesmith.errors import ArgumentError
from tilesmith.measure.machine import Machine, roofline_seconds
from tilesmith.measure.memory import keep_freed_memory, oracle_bytes, require_memory, tensor_bytes
from tilesmith.measure.oracle import Oracle, oracle
from tilesmith.measure.timing import interleave
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args, torch_args
from tilesmith.problems.work import flops
from tilesmith.targets.target import CudaTarget, Target

# What is measured beside ours on each kind of device.
LIBRARIES = {"cpu": ("onednn",), "cuda": ("cudnn", "cublas")}
_MODULES = {"onednn": "onednn", "cudnn": "library", "cublas": "library"}


def bench(
    launch: Launchable, machine: Machine, against: Sequence[str] = (), *, seconds: float = 2.0, seed: int = 0
) -> Bench:
    """Check and time one problem; ``against`` names libraries of the launchable's device (``LIBRARIES``)."""
    if isinstance(launch.target, CudaTarget):
        from tilesmith.dispatch.device_benchmark import bench_on_device

        return bench_on_device(launch, machine, against, seconds=seconds, seed=seed)
    signature, threads = launch.signature, launch.target.cores
    require_memory(oracle_bytes(signature) + 2 * tensor_bytes(signature), "the float64 reference of this problem")
    arguments = sample_args(signature, seed)
    truth = oracle(signature, arguments)
    verdict = check_launchable(launch, seed, truth)
    if not verdict.ok:
        return Bench(FAILED, f"wrong numbers: {verdict.message}", error=verdict.error, bound=verdict.bound)
    keep_freed_memory()
    # Beside PyTorch we use its tensors: what allocating a result costs is then the same for both.
    ours_arguments = torch_args(arguments, "cpu") if against else arguments
    calls: dict[str, Callable[[], object]] = {OURS: steady_call(launch, ours_arguments)}
    owners = {OURS: OURS}
    missing = {}
    for library in against:
        theirs, reason = _modes(library, signature, arguments, threads, truth)
        if not theirs:
            missing[library] = reason
            continue
        with _quiet(against):
            near = _fastest(theirs, threads, seconds / 4)
        for mode in near:
            calls[f"{library} {mode}"] = theirs[mode]
            owners[f"{library} {mode}"] = library
    with _quiet(against):
        rounds = max(ROUNDS, round(ROUNDS_A_SECOND * seconds))
        timings = interleave(calls, budget_s=seconds, rounds=rounds, threads=threads, owners=owners, patient=True)
    reason = disturbance(timings, "other processes took cores during")
    disturbed = sum(timing.disturbed for timing in timings.values())
    discarded = sum(timing.discarded for timing in timings.values())
    ours = timings.pop(OURS)
    return Bench(
        status=DISTURBED if reason else OK,
        reason=reason,
        time_us=ours.median_us,
        spread_us=ours.spread_us,
        samples=ours.samples,
        disturbed=disturbed,
        discarded=discarded,
        prepare_us=time_prepare(launch, arguments),
        gflops=flops(signature) / ours.median_us * 1e-3,
        roofline=roofline_seconds(signature, launch.target, machine) / ours.median_us * 1e6,
        error=verdict.error,
        bound=verdict.bound,
        method=ours.method,
        against={library: best for library in against if (best := best_mode(library, timings)) is not None},
        missing=missing,
    )


def library_version(library: str) -> str:
    """What was measured against."""
    side = _side(library)
    return str(side.version() if library == "onednn" else side.version(library))


def default_libraries(target: Target) -> tuple[str, ...]:
    """Those of the target's device; none where PyTorch, through which all are measured, is not installed."""
    return LIBRARIES[target.family] if find_spec("torch") is not None else ()


def _modes(
    library: str, signature: Signature, arguments: Sequence[Any], threads: int, truth: Oracle
) -> tuple[dict[str, Callable[[], object]], str]:
    """The calls of a library whose numbers are right, or why there is none."""
    onednn, found, wrong = _side("onednn"), {}, []
    for mode in onednn.modes(signature, arguments, threads):
        if is_close(mode.result(), truth):
            found[mode.name] = mode.run
        else:
            wrong.append(mode.name)
    return found, f"wrong numbers: {', '.join(wrong)}" if wrong else "it does not compute this problem"


def _quiet(against: Sequence[str]) -> AbstractContextManager[Any]:
    """Inside, PyTorch records nothing for gradients."""
    if not against:
        return nullcontext()
    quiet: AbstractContextManager[Any] = _side("onednn").inference()
    return quiet


def _side(library: str) -> Any:
    """PyTorch's side, imported when it is asked for."""
    try:
        return import_module(f"tilesmith.solvers.external.{_MODULES[library]}")
    except ImportError as error:
        raise ArgumentError(f"{library} is measured through PyTorch ({error}); install it: pip install torch") from None


def _fastest(calls: Mapping[str, Callable[[], object]], threads: int, seconds: float) -> list[str]:
    if len(calls) == 1:
        return list(calls)
    timings = interleave(calls, budget_s=seconds, rounds=7, threads=threads, drop_ratio=NEAR)
    best = min(timing.low_us for timing in timings.values())
    return [name for name, timing in timings.items() if timing.low_us <= NEAR * best]
