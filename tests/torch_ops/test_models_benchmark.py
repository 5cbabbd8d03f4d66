"""benchmarks/models: whole models in each mode, a process for each mode, against float64."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "models"
sys.path.insert(0, str(FOLDER))
import measuring  # noqa: E402
import processes  # noqa: E402
import results  # noqa: E402
import together  # noqa: E402
import worker  # noqa: E402
from modes import mode_named  # noqa: E402
from zoo import answer_of, loss_of, make_sample, relative_error  # noqa: E402

HAND = """
import faulthandler, json, os, signal, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=False)
os.makedirs(os.environ["TORCHINDUCTOR_CACHE_DIR"], exist_ok=True)

def compile_for_long():
    print("compiling", file=sys.stderr, flush=True)
    time.sleep(60)

for line in sys.stdin:
    task = json.loads(line)
    what = task["do"], task.get("mode")
    if what == ("build", "compile"):
        os.abort()
    if what == ("build", "compile, freezing"):
        compile_for_long()
    if what == ("build", "tilesmith.optimize"):
        answer = {"missing": "not there"}
    elif what[0] == "sample":
        answer = {"us": 50.0, "wall_us": 50.0, "disturbed": False}
    else:
        answer = {} if what[0] == "prepare" else {"first_s": 1.0, "error": 0.0, "peak_mb": 1.0}
    print(json.dumps(answer), flush=True)
"""
BESIDE = """
import json, os, pathlib, sys, time
begun = pathlib.Path(__file__).parent
for line in sys.stdin:
    task = json.loads(line)
    answer = {}
    if task["do"] == "build":
        answer = {"first_s": 1.0, "error": 0.0}
        if task["model"] == "tiny":
            while len(list(begun.glob("*.begun"))) < 2:  # until the other model's processes build
                time.sleep(0.05)
        else:  # builds until the other model has been sampled
            last, longest = time.monotonic(), 0.0
            while longest < 1.0:
                begun.joinpath(f"{os.getpid()}.begun").touch()
                time.sleep(0.02)
                now = time.monotonic()
                last, longest = now, max(longest, now - last)
            answer["error"] = longest
    elif task["do"] == "finish":
        answer = {"peak_mb": 1.0}
    elif task["do"] == "sample":
        if task["model"] == "tiny":
            time.sleep(0.25)
        answer = {"us": 50.0, "wall_us": 50.0, "disturbed": False}
    print(json.dumps(answer), flush=True)
