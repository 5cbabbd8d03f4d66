"""One problem on one device: its tensors, its oracle, and every plan of it checked and timed the same way.

``time_plan`` is the time that records hold, on CPUs too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from numpy.typing import NDArray

from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.arrays import aligned_arrays
from tilesmith.measure.device_arrays import DeviceRechecker, TimedTensors
from tilesmith.measure.device_check import DeviceChecker, can_check_on_device
from tilesmith.measure.device_flush import Flush
from tilesmith.measure.device_oracle import device_oracle
from tilesmith.measure.device_timing import Call, calls_in_row, interleave_on_device
from tilesmith.measure.machine import card_machine, roofline_seconds
from tilesmith.measure.memory import tensor_bytes
from tilesmith.measure.oracle import Oracle
from tilesmith.measure.timing import Timing, interleave
from tilesmith.plan.slots import arguments
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import Stream, copy_on_device, device
from tilesmith.runtime.executable import Executable
from tilesmith.targets.target import CudaTarget, Target
from tilesmith.toolchain.cache import ArtifactCache

QUICK_ROUNDS = 3
QUICK_S = 0.01
FILTER = 1  # which argument is the filter: what ``prepare`` packs


class _Foreign:
    """A call of another library with the interface of a plan: its result is copied to the plan's result."""

    def __init__(self, call: Callable[[], tuple[int, object]], nbytes: int, out: int, stream: Stream) -> None:
        self._call, self._nbytes, self._out, self._stream = call, nbytes, out, stream

    def prepare(self) -> None:
        """There is nothing to pack."""

    def poison(self) -> None:
        """Does nothing: the library has its own workspace."""

    def run(self) -> None:
        address, held = self._call()
        self._stream.synchronize()
        copy_on_device(self._stream.device, self._out, address, self._nbytes)
        del held


def _repeated(verdict: Accuracy) -> Accuracy:
    return verdict if verdict.ok else replace(verdict, message=f"after repeated calls: {verdict.message}")


class DeviceBench:
    """``signature`` is canonical; ``values`` are its sample arguments.

    ``truth`` is the oracle's answer for them, or a function that finds it, which is called where the device cannot
    check by itself (``device_check``); then ``cache`` keeps the kernels that it takes.
    """

    def __init__(
        self, signature: Signature, values: tuple[NDArray[Any], ...], truth: Oracle | Callable[[], Oracle],
        target: CudaTarget, ordinal: int = 0, cache: ArtifactCache | None = None,
    ) -> None:  # fmt: skip
        place, self.signature = device(ordinal), signature
        self.checker: DeviceRechecker | DeviceChecker
        if cache is not None and not isinstance(truth, Oracle) and can_check_on_device(signature):
            self.checker = DeviceChecker(signature, values, target, place, cache)
        else:
            answer = truth if isinstance(truth, Oracle) else truth()
            self.checker = DeviceRechecker(signature, values, answer, place)
        self._target = target
        least_s = roofline_seconds(signature, target, card_machine(target, ordinal))
        #: Calls in a row, each on tensors of its own: what a callable that is timed must have.
        self.calls = calls_in_row(least_s, tensor_bytes(signature), place.free_bytes)

    @cached_property
    def flush(self) -> Flush:
        """Memory twice as large as the L2 cache, which only times need."""
        return Flush(self.checker.place, self._target.l2_bytes, self._target.cores)

    @cached_property
    def timed(self) -> TimedTensors:
        """The tensors that a plan is timed on, with whatever a check left in their twins."""
        checker = self.checker
        return TimedTensors(checker.place, checker.stream, checker.operands, checker.result, self.calls)

    def check(self, executable: Executable) -> Accuracy:
        """The check that every config must pass (``measure.checker``)."""
        return self.checker.check(self.checker.plan(executable))

    def certify(self, executable: Executable) -> Accuracy:
        """The further check of a config before it may be chosen."""
        return self.checker.certify(self.checker.plan(executable))

    def compare_last(self) -> Accuracy:
        """Compares the result of the last timed call, placed as allocators do; a GEMM may have added to it often."""
        if self.checker.adds:
            return Accuracy(True, 0.0, 0.0, ())
        return _repeated(self.checker.check_tensor(self.timed.result))

    def compare(self, call: Call) -> Accuracy:
        """Call once more, into memory full of NaN, and compare."""
        self.checker.reset(self.timed.result)
        call(0)
        self.checker.finish()
        return _repeated(self.checker.check_tensor(self.timed.result))

    def check_call(self, run: Callable[[int], Any], values: Callable[[Any], NDArray[Any]]) -> Accuracy:
        """The numbers of another library: ``run(0)`` queues its work on this problem's stream and returns a tensor that
        lies as the problem's result does; ``values`` reads one into a dense array."""
        slot = arguments(self.signature)[-1]
        if slot.nbytes != math.prod(slot.shape) * dtype(slot.dtype).nbytes:
            return self.checker.check_result(values(run(0)))

        def call() -> tuple[int, object]:
            result = run(0)
            return result.data_ptr(), result

        foreign = _Foreign(call, slot.nbytes, self.checker.slots[-1], self.checker.stream)
        return self.checker.check_plan(foreign, poison=False)

    def time(
        self, callables: Mapping[str, Call], *, budget_s: float, rounds: int, drop_ratio: float | None = None,
        before: Callable[[str], None] | None = None, estimates: Mapping[str, float] | None = None,
        calls: int | None = None, rests: bool = True,
    ) -> dict[str, Timing]:  # fmt: skip
        """``measure.device_timing.interleave_on_device`` on this problem's stream, in rows of ``calls``."""
        return interleave_on_device(
            callables, self.checker.stream, self.flush, calls=calls or self.calls, budget_s=budget_s, rounds=rounds,
            drop_ratio=drop_ratio, before=before, estimates=estimates, rests=rests,
        )  # fmt: skip

    def quick(self, call: Call) -> Timing:
        """A first, rough measurement, without rests."""
        return self.time({"": call}, budget_s=QUICK_S, rounds=QUICK_ROUNDS, rests=False)[""]


