"""The worker's side of problems on a CUDA device; ``tune.worker`` has that of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.oracle import Oracle
from tilesmith.problems.samples import sample_args
from tilesmith.problems.signature import parse_key
from tilesmith.runtime.executable import Executable
from tilesmith.targets.detect_cuda import cuda_target_of
from tilesmith.tune.messages import Load, Loaded, Race, Raced, Refused, Setup, Unload
from tilesmith.tune.note import Note


class DeviceWorker:
    """Everything that belongs to one problem on one device in this process."""

    def __init__(self, setup: Setup, note: Note, truth_of: Callable[[Setup], Oracle]) -> None:
        self.note = note
        target = cuda_target_of(setup.device)
        signature = parse_key(setup.problem)
        self.bench = DeviceBench(signature, sample_args(signature, setup.seed), truth_of(setup), target, setup.device)
        self.calls: dict[str, Callable[[], object]] = {}
        self.seconds: dict[str, float] = {}

    def load(self, request: Load) -> Loaded | Refused:
        """Check a plan; if it is right, keep it for races."""
        self.note.write(request.name)
        checked = self.bench.check(Executable(request.plan, [Path(path) for path in request.artifacts]))
        verdict, plan = checked.verdict, checked.plan
        if not verdict.ok:
            return Refused(f"wrong numbers: {verdict.message}", verdict.error, verdict.bound)
        quick = self.bench.quick(plan.run)
        prepares = plan.executable.prepares
        prepare_us = self.bench.quick(plan.prepare).median_us if prepares else 0.0
        self.calls[request.name] = plan.run
        self.seconds[request.name] = quick.low_us * 1e-6
        return Loaded(verdict.error, verdict.bound, quick, prepare_us)

    def race(self, request: Race) -> Raced:
        calls = {name: self.calls[name] for name in request.names}
        return Raced(
            self.bench.time(
                calls, budget_s=request.budget_s, rounds=request.rounds, drop_ratio=request.drop_ratio,
                before=self.note.write, estimates=self.seconds,
            )
        )  # fmt: skip

    def unload(self, request: Unload) -> None:
        for name in request.names:
            self.calls.pop(name, None)
            self.seconds.pop(name, None)
