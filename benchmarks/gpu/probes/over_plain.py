"""What bias, activation and residual cost: fused problems beside the same ones without them, in one process.

    python benchmarks/gpu/probes/over_plain.py [LIST] [--epilogue NAME ...] [--configs N] [--seconds S] [--limit S]
                                               [--every N] [--first I] [--lock FILE] [--json FILE]
    python benchmarks/gpu/probes/over_plain.py --shown FILE      prints what such a run has written

LIST is a list of benchmarks/problems (fused), or a file of keys; NAME is as in keys: bias+gelu. A problem, and the same
without its epilogue, are each given the N configs of the least estimate over all solvers (1: the untuned choice). All
are compiled first. Then, while the lock is held, a problem's kernels are timed in turns, in rows of calls with a cold
L2 cache, each form on tensors of its own; the fastest of each form counts. Before, each fused kernel is checked against
the float64 reference at a batch (or number of rows) whose results are at most a million.

Prints a line a problem, and for each epilogue the geometric mean of the fused time over the plain one's; of residuals,
also of the time over what is allowed: 1.03 times the plain one's and the residual's bytes at 4.3 TB/s. The exit status
is 1 when numbers are wrong or a problem could not be measured.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import statistics
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "src")]
import tables  # noqa: E402
from checks_worker import CACHE  # noqa: E402
from configs import Tried, build_all, compiled, problems_of, tried  # noqa: E402
from fused import RESIDUAL_SPEED, SLACK, plain_of  # noqa: E402
from gpu_cases import accepted  # noqa: E402

from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.measure.arrays import guarded_operands, guarded_result  # noqa: E402
from tilesmith.measure.device_arrays import TimedTensors  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench, device_bench  # noqa: E402
from tilesmith.plan.slots import arguments  # noqa: E402
from tilesmith.problems.epilogue import IDENTITY  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.targets.target import CudaTarget  # noqa: E402

ROUNDS = 21
CHECKED = 1 << 20  # results of a problem that the host checks
HOPELESS = 3.0  # times the least estimate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", nargs="?", default="fused")
    parser.add_argument("--epilogue", nargs="+", default=[], metavar="NAME", help="these alone")
    parser.add_argument("--shown", type=Path, metavar="FILE")
    parser.add_argument("--configs", type=int, default=1, help="of each form of a problem")
    parser.add_argument("--seconds", type=float, default=0.3, help="of timing a problem")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds after which no problem is begun")
    parser.add_argument("--every", type=int, default=1, help="each Nth problem alone")
    parser.add_argument("--first", type=int, default=0, help="index of the first")
    parser.add_argument("--lock", default="/tmp/gpu.lock", help="held while the device is used")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.shown:
        rows = json.loads(args.shown.read_text())["rows"]
        print("\n".join([line_of(row) for row in rows] + summary(rows)))
        return 0
    until, target = time.monotonic() + args.limit, cuda_target_of(0)
    fused = [each for each in problems_of(args.list).values() if each.epilogue != IDENTITY]
    fused = [each for each in fused if not args.epilogue or epilogue_of(each.key()) in args.epilogue]
    forms = {each.key(): (each, plain_of(each).canonical) for each in fused[args.first :: args.every]}
    picks = {key: [least(form, args.configs, target) for form in both] for key, both in forms.items()}
    build_all((source for pair in picks.values() for tries in pair for each in tries
               for source in each[0].solver.draft(each[0].geometry, each[1], target).sources), target)  # fmt: skip
    rows, failed, left = list[dict](), 0, 0
    with open(args.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for key, (problem, plain) in forms.items():
            if time.monotonic() > until:
                left += 1
                continue
            try:
                row = measured(problem, plain, picks[key], target, args.seconds)
            except TilesmithError as error:
                failed += 1
                print(f"FAILED {key}: {error}"[:300], flush=True)
                continue
            print(line_of(row), flush=True)
            rows.append(row)
    for line in summary(rows):
        print(line)
    if args.json:
        machine = tables.facts(" ".join(["python", *sys.argv]))
        tables.write_json(args.json, {"machine": machine, "target": target.name, "rows": rows})
    print(f"{len(rows)} measured, {failed} failed, {left} left")
    return int(failed > 0)


def epilogue_of(key: str) -> str:
    return key.rpartition("epi=")[2]


def least(problem: Signature, count: int, target: CudaTarget) -> list[Tried]:
    """The configs of the least estimate, over all solvers."""
    return sorted(tried(problem, target, [], count - 1, [], HOPELESS), key=lambda each: each[2])[:count]


def smaller(problem: Signature) -> Signature:
    """With few enough images, or rows, for the host to check."""
    size = math.prod(arguments(problem)[-1].shape)
    if size <= CHECKED:
        return problem
    if isinstance(problem, GemmSignature):
        return replace(problem, m=max(1, problem.m * CHECKED // size))
    shape = problem.input_shape
    return replace(problem, input_shape=(max(1, shape[0] * CHECKED // size), *shape[1:]))


def check(problem: Signature, each: Tried, target: CudaTarget) -> None:
    """Raises ``TilesmithError`` for wrong numbers of a smaller problem in the same config."""
    few = smaller(problem).canonical
    candidate = next(found for found in accepted(few, target) if found.name == each[0].name)
    bench = device_bench(few, sample_args(few), target, CACHE, 0)
    verdict = bench.check(compiled(few, (candidate, each[1], each[2]), target))
    if not verdict.ok:
        raise TilesmithError(f"wrong numbers of {each[0].name} {each[1]}: {verdict.message}")


def measured(
    problem: Signature, plain: Signature, picks: list[list[Tried]], target: CudaTarget, seconds: float
) -> dict:
    for each in picks[0]:
        check(problem, each, target)
    values = sample_args(plain)
    bench = DeviceBench(plain, values, partial(_no_truth, plain), target, 0, CACHE)
    given = sample_args(problem)
    tensors = TimedTensors(
        bench.checker.place, bench.checker.stream, guarded_operands(problem, given), guarded_result(problem, given),
        bench.calls,
    )  # fmt: skip
    calls = {}
    for number, (form, held) in enumerate([(problem, tensors), (plain, bench.timed)]):
        for each in picks[number]:
            calls[number, f"{each[0].name} {each[1]}"] = held.plan(compiled(form, each, target)).run
    named = {f"{number} {name}": call for (number, name), call in calls.items()}
    timing = bench.time(named, budget_s=seconds, rounds=ROUNDS)
    us = [{name: round(timing[f"{number} {name}"].median_us, 3) for at, name in calls if at == number}
          for number in (0, 1)]  # fmt: skip
    row = {"key": problem.key(), "fused": us[0], "plain": us[1]}
    if problem.epilogue.residual:
        row["allowed"] = SLACK * min(us[1].values()) + arguments(problem)[-1].nbytes / RESIDUAL_SPEED * 1e6
    return row


def _no_truth(problem: Signature):
    raise TilesmithError(f"{problem.key()} cannot be checked on the device")


def line_of(row: dict) -> str:
    (name, us), (plain, plain_us) = (min(row[form].items(), key=lambda each: each[1]) for form in ("fused", "plain"))
    allowed = f", {us / row['allowed']:.3f} of what is allowed" if "allowed" in row else ""
    same = "the same" if name == plain else plain
    return f"{us / plain_us:.3f} ({plain_us:.2f} and {us:.2f} us{allowed}) {row['key']}: {name}; plain {same}"


def summary(rows: list[dict]) -> list[str]:
    by_epilogue, residuals, others = dict[str, list[float]](), [], []
    for row in rows:
        us, plain_us = (min(row[form].values()) for form in ("fused", "plain"))
        by_epilogue.setdefault(epilogue_of(row["key"]), []).append(us / plain_us)
        if "allowed" in row:
            residuals.append(us / row["allowed"])
        else:
            others.append(us / plain_us)
    if others:
        by_epilogue["bias and activation"] = others
    if residuals:
        by_epilogue["residuals over what is allowed"] = residuals
    return [f"{name}: {statistics.geometric_mean(found):.3f} (geometric mean of {len(found)}), most {max(found):.3f}"
            for name, found in by_epilogue.items()]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
