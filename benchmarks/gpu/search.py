"""How good a GPU's search is: untuned against tuned, and tuned against a search three times as long.

    python3 benchmarks/gpu/search.py LIST... [--seconds 12] [--times 3] [--every N] [--only fwd,bwd,wrw,gemm]

LIST is a name in benchmarks/problems. For each problem three choices are made among generated kernels, each in a new
database: that of `fast` mode (nothing is measured), that of a search of --seconds, and that of a search which takes
--times as long (0: none) and does not stop early. Their kernels are then checked and run interleaved in one process,
with a cold cache. Prints a line a problem and the medians, and writes $OUT/search.json; a run that was stopped goes on
from $OUT/search.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))
from tilesmith.db.store import Database  # noqa: E402
from tilesmith.dispatch.launchable import get_launchable  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.problems.driver import parse_command  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402
from tilesmith.toolchain.cache import ArtifactCache  # noqa: E402
from tilesmith.tune.session import tune  # noqa: E402

FILE = Path(os.environ.get("OUT", tempfile.gettempdir())) / "search.jsonl"
ROUNDS, RACE_S = 21, 1.0


def compare(signature, target, seconds, times, strategy):
    with tempfile.TemporaryDirectory(prefix="tilesmith-search-") as name:
        folder = Path(name)
        cache = ArtifactCache(Path(tempfile.gettempdir()) / "tilesmith-search-cache")

        def chosen(run, **options):
            database, own = Database.open(folder / f"{run}.db"), ArtifactCache(folder / run)
            if options:
                result = tune(signature, target, database=database, cache=own, external=False, **options)
                facts = {
                    f"{run}_seconds": result.seconds, f"{run}_trials": result.trials, f"{run}_failed": result.failed,
                    f"{run}_ended": result.ended,
                }  # fmt: skip
            else:
                facts = {}
            mode = "strict" if options else "fast"
            return get_launchable(signature, target=target, mode=mode, database=database, cache=own), facts

        found, facts = {"fast": chosen("fast")[0]}, {}
        found["tuned"], facts = chosen("tuned", max_seconds=seconds)
        if times:
            spent = max(seconds, facts["tuned_seconds"])
            found["long"], more = chosen("long", max_seconds=times * spent, strategy=strategy)
            facts |= more
        values = sample_args(signature)
        bench = DeviceBench(
            signature, values, partial(device_oracle, signature, values, target, 0, cache), target, 0, cache
        )
        calls = {}
        for run, launch in found.items():
            checked = bench.check(launch.executable)
            if not checked.verdict.ok:
                raise SystemExit(f"{signature.key()} {launch.config}: {checked.verdict.message}")
            calls[run] = checked.plan.run
        timing = bench.time(calls, budget_s=RACE_S, rounds=ROUNDS)
    us = {run: each.median_us for run, each in timing.items()}
    row = {"key": signature.key(), "us": us, "spread_us": {run: each.spread_us for run, each in timing.items()}}
    row["config"] = {run: f"{launch.solver} {launch.config}" for run, launch in found.items()}
    return row | facts


def summary(rows):
    made = {
        "problems": len(rows),
        "untuned over tuned, geomean": statistics.geometric_mean(r["us"]["fast"] / r["us"]["tuned"] for r in rows),
        "seconds a problem, median": statistics.median(r["tuned_seconds"] for r in rows),
        "configs a problem, median": statistics.median(r["tuned_trials"] for r in rows),
    }
    long = [r for r in rows if "long" in r["us"]]
    if long:
        made["tuned over long, geomean"] = statistics.geometric_mean(r["us"]["tuned"] / r["us"]["long"] for r in long)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="+")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--times", type=float, default=3.0)
    parser.add_argument("--long-strategy", default="evolutionary")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="fwd,bwd,wrw,gemm")
    args = parser.parse_args()
    target = cuda_target_of(0)
    known = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
    rows = {row["key"]: row for row in known}
    wanted = {}
    for name in args.lists:
        for line in (ROOT / "benchmarks/problems" / f"{name}.txt").read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                for _, signature in parse_command(line).signatures:
                    if getattr(signature.canonical.geometry, "direction", "gemm") in args.only.split(","):
                        wanted[signature.canonical.key()] = signature.canonical
    print(cuda_devices()[0].name, args, flush=True)
    for key, signature in list(wanted.items())[:: args.every]:
        if key not in rows:
            rows[key] = compare(signature, target, args.seconds, args.times, args.long_strategy)
            with FILE.open("a") as file:
                file.write(json.dumps(rows[key]) + "\n")
        row = rows[key]
        times = " ".join(f"{run} {us:.1f}" for run, us in row["us"].items())
        print(f"{key[:110]} us: {times}; {row['tuned_seconds']:.1f} s, {row['tuned_trials']} configs, "
              f"{row['tuned_failed']} failed, {row['config']['tuned']}", flush=True)  # fmt: skip
    measured = [rows[key] for key in list(wanted)[:: args.every]]
    found = summary(measured)
    for name, value in found.items():
        print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")
    card = cuda_devices()[0]
    machine = f"{card.name}, CUDA {card.driver} driver, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"
    command = f"python3 benchmarks/gpu/search.py {' '.join(sys.argv[1:])}"
    data = {"machine": machine, "command": command, "unit": "us", "summary": found, "results": measured}
    FILE.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
