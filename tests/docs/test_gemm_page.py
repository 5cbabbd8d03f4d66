"""The commands on the page for people who come from TVM or CUTLASS run, without a GPU and without searching.

What takes minutes is left out: the search itself, and what rivals compile. Words, lists, options, names of rivals,
jobs, results and tables are those of the commands.
"""

from __future__ import annotations

import re
import shlex
import sys

import pytest
from pages import DOCS, names, table

from tilesmith.cli.main import run
from tilesmith.cli.verbs import gemm
from tilesmith.compare.rival import rivals_of
from tilesmith.compare.tvm import environment
from tilesmith.lab.jobs import begin_job, jobs
from tilesmith.lab.results import Result, add_result
from tilesmith.lab.session import Place
from tilesmith.lab.words import said
from tilesmith.targets.cuda import cuda_target
from tilesmith.targets.detect import host_target

PAGE = DOCS / "guide" / "gemm-for-others.md"
TEXT = PAGE.read_text()
GPU = cuda_target("sm_90a", 132)
COMMANDS = list(dict.fromkeys(re.findall(r"(?:^\$ |`)tilesmith (gemm [^`\n]*[^`\n ])", TEXT, re.M)))
THERE = ("tune.py", "run.py", "perf.py", "cutlass_profiler.py", "cutlass_profiler --kernels")


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """The products of each command that searches, in words, with their device and rivals."""
    found = []

    def target_of(_, threads, device):
        return GPU if device.startswith("cuda") else host_target(1)

    def search(session, problems, tell, watch):
        for problem in problems:
            found.append((said(problem), session.place.device, session.trials))
            add_result(_result(problem.canonical.key(), session.place.target.name))
        return 0

    def place_of(device, threads, rivals):
        assert "cudnn" not in {rival.name for rival in rivals}
        return Place(target_of("", 1, device), device)

    def set_up(seconds, tell, pip):
        (environment.environment()).mkdir(parents=True)
        (environment.environment() / "ready").write_text("\n".join(environment.PINS))

    monkeypatch.setattr(gemm, "target_of", target_of)
    monkeypatch.setattr(gemm, "place_of", place_of)
    monkeypatch.setattr(gemm.Session, "run", search)
    monkeypatch.setattr(gemm, "set_up", set_up)
    monkeypatch.setattr(gemm, "begin_job", lambda words, _: begin_job(words, [sys.executable, "-c", ""]))
    monkeypatch.setattr(gemm, "_tune_by_tvm", lambda asked, place, as_json: environment.version() and 0)
    for name, content in re.findall(r'^```text title="([^"]+)"\n(.*?)^```', TEXT, re.M | re.S):
        (tmp_path / name).write_text(content)
    return found


def _result(key, target):
    return Result(key, target, "c_dense", "tile_h=1", 10.0, 0.1, 0.5, 1, 0.1, "2026-01-01T00:00:00+00:00", "abc")


def test_every_command_runs(seen, capfd):
    assert len(COMMANDS) >= 20
    for command in COMMANDS:
        words = shlex.split(command)
        if words[1] == "stop":  # the first job has ended, or dies of this
            assert run(words) in (0, 2), command
            continue
        assert run(words) == 0, f"{command}: {capfd.readouterr().err}"
    assert [" ".join(job.words).partition(" --device")[0] for job in jobs()] == [
        "tune MNK=1024 t=500 O=65536", "tune MNK=1024 t=1000 O=65537",
    ]  # fmt: skip
    assert ("MNK=1024 nn fp32", "cpu", 500) in seen
    assert ("M=968 N=1376 K=2616 nt fp32", "cpu", None) in seen
    assert ("M=512 N=3072 K=768 nt tf32", "cpu", 500) in seen
    assert ("M=4096 N=1024 K=512 nn fp32", "cuda", None) in seen
    assert ("MNK=1024 B=8 nn fp32", "cuda", None) in seen


def test_it_has_the_commands_of_both_tools_and_all_rivals(monkeypatch):
    for script in THERE:
        assert script in TEXT
    own = {*rivals_of(GPU), *rivals_of(host_target(1))} - {"cudnn"}
    assert {names(row[0])[0] for row in table(TEXT, "rival")} == own
