"""The process that tunes and measures problems for ``bench.py`` on one GPU: tasks on stdin, answers on stdout.

A task is ``{"command", "direction", "tune", "earlier", "keep", "tune_seconds", "seconds", "external"}``. Each problem
is tuned as ``tilesmith tune --generated-only`` does, in a measuring process that stays warm, beginning with the config
of ``earlier``, which a search of another version found. ``tune`` holds what a search of this version found; with
``keep`` the earlier one counts too if its solver is that of today's untuned choice. Then the problem is measured as
``tilesmith bench --generated-only`` does. Where that is not clearly faster than the library, PyTorch's own kernel races
(``dispatch.library_race``), and what a PyTorch program gets then is measured once more.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
from workers import Task, keep_to_my_cores, tasks_of_stdin  # noqa: E402

CLEARLY = 1.03


class Problems:
    """Everything that stays warm from problem to problem."""

    def __init__(self) -> None:
        import torch

        from tilesmith.compare.rival import chosen_rivals
        from tilesmith.dispatch.locations import lasting_databases, open_cache
        from tilesmith.measure.machine import machine_of
        from tilesmith.targets.detect_cuda import cuda_target_of
        from tilesmith.tune.process import Workers

        torch.cuda.init()
        self.target, self.layers, self.cache = cuda_target_of(0), lasting_databases(), open_cache()
        self.workers = Workers()
        self.workers.prepare(0)
        self.machine = machine_of(self.target, self.cache, 0)
        self.rivals = chosen_rivals(("cudnn", "cublas"), self.target)
        self.about = {rival.name: rival.version() for rival in self.rivals}

    def row(self, task: Task) -> dict:
        """What ``gpu_bench`` keeps of a problem."""
        from tilesmith.dispatch.launchable import forget_launchables
        from tilesmith.problems.driver import parse_problem
        from tilesmith.solvers.external.library import empty_cache

        found = parse_problem(task["command"]).signatures
        signature = next(signature for direction, signature in found if direction == task["direction"])
        began = time.monotonic()
        row = {"tune": None, "bench": None, "external": None, "raced": task["external"]}
        earlier = task["earlier"]
        known = task["tune"] or (earlier if task["keep"] and earlier and self.still(signature, earlier) else None)
        if known:
            self.remember(signature, known)
        row["tune"] = known or self.tuned(signature, task["tune_seconds"], earlier)
        tuned = time.monotonic()
        launch = self.launchable(signature, external=False)
        row["bench"] = self.benched(launch, task["seconds"])
        if task["external"] and row["bench"]["status"] == "ok":
            nearest = min(row["bench"]["ratio"].values(), default=CLEARLY)
            if nearest < CLEARLY and self.raced(launch, task["seconds"]):
                row["external"] = self.benched(self.launchable(signature, external=True), task["seconds"])
        row["seconds"] = {"tune": round(tuned - began, 2), "bench": round(time.monotonic() - tuned, 2)}
        forget_launchables()
        gc.collect()
        empty_cache()
        return row | {"about": self.about}

    def still(self, signature, earlier: dict) -> bool:
        """Whether the untuned choice is of the solver that an earlier search chose."""
        from tilesmith.dispatch.facts import options_of

        estimated = [option for option in options_of(signature.canonical, self.target) if option.predicted_s]
        best = min(estimated, key=lambda option: option.predicted_s or 0.0)
        return best.candidate.name == earlier["solver"]

    def tuned(self, signature, seconds: float, earlier: dict | None) -> dict:
        from tilesmith.tune.session import tune

        first = [(earlier["solver"], earlier["config"])] if earlier else []
        result = tune(
            signature, self.target, database=self.layers.writable, cache=self.cache, max_seconds=seconds,
            external=False, first=first, workers=self.workers,
        )  # fmt: skip
        kept = ("speedup", "trials", "new_trials", "failed", "seconds", "ended", "stages")
        record = {name: getattr(result.record, name) for name in ("solver", "config", "time_us")}
        return record | {name: getattr(result, name) for name in kept}

    def remember(self, signature, found: dict) -> None:
        """Put what an earlier search has found into the database."""
        from tilesmith.db.records import Record
        from tilesmith.solvers.old_names import read_config
        from tilesmith.solvers.table import candidates

        problem, solver = signature.canonical, found["solver"]
        (candidate,) = candidates(problem, self.target, (solver,))
        config = str(read_config(solver, found["config"]))  # an earlier version's names of axes
        self.layers.writable.put_result(Record(
            problem.key(), self.target.name, solver, config, candidate.solver.revision, found["time_us"]
        ))  # fmt: skip

    def launchable(self, signature, external: bool):
        from tilesmith.dispatch.launchable import get_launchable

        return get_launchable(signature, target=self.target, device="cuda", external=external)

    def benched(self, launch, seconds: float) -> dict:
        """A row as ``tilesmith bench --json`` writes it."""
        from tilesmith.compare.benchmark import bench

        found = bench(launch, self.machine, self.rivals, seconds=seconds)
        self.about["method"] = found.method or self.about.get("method", "")
        kept = ("time_us", "spread_us", "single_us", "samples", "disturbed", "discarded", "prepare_us", "gflops",
                "roofline", "error", "bound", "status", "reason", "ratio", "single_ratio")  # fmt: skip
        row = {name: getattr(found, name) for name in kept} | {"solver": launch.solver, "config": launch.config}
        return row | {"against": {name: asdict(them) for name, them in found.against.items()}}

    def raced(self, launch, seconds: float) -> bool:
        from tilesmith.compare.library_race import race_library

        return bool(race_library(launch, self.layers.writable, seconds=seconds))


def main() -> int:
    keep_to_my_cores()
    # A database for each GPU: its times are its own.
    os.environ["TILESMITH_DB_PATH"] += f"_{os.environ['CUDA_VISIBLE_DEVICES']}.db"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    problems = Problems()
    with problems.workers:
        for task in tasks_of_stdin():
            try:
                answer = problems.row(task)
            except Exception as error:
                answer = {
                    "bench": {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:400], "ratio": {}}
                }
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
