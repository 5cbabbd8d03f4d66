"""What a longer search finds: each problem tuned with several budgets, then the winners timed in turns.

    python benchmarks/gpu/probes/longer.py LIST [--budgets 6 36] [--every N] [--first I] [--limit S] [--out FILE]
    python benchmarks/gpu/probes/longer.py --shown FILE ...      prints what such runs have written

LIST is a list of benchmarks/problems, or a file of keys. Every budget, in seconds, is `tilesmith tune --seconds` of
generated kernels in a process of its own, with an empty database and an empty cache. Then one process times the
winners in turns, in rows of calls with a cold L2 cache. A line for each problem: what each budget's winner takes over
the longest one's; then the geometric means.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "src")]
from configs import Tried, build_all, measured, problems_of  # noqa: E402
from gpu_cases import accepted  # noqa: E402

from tilesmith.db.opening import open_database  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.solvers.solver import parse_config  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.targets.target import CudaTarget  # noqa: E402

SECONDS = 0.5  # of timing the winners
SLACK = 2.0  # times a budget, and a minute: a search that takes longer is stopped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", nargs="?")
    parser.add_argument("--shown", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--budgets", nargs="+", type=float, default=[6.0, 36.0], metavar="SECONDS")
    parser.add_argument("--every", type=int, default=1, help="each Nth problem alone")
    parser.add_argument("--first", type=int, default=0, help="index of the first")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds after which no problem is begun")
    parser.add_argument("--out", type=Path, help="a JSON line for each problem")
    args = parser.parse_args()
    if args.shown:
        show([json.loads(line) for path in args.shown for line in path.read_text().splitlines()])
        return 0
    if args.list is None:
        parser.error("give a LIST, or --shown FILE")
    until, target, rows = time.monotonic() + args.limit, cuda_target_of(0), list[dict]()
    for signature in list(problems_of(args.list).values())[args.first :: args.every]:
        if time.monotonic() > until:
            break
        rows.append(row_of(signature, sorted(args.budgets), target))
        print(line_of(rows[-1]), flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(summary(rows))
    return 0


def winner(signature: Signature, budget: float, target: CudaTarget) -> Tried | None:
    """What a search of ``budget`` seconds keeps; None where it keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tilesmith.db")
        places = {"TILESMITH_DB_PATH": str(path), "TILESMITH_CACHE_DIR": folder}
        options = ["--device", "cuda:0", "--generated-only", "--against", "none", "--seconds", f"{budget:g}"]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tilesmith", "tune", "-", *options], input=signature.key(), text=True,
                env={**os.environ, **places}, capture_output=True, timeout=60 + SLACK * budget, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            print(f"  {budget:g} s: stopped after {late.timeout:.0f} s", flush=True)
            return None
        if done.returncode:
            print(f"  {budget:g} s: {done.stderr.strip()[-300:]}", flush=True)
            return None
        database = open_database(path)
        best = database.best(signature.key(), target.name)
        database.close()
    if best is None:
        return None
    candidate = next(each for each in accepted(signature, target) if each.name == best.solver)
    return candidate, parse_config(best.config), 1e-6 * (best.time_us or 0.0)


def row_of(signature: Signature, budgets: list[float], target: CudaTarget) -> dict:
    found = {budget: winner(signature, budget, target) for budget in budgets}
    tried = {f"{each[0].name} {each[1]}": each for each in found.values() if each is not None}
    build_all((source for each in tried.values()
               for source in each[0].solver.draft(each[0].geometry, each[1], target).sources), target)  # fmt: skip
    ours = measured(signature, list(tried.values()), target, SECONDS, ())["ours"]
    names = {budget: f"{each[0].name} {each[1]}" for budget, each in found.items() if each is not None}
    us = {f"{budget:g}": ours.get(name) for budget, name in names.items()}
    return {
        "key": signature.key(),
        "budgets": budgets,
        "us": us,
        "winners": {f"{b:g}": name for b, name in names.items()},
    }


def over_longest(row: dict) -> dict[str, float]:
    """By budget, the winner's time over that of the longest search's; nothing where a search has no winner."""
    times = [row["us"].get(f"{budget:g}") for budget in row["budgets"]]
    if not all(times):
        return {}
    return {f"{budget:g}": us / times[-1] for budget, us in zip(row["budgets"], times, strict=True)}


def line_of(row: dict) -> str:
    times = ", ".join(f"{budget} s {us:.2f} us" if us else f"{budget} s no answer" for budget, us in row["us"].items())
    ratios = " ".join(f"{ratio:.3f}" for ratio in list(over_longest(row).values())[:-1])
    return f"{ratios or '-'} {row['key']}: {times}"


def summary(rows: list[dict]) -> str:
    found = [ratios for row in rows if (ratios := over_longest(row))]
    means = []
    for budget in list(found[0])[:-1] if found else ():
        each = [ratios[budget] for ratios in found]
        means.append(f"{budget} s: {statistics.geometric_mean(each):.3f} of the longest's time, most {max(each):.3f}")
    return f"{len(found)} of {len(rows)} problems have answers of all budgets. " + "; ".join(means)


def show(rows: list[dict]) -> None:
    for row in rows:
        print(line_of(row))
    print(summary(rows))


if __name__ == "__main__":
    sys.exit(main())