"""
SPEC = importlib.util.spec_from_file_location("models_run", FOLDER / "run.py")
run = importlib.util.module_from_spec(SPEC)  # another benchmark has a run.py as well
SPEC.loader.exec_module(run)
CELL = measuring.Cell("tiny", "inference", "fp32", 1, "cpu", 1)


def test_a_mode_that_dies_or_hangs_costs_itself_alone(tmp_path, monkeypatch):
    script = tmp_path / "hand.py"
    script.write_text(HAND)
    monkeypatch.setattr(processes, "WORKER", script)
    monkeypatch.setattr(processes, "START_S", 2.0)
    monkeypatch.setattr(processes, "TOLD_S", 0.5)
    monkeypatch.setattr(measuring, "keep_logs", lambda logs, cell: None)
    options = run.parsed(["--build-limit", "1", "--rounds", "3", "--device", "cpu"])
    modes = [mode_named(n) for n in ("eager", "compile", "compile, freezing", "tilesmith.optimize")]
    rows = measuring.measure(CELL, modes, options, lambda: None)
    assert rows["eager"]["us"] == pytest.approx(50.0)
    assert rows["compile"] == {"died": "the process ended with -6", "said": []}
    late = rows["compile, freezing"]
    assert late["died"] == "gave no result within 1 s"
    assert late["said"][0] == "compiling"
    assert any(line.endswith("in compile_for_long") for line in late["said"])
    assert "compile_for_long" in measuring.told(late)
    assert rows["tilesmith.optimize"] == {"missing": "not there"}


def test_models_side_by_side_stand_still_while_one_is_sampled(tmp_path, monkeypatch):
    script, out = tmp_path / "beside.py", tmp_path / "out.json"
    script.write_text(BESIDE)
    monkeypatch.setattr(processes, "WORKER", script)
    monkeypatch.setattr(together, "keep_logs", lambda logs, cell: None)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    words = ["--device", "cpu", "--models", "tiny", "unet", "--modes", "eager", "tilesmith.optimize", "--rounds", "3",
             "--limit", "240", "--out", str(out)]  # fmt: skip
    assert together.main(words) == 0
    rows = {cell["model"]: cell["rows"] for cell in json.loads(out.read_text())["cells"]}
    assert set(rows) == {"tiny", "unet"}
    for row in rows["unet"].values():
        assert row["error"] > 1.5  # six samples of 0.25 s and the time to settle
        assert len(row["samples_us"]) == 3


def test_what_is_not_built_in_time_costs_itself_alone(tmp_path, monkeypatch):
    script, out = tmp_path / "beside.py", tmp_path / "out.json"
    script.write_text(BESIDE)
    monkeypatch.setattr(processes, "WORKER", script)
    monkeypatch.setattr(together, "keep_logs", lambda logs, cell: None)
    monkeypatch.setattr(together, "SAMPLING_S", 1.0)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    words = ["--device", "cpu", "--models", "unet", "--modes", "eager", "--limit", "2.5", "--out", str(out)]
    assert together.main(words) == 1
    (cell,) = json.loads(out.read_text())["cells"]
    assert "gave no result within" in cell["rows"]["eager"]["died"]


def test_a_mode_that_is_not_built_in_time_leaves_the_others_their_samples(tmp_path, monkeypatch):
    script, out = tmp_path / "hand.py", tmp_path / "out.json"
    script.write_text(HAND.replace("compile, freezing", "compile, max-autotune, freezing").replace('"compile")', '"")'))
    monkeypatch.setattr(processes, "WORKER", script)
    monkeypatch.setattr(together, "keep_logs", lambda logs, cell: None)
    monkeypatch.setattr(together, "SAMPLING_S", 1.0)
    monkeypatch.setattr(processes, "TOLD_S", 0.5)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    modes = ["eager", "compile", "compile, max-autotune, freezing", "tilesmith backend"]
    words = ["--device", "cpu", "--models", "resnet50", "--kinds", "inference", "--modes", *modes, "--limit", "5",
             "--out", str(out), "--inductor", str(tmp_path / "kept")]  # fmt: skip
    begin = time.monotonic()
    assert together.main(words) == 1
    assert time.monotonic() - begin < 40
    (cell,) = json.loads(out.read_text())["cells"]
    assert [name for name in modes if "us" in cell["rows"][name]] == ["eager", "compile", "tilesmith backend"]
    late = cell["rows"]["compile, max-autotune, freezing"]
    assert "gave no result within" in late["died"]
    assert any(line.endswith("in compile_for_long") for line in late["said"])
    assert not any("goes_on" in row for row in cell["rows"].values())
    words[words.index("compile, max-autotune, freezing")] = "tilesmith.optimize"
    assert together.main(words) == 1  # HAND has no such mode
    (cell,) = json.loads(out.read_text())["cells"]
    assert [name for name, row in cell["rows"].items() if "goes_on" in row] == ["eager", "compile", "tilesmith backend"]


def test_the_memory_of_a_mode_is_told_once_it_is_known():
    row = {"first_s": 1.0, "error": 1e-3}
    assert measuring.told(row) == "first result after 1.0 s, error 1.0e-03"
    assert measuring.told(row | {"peak_mb": 12.0}).endswith(", 12 MB")


def test_one_process_at_a_time_times_the_kernels_that_it_chooses_among(tmp_path, monkeypatch):
    """The other one waits while the file is held; a lock of a file counts for each that has opened it."""
    from torch._inductor.runtime.benchmarking import benchmarker

    spans = []

    def timed(*args, **kwargs):
        begin = time.monotonic()
        time.sleep(0.3)
        spans.append((begin, time.monotonic()))
        return 1.0

    monkeypatch.setattr(benchmarker, "benchmark_gpu", timed)
    worker.time_alone(str(tmp_path / "timing"))
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(benchmarker.benchmark, lambda: None, (), {}, device="cuda") for _ in range(2)]
        assert [each.result() for each in both] == [1.0, 1.0]
    first, second = sorted(spans)
    assert first[1] <= second[0]


def test_a_step_of_training_is_built_checked_and_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "STEPS", {})
    cell, file = measuring.Cell("tiny", "training", "fp32", 2, "cpu", 1), str(tmp_path / "sample")
    worker.prepare(cell.task("prepare", file=file))
    # Where another test of this process has imported PyTorch's test utilities, its flags cannot be set without this.
    with torch.backends.__allow_nonbracketed_mutation():
        row = worker.begin(cell.task("build", mode="eager", file=file))
    assert 0 < row["error"] < 1e-5
    assert row["peak_mb"] > 50
    assert worker.STEPS["eager"].sample()["us"] > 10


def test_the_command_measures_checks_and_goes_on(tmp_path, capsys):
    words = ["--models", "tiny", "--batches", "2", "--modes", "eager", "--rounds", "3", "--device", "cpu",
             "--threads", "1", "--out", str(tmp_path / "out.json")]  # fmt: skip
    assert run.main(words) == 0
    (cell,) = json.loads((tmp_path / "out.json").read_text())["cells"]
    assert cell["kind"] == "inference"
    for row in cell["rows"].values():
        assert row["us"] > 10
        assert 0 < row["error"] < 1e-5
        assert row["peak_mb"] > 50
    capsys.readouterr()
    assert run.main(words) == 0  # nothing is left to do
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("training", [False, True])
def test_a_model_without_its_batch_norms_is_far_from_the_answer(training):
    """The statistics are such that a wrong fold shows; a right model is close."""
    sample = make_sample("tiny", "cpu", 2, "fp32")
    right, again = answer_of(sample, training), answer_of(make_sample("tiny", "cpu", 2, "fp32"), training)
    assert torch.equal(right.result, again.result)
    for module in sample.model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.zero_()
            module.weight.data.fill_(1.0)
    assert relative_error(answer_of(sample, training).result, right.result) > 0.05


def test_processor_seconds_are_those_of_sessions_below_too():
    # As the processes that choose kernels ahead, which have sessions of their own and outlive the first result.
    work = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(); sys.stdout.flush(); time.sleep(60)"
    before = processes.session_cpu_s()
    child = subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout.readline()
        assert processes.session_cpu_s() - before > 0.25
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_the_loss_of_float64_stays_float64():
    y = torch.randn(2, 5, dtype=torch.float64)
    assert loss_of(y, torch.randn(2, 5)).dtype == torch.float64


def test_a_speed_up_is_taken_round_by_round():
    """A neighbour that slows half of the rounds down twofold slows both modes; the medians would say 1.5."""
    row = {"date": "now", "spread_us": 0.0, "disturbed": 0, "first_s": 1.0, "error": 0.0, "peak_mb": 1.0}
    rows = {
        "eager": row | {"us": 15.0, "samples_us": [10.0, 20.0, 10.0, 20.0]},
        "tilesmith.optimize": row | {"us": 10.0, "samples_us": [8.0, 16.0, 8.0, 16.0]},
        "compile": {"died": "no result"},
    }
    assert results.speed_up(rows, "tilesmith.optimize") == pytest.approx(1.25)
    assert results.speed_up(rows, "compile") is None
    data = {"machine": {"cpu": "a processor", "threads": 1, "date": "now", "command": "run.py"}, "cells": []}
    results.add(data, CELL.key, rows)
    results.add(data, CELL.key, {"eager": {"died": "later"}})  # a time is not lost to a failure
    page = results.page(data)
    assert "| inference, fp32, batch 1 | best | 1 | 1.250 | 1.250 |" in page
    assert "| tiny | 0.01 | died | 0.01 |" in page.replace("0.015", "0.01")


def test_the_page_is_what_the_result_files_say():
    assert results.PAGE.read_text() == results.rendered(), "run python benchmarks/models/run.py --table"
