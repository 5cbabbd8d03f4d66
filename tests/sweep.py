"""Random problems, every solver that takes them, against PyTorch in float64: ``python tests/sweep.py 2000``.

Each solver runs its default config and a random one through the whole chain (draft, compiler, plan, runtime), once on
ordinary numbers and once with NaN and Inf planted. Memory around and between tensors is watched, and workspace begins
as NaN. Compiles are batched: one unit for many kernels.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

import levels
from sweep_problems import problems
from tilesmith.errors import TilesmithError
from tilesmith.measure.accuracy import check, planted_copy
from tilesmith.measure.arrays import guarded_operands, guarded_result
from tilesmith.measure.oracle import Oracle, oracle
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Draft
from tilesmith.plan.slots import arguments
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.executable import Executable
from tilesmith.solvers.solver import Accepted, Config
from tilesmith.solvers.table import candidates
from tilesmith.targets.target import Target
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.tune.space import random_point
from tilesmith.tune.units import UnitBuilder
from torch_answer import torch_answer, torch_gemm

BATCH = 25
TARGETS = tuple(replace(target, cores=2) for target in levels.HERE)
TWO_THREADS = TARGETS[-1]


@dataclass(frozen=True)
class Trial:
    """One solver's draft for one problem."""

    signature: Signature
    solver: str
    config: Config
    draft: Draft


@dataclass
class Report:
    signatures: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    oracle_wrong: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        return [line for lines in self.wrong.values() for line in lines] + self.oracle_wrong

    def fault(self, trial: Trial, words: str) -> None:
        line = f"{trial.solver} [{trial.config}] on {trial.signature.key()}: {words}"
        self.wrong.setdefault(trial.solver, []).append(line)


