"""How good the search is: untuned against tuned, and tuned against a search ten times as long.

    python benchmarks/search.py [--threads N] [--times 10] [--long-strategy evolutionary] [--every N] [FILE]
    python benchmarks/search.py --seconds 6 --times 6 --long-strategy model      6 seconds against 36

For each problem of FILE (benchmarks/problems/cpu_fp32.txt), three choices are made, each in a new database: that of
`fast` mode (nothing is measured), that of a search with the default budget, and that of a search which takes ten times
as long and does not stop early. Their kernels then run interleaved in one process. Prints a line a problem and writes
benchmarks/results/search_tN.json (with --seconds S: search_tN_Ss.json). One thread takes about an hour on 2 cores; a
run that was stopped goes on from there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.db.opening import open_database
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.measuring import steady_call
from tilesmith.measure.host import host_facts
from tilesmith.measure.timing import interleave
from tilesmith.problems.samples import sample_args
from tilesmith.targets.detect import host_target
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.tune.session import tune

ROOT = Path(__file__).parents[1]
DISTURBED = 3  # exit status: some rows are left out of the summary
ROUNDS = 41
RACE_SECONDS = 3.0


def searched(item: Item, target: Target, folder: Path, name: str, **options: object) -> tuple[Launchable, float, int]:
    database, cache = open_database(folder / f"{name}.db"), ArtifactCache(folder / "cache")
    result = tune(item.signature, target, database=database, cache=cache, **options)
    launch = get_launchable(item.signature, target=target, mode="strict", database=database, cache=cache)
    return launch, result.seconds, result.trials


def compare(item: Item, target: Target, times: float, strategy: str, budget_s: float | None = None) -> dict:
    with tempfile.TemporaryDirectory(prefix="tilesmith-search-") as name:
        folder = Path(name)
        fast = get_launchable(
            item.signature, target=target, mode="fast",
            database=open_database(folder / "fast.db"), cache=ArtifactCache(folder / "cache"),
        )  # fmt: skip
        limit = {} if budget_s is None else {"max_seconds": budget_s}
        short, seconds, trials = searched(item, target, folder, "short", **limit)
        long, long_seconds, long_trials = searched(
            item, target, folder, "long", max_seconds=times * (budget_s or seconds), strategy=strategy
        )
        arguments = sample_args(item.signature)
        calls = {
            name: steady_call(launch, arguments) for name, launch in (("fast", fast), ("short", short), ("long", long))
        }
        timing = interleave(calls, budget_s=RACE_SECONDS, rounds=ROUNDS, threads=target.cores)
    us = {name: each.median_us for name, each in timing.items()}
    return {
        "key": item.signature.key(), "us": us, "spread_us": {name: each.spread_us for name, each in timing.items()},
        "config": {"fast": fast.config, "short": short.config, "long": long.config},
        "seconds": seconds, "trials": trials, "long_seconds": long_seconds, "long_trials": long_trials,
        "fast_over_tuned": us["fast"] / us["short"], "tuned_over_long": us["short"] / us["long"],
        "disturbed": sum(each.disturbed for each in timing.values()),
    }  # fmt: skip


def summary(found: list[dict]) -> dict:
    """Of the problems that no other process has disturbed; the others are counted."""
    rows = [row for row in found if not row.get("disturbed")]
    if not rows:
        return {"problems": 0, "disturbed": len(found)}
    return {
        "problems": len(rows),
        "disturbed": len(found) - len(rows),
        "fast_over_tuned": statistics.geometric_mean(row["fast_over_tuned"] for row in rows),
        "tuned_over_long": statistics.geometric_mean(row["tuned_over_long"] for row in rows),
        "median_seconds": statistics.median(row["seconds"] for row in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", default=str(ROOT / "benchmarks" / "problems" / "cpu_fp32.txt"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="budget of the short search (default: that of `tilesmith tune`)")
    parser.add_argument("--times", type=float, default=10.0)
    # The default strategy, model, stops when it expects nothing more; this one does not.
    parser.add_argument("--long-strategy", default="evolutionary")
    parser.add_argument("--every", type=int, default=1, help="take each N-th problem alone")
    options = parser.parse_args()
    budget = "" if options.seconds is None else f"_{options.seconds:g}s"
    out = ROOT / "benchmarks" / "results" / f"search_t{options.threads}{budget}.json"
    target = host_target(options.threads)
    host = host_facts(find_compiler().identity).as_dict()
    old = json.loads(out.read_text()) if out.exists() else {}
    rows = old["results"] if old and (old["target"], old["host"]["compiler"]) == (target.name, host["compiler"]) else []
    rows = [row for row in rows if not row.get("disturbed")]  # the others are measured again
    known = {row["key"] for row in rows}
    for item in read_problems([options.file]).items[:: options.every]:
        if item.signature.key() in known:
            continue
        row = compare(item, target, options.times, options.long_strategy, options.seconds)
        rows.append(row)
        data = {
            "target": target.name, "times": options.times, "every": options.every,
            "long_strategy": options.long_strategy, "host": host, "results": rows, "summary": summary(rows),
        }  # fmt: skip
        out.write_text(json.dumps(data, indent=1) + "\n")
        print(
            f"{row['key'][:90]}: {'disturbed: ' if row['disturbed'] else ''}untuned {row['fast_over_tuned']:.3f}x "
            f"tuned; tuned in {row['seconds']:.1f} s, "
            f"{row['tuned_over_long']:.3f}x a search of {row['long_seconds']:.0f} s", flush=True,
        )  # fmt: skip
    print(json.dumps(summary(rows), indent=1))
    return DISTURBED if summary(rows)["disturbed"] else 0


if __name__ == "__main__":
    sys.exit(main())
