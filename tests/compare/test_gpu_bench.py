"""`make gpu-bench` without a GPU: what reaches a worker, what is kept of its answers, and what fails is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))
import bench
import bench_worker

COMMAND = "convbfp16 -n 2 -c 8 -H 9 -W 8 -k 16 -y 3 -x 3 -u 2 -F 1"
TUNE = {"speedup": 1.25, "seconds": 6.0, "trials": 9, "solver": "s", "config": "", "time_us": 10.0, "ended": "space"}


class Problems(bench_worker.Problems):
    """A worker's, whose times are made up: the library is slower in each pass."""

    def __init__(self):
        self.about, self.times, self.remembered = {}, [], []

    def remember(self, signature, found):
        self.remembered.append(found)

    def tuned(self, signature, seconds, earlier):
        return TUNE

    def launchable(self, signature, external):
        return None

    def benched(self, launch, seconds):
        self.times.append(20.0 + len(self.times))
        against = {"cudnn": {"time_us": self.times[-1], "single_us": 30.0, "spread_us": 0.1}}
        return {"status": "ok", "reason": "", "solver": "s", "config": "", "time_us": 10.0, "single_us": 12.0,
                "spread_us": 0.1, "gflops": 1.0, "roofline": 0.5, "against": against,
                "ratio": {"cudnn": self.times[-1] / 10.0}, "single_ratio": {"cudnn": 2.5}}  # fmt: skip


@pytest.fixture
def run(monkeypatch, tmp_path):
    """``bench.main`` on one problem, its worker in this process: the exit status and the row."""
    problems = Problems()

    class Pool:
        def __init__(self, *given): ...

        def work(self, tasks, took, starts):
            for task in json.loads(json.dumps(tasks)):
                try:
                    took(0, task, problems.row(task))
                except KeyError as error:  # as ``bench_worker.main`` answers
                    took(0, task, {"bench": {"status": "failed", "reason": f"KeyError: {error}", "ratio": {}}})
            return []

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["bench.py", "demo", *words, "--result", "test"])
        status = bench.main()
        (row,) = json.loads((tmp_path / "gpu_bench_test.json").read_text())["lists"]["demo"]
        return status, row

    run.problems = problems
    monkeypatch.setattr(bench, "LISTS", ("demo",))
    monkeypatch.setattr(bench, "listed", lambda name: [(COMMAND, "fwd", None)])
    monkeypatch.setattr(bench, "cuda_devices", lambda: [SimpleNamespace(name="NVIDIA H200")])
    monkeypatch.setattr(bench, "cuda_target_of", lambda ordinal: SimpleNamespace(name="sm_90a:132:h200"))
    monkeypatch.setattr(bench, "facts", lambda command: {"date": "2026-11-30 00:00 UTC", "command": command})
    monkeypatch.setattr(bench, "WorkerPool", Pool)
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    monkeypatch.setattr(bench, "revision_of", lambda solver: 1)
    monkeypatch.setattr(bench.tables, "RESULTS", tmp_path)
    monkeypatch.setattr(bench.tables, "write_pages", lambda: None)
    monkeypatch.setenv("TILESMITH_DB_PATH", "")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", "")
    return run


def test_each_pass_measures_every_problem(run, capsys):
    status, row = run("--passes", "3", "--generated-only")
    assert status == 0
    assert [each["against"]["cudnn"]["time_us"] for each in (row["bench"], *row["again"])] == [20.0, 21.0, 22.0]
    assert run.problems.remembered == [TUNE, TUNE]  # a further pass searches nothing
    assert "again: fwd conv 3x3 s2 2x8x9x8 -> 16: 2.20" in capsys.readouterr().out
    assert run("--passes", "3", "--generated-only") == (0, row)  # nothing is left to do


def test_a_pass_that_fails_is_said_and_fails_the_run(run, capsys, monkeypatch):
    assert run()[0] == 0

    def broken(launch, seconds):
        return {"status": "failed", "reason": "no memory", "ratio": {}}

    monkeypatch.setattr(run.problems, "benched", broken)
    status, row = run("--passes", "2")
    assert (status, "again" in row) == (1, False)
    told = capsys.readouterr().out
    assert "failed: no memory" in told
    assert "of further passes: 1 failed" in told