def random_problems(count: int, start: int) -> list[Signature]:
    """``count`` different problems; the same for the same ``start``."""
    found: dict[str, Signature] = {}

    @seed(start)
    @settings(
        max_examples=2 * count + 10, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(problems())
    def collect(signature: Signature) -> None:
        if len(found) < count:
            found[signature.key()] = signature

    collect()
    return list(found.values())


def trials(signature: Signature, target: Target, start: int) -> Iterator[Trial]:
    """Every accepted solver's default config and another one."""
    rng = random.Random(f"{start} {signature.key()}")
    for candidate in candidates(signature, target):
        if not isinstance(candidate.verdict, Accepted):
            continue
        solver, geometry = candidate.solver, candidate.geometry
        space, default = solver.search_space(geometry, target), solver.default_config(geometry, target)
        if not space.contains(default):
            raise AssertionError(f"{candidate.name}: default {default} outside its space for {signature.key()}")
        for config in dict.fromkeys([default, random_point(space, rng) or default]):
            yield Trial(signature, candidate.name, config, solver.draft(geometry, config, target))


def answer(signature: Signature, values: tuple[np.ndarray, ...]) -> tuple[Oracle, str]:
    """PyTorch's float64 result with the oracle's error terms, and where the two disagree."""
    with np.errstate(all="ignore"):
        truth = (torch_gemm if isinstance(signature, GemmSignature) else torch_answer)(signature, values)
    ours = oracle(signature, values)
    exact = truth.astype(np.int64) if ours.value.dtype.kind == "i" else truth
    scale = np.nanmax(np.abs(truth), where=np.isfinite(truth), initial=1.0)
    close = np.allclose(ours.value, exact, rtol=1e-10, atol=1e-12 * scale, equal_nan=True)
    return Oracle(exact, ours.norm, ours.addends, ours.length), "" if close else f"oracle differs: {signature.key()}"


def special_values(signature: Signature, values: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...] | None:
    """The same arguments with NaN or Inf in one of them, or None for integers."""
    rng = np.random.default_rng(zlib.crc32(signature.key().encode()))
    place = int(rng.integers(len(values)))
    if values[place].dtype.kind in "iu":
        return None
    kinds = [(np.nan,), (np.inf, -np.inf), (np.inf,)][rng.integers(3)]
    planted = list(values)
    planted[place] = planted_copy(values[place], kinds, int(rng.integers(1 << 30)))
    return tuple(planted)


def run_trial(trial: Trial, executable: Executable, values: tuple[np.ndarray, ...], truth: Oracle) -> str:
    """What is wrong with one run, in words."""
    operands, out = guarded_operands(trial.signature, values), guarded_result(trial.signature, values)
    executable.poison()
    bound = executable.bind(trial.signature)
    initial = [guarded_result(trial.signature, values).array] if len(values) > len(operands) else []
    bound(*(operand.array for operand in operands), *initial, out=out.array)
    verdict = check(out.array, truth, trial.signature)
    if bound.in_place:  # bit for bit what it is in memory of its own
        place = [slot.name for slot in arguments(trial.signature)].index("residual")
        over = guarded_result(trial.signature, values)
        over.array[...] = values[place]
        tensors = [operand.array for operand in operands]
        tensors[place] = over.array
        bound(*tensors, out=over.array)
        if over.array.tobytes() != out.array.tobytes() or over.out_of_bounds():
            return over.out_of_bounds() or "another result over the residual"
    beside = out.out_of_bounds() or next((found for operand in operands if (found := operand.out_of_bounds())), "")
    return verdict.message or beside


def run_batch(batch: list[Signature], target: Target, builder: UnitBuilder, start: int, report: Report) -> None:
    everything = [trial for signature in batch for trial in trials(signature, target, start)]
    built = builder.build([trial.draft for trial in everything])
    for signature in batch:
        report.signatures += 1
        values = sample_args(signature, start)
        wild = special_values(signature, values)
        cases = [(case, *answer(signature, case)) for case in (values, wild) if case is not None]
        report.oracle_wrong += [words for _, _, words in cases if words]
        for trial, paths in zip(everything, built, strict=True):
            if trial.signature is not signature:
                continue
            report.runs[trial.solver] += 1
            if isinstance(paths, str):
                report.fault(trial, paths)
                continue
            try:
                digests = [builder.digest(path) for path in paths]
                plan = assemble(trial.draft, signature, trial.solver, str(trial.config), target, digests)
                files = dict(zip(digests, paths, strict=True))
                executable = Executable(plan, [files[digest] for digest in plan.artifacts])
                for kind, (case, truth, _) in zip(("", "NaN or Inf planted: "), cases, strict=False):
                    if words := run_trial(trial, executable, case, truth):
                        report.fault(trial, kind + words)
                        break
            except TilesmithError as error:
                report.fault(trial, f"{type(error).__name__}: {error}")


def sweep(count: int, start: int = 0, targets: tuple[Target, ...] = (), keys: tuple[str, ...] = ()) -> Report:
    """Run ``count`` random problems, or those of ``keys``, dealt to ``targets`` in turn."""
    targets = targets or (TWO_THREADS,)
    report = Report()
    found = [parse_key(key) for key in keys] if keys else random_problems(count, start)
    with tempfile.TemporaryDirectory(prefix="tilesmith-sweep-") as folder:
        builders = []
        for number, target in enumerate(targets):
            (place := Path(folder) / str(number)).mkdir()
            builders.append(UnitBuilder(place, target, find_compiler(), 2))
        began = time.monotonic()
        for number, at in enumerate(range(0, len(found), BATCH)):
            which = number % len(targets)
            run_batch(found[at : at + BATCH], targets[which], builders[which], start, report)
            seconds = time.monotonic() - began
            print(f"\r{report.signatures} signatures, {sum(report.runs.values())} kernels, "
                  f"{len(report.failures)} wrong, {seconds:.0f} s", end="", file=sys.stderr, flush=True)  # fmt: skip
    print(file=sys.stderr)
    return report


def print_report(report: Report) -> None:
    for line in report.failures:
        print(line)
    print(f"{'solver':28} {'runs':>7} {'wrong':>6}")
    for name in sorted(report.runs):
        print(f"{name:28} {report.runs[name]:7} {len(report.wrong.get(name, [])):6}")
    print(f"{report.signatures} signatures, {sum(report.runs.values())} runs, {len(report.failures)} wrong")


def main() -> int:
    keys = tuple(argument for argument in sys.argv[1:] if not argument.isdecimal())
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdecimal()]
    count, start = numbers[0] if numbers else 2000, numbers[1] if len(numbers) > 1 else 0
    report = sweep(count, start, (TWO_THREADS, *TARGETS) if not keys else (), keys)
    print_report(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