def time_plan(
    executable: Executable, signature: Signature, target: Target, cache: ArtifactCache, ordinal: int = 0, *,
    budget_s: float = 0.5, rounds: int = 21, seed: int = 0,
) -> Timing:  # fmt: skip
    """The median time of a plan of ``signature``, on the CUDA device ``ordinal`` for a target of that family."""
    return time_plans(
        [executable], signature, target, cache, ordinal, budget_s=budget_s, rounds=rounds, seed=seed
    )[0]  # fmt: skip


def time_plans(
    executables: Sequence[Executable], signature: Signature, target: Target, cache: ArtifactCache, ordinal: int = 0, *,
    budget_s: float = 0.5, rounds: int = 21, seed: int = 0,
) -> list[Timing]:  # fmt: skip
    """``time_plan`` of several plans of one problem, interleaved."""
    problem = signature.canonical
    values = sample_args(problem, seed)
    if isinstance(target, CudaTarget):
        bench = device_bench(problem, values, target, cache, ordinal)
        calls = {str(index): bench.timed.plan(each).run for index, each in enumerate(executables)}
        return list(bench.time(calls, budget_s=budget_s, rounds=rounds).values())
    arrays = aligned_arrays(problem, values)
    held = {
        str(index): each.hold(arrays, each.prepare(arrays[FILTER]) if each.prepares else None)
        for index, each in enumerate(executables)
    }
    return list(interleave(held, budget_s=budget_s, rounds=rounds, threads=target.cores).values())


def device_bench(
    problem: Signature, values: tuple[Any, ...], target: CudaTarget, cache: ArtifactCache, ordinal: int,
    truth: Oracle | None = None,
) -> DeviceBench:  # fmt: skip
    """A canonical problem on its device; ``truth`` is the oracle's answer for ``values`` (default: found there)."""
    find: Callable[[], Oracle] = partial(device_oracle, problem, values, target, ordinal, cache)
    return DeviceBench(problem, values, find if truth is None else truth, target, ordinal, cache)
