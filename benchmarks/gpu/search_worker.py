"""The process that searches problems for ``gpu_search.py`` on one GPU: tasks on stdin, answers on stdout.

A task is ``{"key", "seconds", "times", "strategy"}``. Three choices are made among generated kernels, each in a new
database: that of ``fast`` mode (nothing is measured), that of a search, and that of a search ``times`` as long (0:
none) which does not stop early. Their kernels are then checked and run interleaved in this process, with a cold cache.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
from workers import Task, keep_to_my_cores, tasks_of_stdin  # noqa: E402

from tilesmith.db.opening import open_database  # noqa: E402
from tilesmith.dispatch.launchable import forget_launchables, get_launchable  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.toolchain.cache import ArtifactCache  # noqa: E402
from tilesmith.tune.process import Workers  # noqa: E402
from tilesmith.tune.session import tune  # noqa: E402

ROUNDS, RACE_S = 21, 1.0
FIRST = GemmSignature(256, 256, 256, dtype="bf16")
CHECKS = ArtifactCache(Path(tempfile.gettempdir()) / "tilesmith-search-cache")


def compare(task: Task, workers: Workers) -> dict:
    target, signature = cuda_target_of(0), parse_key(task["key"])
    with tempfile.TemporaryDirectory(prefix="tilesmith-search-") as name:
        folder = Path(name)
        facts: dict[str, object] = {}

        def chosen(run: str, **options):
            database, own = open_database(folder / f"{run}.db"), ArtifactCache(folder / run)
            if options:
                found = tune(
                    signature, target, database=database, cache=own, external=False, workers=workers, **options
                )
                for fact in ("seconds", "trials", "failed", "ended"):
                    facts[f"{run}_{fact}"] = getattr(found, fact)
            mode = "strict" if options else "fast"
            return get_launchable(
                signature, target=target, device="cuda", mode=mode, database=database, cache=own, external=False
            )

        launches = {"fast": chosen("fast"), "tuned": chosen("tuned", max_seconds=task["seconds"])}
        if task["times"]:
            spent = max(task["seconds"], facts["tuned_seconds"])
            launches["long"] = chosen("long", max_seconds=task["times"] * spent, strategy=task["strategy"])
        values = sample_args(signature)
        truth = partial(device_oracle, signature, values, target, 0, CHECKS)
        bench = DeviceBench(signature, values, truth, target, 0, CHECKS)
        calls = {}
        for run, launch in launches.items():
            verdict = bench.check(launch.executable)
            if not verdict.ok:
                raise ValueError(f"{run}: {launch.config}: {verdict.message}")
            calls[run] = bench.timed.plan(launch.executable).run
        timing = bench.time(calls, budget_s=RACE_S, rounds=ROUNDS)
    return {
        "us": {run: each.median_us for run, each in timing.items()},
        "spread_us": {run: each.spread_us for run, each in timing.items()},
        "disturbed": sum(each.disturbed for each in timing.values()),
        "config": {run: f"{launch.solver} {launch.config}" for run, launch in launches.items()}, **facts,
    }  # fmt: skip


def main() -> int:
    keep_to_my_cores()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    with Workers() as workers:
        # As in a list that is being tuned: the driver, the compiler and the measuring process have started.
        compare({"key": FIRST.key(), "seconds": 2.0, "times": 0}, workers)
        for task in tasks_of_stdin():
            try:
                answer = compare(task, workers)
            except Exception as error:
                answer = {"failed": f"{type(error).__name__}: {error}"[:400]}
            forget_launchables()
            gc.collect()
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
