"""The worker's side of problems on a CUDA device; ``tune.worker`` has that of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tilesmith.errors import LaunchError
from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.device_timing import Call
from tilesmith.measure.oracle import Oracle
from tilesmith.problems.keys import parse_key
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.executable import Executable
from tilesmith.solvers.table import external_solver
from tilesmith.targets.detect_cuda import cuda_target_of
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune.crash_report import CrashReport
from tilesmith.tune.messages import (
    Certified,
    Certify,
    Load,
    Loaded,
    Race,
    Raced,
    Refused,
    Setup,
    Unload,
    refused,
)


class DeviceWorker:
    """Everything that belongs to one problem on one device in this process."""

    def __init__(self, setup: Setup, report: CrashReport, truth_of: Callable[[Setup], Oracle]) -> None:
        self.report = report
        target = cuda_target_of(setup.device)
        signature = parse_key(setup.problem)
        self._signature, self._values, self._ordinal = signature, sample_args(signature, setup.seed), setup.device
        self._external: Any = None  # the calls of another library, from the first use on
        self._held = ExitStack()
        self.bench = DeviceBench(
            signature, self._values, partial(truth_of, setup), target, setup.device, ArtifactCache(setup.cache)
        )
        self.calls: dict[str, Call] = {}
        self.executables: dict[str, Executable] = {}  # of plans, whose results lie where they are timed
        self.seconds: dict[str, float] = {}

    def is_well(self) -> bool:
        """Whether the device still runs what is queued here."""
        try:
            self.bench.checker.place.synchronize()
        except LaunchError:
            return False
        return True

    def close(self) -> None:
        """Give everything back but the context, and another library if it is loaded."""
        self.calls.clear()
        self.executables.clear()
        self._external = None
        self._held.close()

    def load(self, request: Load) -> Loaded | Refused:
        """Check a plan, or another library's kernel; if it is right, keep it for races."""
        self.report.write(request.name)
        if external_solver(request.solver) is not None:
            return self._load_external(request)
        executable = Executable(request.plan, [Path(path) for path in request.artifacts])
        verdict = self.bench.check(executable)
        if not verdict.ok:
            return refused(verdict)
        plan = self.bench.timed.plan(executable)
        quick = self.bench.quick(plan.run)
        if not (last := self.bench.compare_last()).ok:
            return refused(last)
        prepare_us = self.bench.quick(plan.prepare).median_us if executable.prepares else 0.0
        self.calls[request.name], self.executables[request.name] = plan.run, executable
        self.seconds[request.name] = quick.low_us * 1e-6
        return Loaded(verdict.error, verdict.bound, quick, prepare_us)

    def certify(self, request: Certify) -> Certified | Refused:
        self.report.write(request.name)
        verdict = self.bench.certify(self.executables[request.name])
        return Certified() if verdict.ok else refused(verdict)

    def _load_external(self, request: Load) -> Loaded | Refused:
        """Load another library's kernel, on the stream and the arguments of this problem."""
        solver = external_solver(request.solver)
        assert solver is not None
        if self._external is None:
            bench = self.bench
            self._external = self._held.enter_context(
                solver.measured(self._signature, self._values, self._ordinal, bench.checker.stream.handle, bench.calls)
            )
        run = self._external.call(request.config)
        verdict = self.bench.check_call(run, self._external.values)
        if not verdict.ok:
            return refused(verdict)
        quick = self.bench.quick(run)
        self.calls[request.name] = run
        self.seconds[request.name] = quick.low_us * 1e-6
        return Loaded(verdict.error, verdict.bound, quick, 0.0, solver.version())

    def race(self, request: Race) -> Raced:
        calls = {name: self.calls[name] for name in request.names}
        timings = self.bench.time(
            calls, budget_s=request.budget_s, rounds=request.rounds, drop_ratio=request.drop_ratio,
            before=self.report.write, estimates=self.seconds,
        )  # fmt: skip
        wrong = {}
        for name in request.names if request.compares else ():
            self.report.write(name)
            if name in self.executables and not (verdict := self.bench.compare(self.calls[name])).ok:
                wrong[name] = refused(verdict)
        return Raced(timings, wrong)

    def unload(self, request: Unload) -> None:
        for name in request.names:
            for held in (self.calls, self.executables, self.seconds):
                held.pop(name, None)
