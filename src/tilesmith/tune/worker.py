"""The measuring process, ``python -m tilesmith.tune.worker REPORT``. ``tune.runner`` replaces it after a crash.

Requests come on stdin, replies go to what was stdout (all prints land on stderr). The file ``REPORT`` names the
plan that is running, for the session that finds the process dead.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tilesmith.measure.arrays import aligned_arrays
from tilesmith.measure.host_check import HostChecker, HostPlan, RepeatedCall, verify_plan
from tilesmith.measure.oracle import Oracle, oracle, read_oracle, write_oracle
from tilesmith.measure.timing import interleave
from tilesmith.plan.check import FILTER_SLOT
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.runtime.executable import Executable
from tilesmith.targets.detect_cuda import cuda_target_of
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune.crash_report import CrashReport
from tilesmith.tune.messages import (
    Certified,
    Certify,
    Load,
    Loaded,
    Prepare,
    Prepared,
    Race,
    Raced,
    Ready,
    Refused,
    Reply,
    Reset,
    Setup,
    Unload,
    Verified,
    Verify,
    frame,
    read_request,
    refused,
)

if TYPE_CHECKING:
    from tilesmith.tune.device_worker import DeviceWorker

QUICK_ROUNDS = 3
QUICK_S = 0.01
CONTEXT_LOST = 3  # exit status
_PDEATHSIG = 1
_DEVICE_WORKER = "tilesmith.tune.device_worker"


class Bench:
    """Everything that belongs to one problem in this process."""

    def __init__(self, setup: Setup, report: CrashReport) -> None:
        self.signature = parse_key(setup.problem)
        self.report = report
        values = sample_args(self.signature, setup.seed)
        truth = _truth(self.signature, values, Path(setup.oracle))
        self.checker = HostChecker(self.signature, values, truth, setup.seed)
        self.checker.watch = report.watch
        # Checks lay the tensors anywhere; times are taken on tensors as allocators place them.
        self.arrays = aligned_arrays(self.signature, values)
        self.plans: dict[str, HostPlan] = {}
        self.calls: dict[str, RepeatedCall] = {}
        self.seconds: dict[str, float] = {}

    def load(self, request: Load) -> Loaded | Refused:
        """Check a plan; if it is right, keep it for races."""
        self.report.write(request.name)
        executable = Executable(request.plan, [Path(path) for path in request.artifacts])
        threads = executable.plan.threads
        plan = self.checker.plan(executable)
        verdict = self.checker.check(plan)
        if not verdict.ok:
            return refused(verdict)
        call = RepeatedCall(self.checker, executable, self.arrays)
        quick = interleave({"": call.run}, budget_s=QUICK_S, rounds=QUICK_ROUNDS, threads=threads)[""]
        if not call.adds and not (last := call.compare_last()).ok:
            return refused(last)
        prepare_us = 0.0
        if call.packed is not None:
            prepare = partial(executable.prepare, self.arrays[FILTER_SLOT], call.packed)
            timing = interleave({"": prepare}, budget_s=QUICK_S, rounds=QUICK_ROUNDS, threads=threads)[""]
            prepare_us = timing.median_us
        self.plans[request.name], self.calls[request.name] = plan, call
        self.seconds[request.name] = quick.low_us * 1e-6
        return Loaded(verdict.error, verdict.bound, quick, prepare_us)

    def certify(self, request: Certify) -> Certified | Refused:
        self.report.write(request.name)
        verdict = self.checker.certify(self.plans[request.name])
        return Certified() if verdict.ok else refused(verdict)

    def race(self, request: Race) -> Raced:
        calls = {name: self.calls[name].run for name in request.names}
        timings = interleave(
            calls, budget_s=request.budget_s, rounds=request.rounds, threads=request.threads,
            drop_ratio=request.drop_ratio, before=self.report.write, estimates=self.seconds,
        )  # fmt: skip
        wrong = {}
        for name in request.names if request.compares else ():
            self.report.write(name)
            if not (verdict := self.calls[name].compare()).ok:
                wrong[name] = refused(verdict)
        return Raced(timings, wrong)

    def unload(self, request: Unload) -> None:
        for name in request.names:
            for held in (self.plans, self.calls, self.seconds):
                held.pop(name, None)


def verify(request: Verify, report: CrashReport) -> Verified:
    """All checks of one plan."""
    executable = Executable(request.plan, [Path(path) for path in request.artifacts])
    truth = read_oracle(Path(request.oracle)) if request.oracle else None
    verdict = verify_plan(executable, parse_key(request.problem), request.seed, truth, request.specials, report.watch)
    return Verified(verdict.ok, verdict.error, verdict.bound, verdict.worst_index, verdict.message)


def main() -> None:
    """Serve until the session closes the pipe."""
    _die_with_the_session()
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    # A session that is interrupted may be over, and its folder gone, before this process has begun or has answered.
    with contextlib.suppress(FileNotFoundError, BrokenPipeError):
        report = CrashReport(Path(sys.argv[1]))
        report.watch_faults()
        serve(sys.stdin.buffer, replies, report)


def serve(requests: BinaryIO, replies: Any, report: CrashReport) -> None:
    bench: Bench | DeviceWorker | None = None
    while (request := read_request(requests)) is not None:
        signal.alarm(0)
        reply: Reply | None = None
        try:
            if isinstance(request, Setup | Reset):
                if bench is not None and not isinstance(bench, Bench):
                    bench.close()
                bench = None
                gc.collect()
            if isinstance(request, Reset):
                signal.alarm(request.idle_s)  # nobody catches it: the process ends
                continue
            if isinstance(request, Prepare):
                with contextlib.suppress(Exception):  # the next problem meets what is wrong, and says so
                    device(request.device).synchronize()
                    cuda_target_of(request.device)
                    import_module(_DEVICE_WORKER)
                reply = Prepared(time.monotonic())
            elif isinstance(request, Setup):
                started = time.perf_counter()
                bench = Bench(request, report) if request.device < 0 else _on_device(request, report)
                reply = Ready(time.perf_counter() - started)
            elif isinstance(request, Verify):
                reply = verify(request, report)
            elif bench is None:
                reply = Refused("no problem is set up")
            elif isinstance(request, Load):
                reply = bench.load(request)
            elif isinstance(request, Certify):
                reply = bench.certify(request)
            elif isinstance(request, Race):
                reply = bench.race(request)
            else:
                bench.unload(request)
        except Exception as error:  # whatever a plan does to this process in Python costs that plan alone
            # A kernel that fails on a device takes its context with it: whatever comes next would fail, too.
            last = bench is not None and not isinstance(bench, Bench) and not bench.is_well()
            if last and isinstance(request, Race):
                os._exit(CONTEXT_LOST)  # the report names the plan that was running
            reply = Refused(f"{type(error).__name__}: {error}", last=last)
        report.write("")
        if reply is not None:
            replies.write(frame(reply))
            if isinstance(reply, Refused) and reply.last:
                os._exit(CONTEXT_LOST)


def _die_with_the_session() -> None:
    """A kernel that never ends must not outlive the session that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _on_device(setup: Setup, report: CrashReport) -> DeviceWorker:
    # All that checks and times on devices takes a fifth of this process's start, which searches on CPUs do without.
    from tilesmith.tune.device_worker import DeviceWorker

    return DeviceWorker(setup, report, _device_truth)


def _device_truth(setup: Setup) -> Oracle:
    """``_truth`` with its long sums on the device."""
    from tilesmith.measure.device_oracle import device_oracle

    path = Path(setup.oracle)
    signature, cache = parse_key(setup.problem), ArtifactCache(setup.cache)
    target = cuda_target_of(setup.device)
    return _truth(
        signature, sample_args(signature, setup.seed), path,
        lambda problem, values: device_oracle(problem, values, target, setup.device, cache),
    )  # fmt: skip


def _truth(
    signature: Signature, values: tuple[Any, ...], path: Path, compute: Callable[..., Oracle] = oracle
) -> Oracle:
    """The oracle's answer, computed by the first worker and read by those that follow it."""
    if path.exists():
        return read_oracle(path)
    truth = compute(signature, values)
    write_oracle(path, truth)
    return truth


if __name__ == "__main__":
    main()
