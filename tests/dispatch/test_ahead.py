"""Kernels that other processes decide and build ahead of their calls."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace

import pytest

from tilesmith import ConvSignature, GemmSignature
from tilesmith.dispatch import untuned
from tilesmith.dispatch.background import ahead, process
from tilesmith.dispatch.background.child import message_of
from tilesmith.dispatch.locations import named_databases, open_cache
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.targets.cuda import cuda_target
from tilesmith.targets.detect import host_target

TARGET = cuda_target("sm_90a")
SMALL = GemmSignature(m=64, n=64, k=64, dtype="bf16")
LIMIT_S = 60.0


@pytest.fixture
def processes(monkeypatch, tmp_path):
    """Two processes, and a cache that holds nothing."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(ahead, "_count", lambda: 2)
    monkeypatch.setattr(ahead, "_ahead", ahead._Ahead())
    ahead.start(TARGET, "fast")
    yield ahead._ahead
    ahead._ahead.end()


def request_for(signature, **changes):
    """As a compiled graph asks, with PyTorch's kernels competing."""
    return replace(Request(signature, TARGET, "fast", named_databases(), open_cache(), "", 0, True), **changes)


def recalled(request):
    return untuned.recall(replace(request, databases=request.layers))


def test_what_they_decide_and_build_lies_in_the_cache(processes):
    requests = [request_for(replace(SMALL, m=m)) for m in (64, 128, 192)]
    assert [recalled(each) for each in requests] == [None] * 3
    built = ahead.build_ahead(requests[0])
    assert [ahead.decide_ahead(each).result(LIMIT_S) for each in requests] == [""] * 3
    for each in requests:
        found, want = recalled(each), decide(replace(each, databases=each.layers))
        assert (found.solver, found.config, found.basis) == (want.solver, want.config, "prediction")
    assert built.result(LIMIT_S) == ""
    assert untuned.recall_built(requests[0]).built.artifacts
    assert untuned.recall_built(requests[1]) is None


def test_every_fact_of_the_target_goes_along(processes):
    changed = replace(TARGET, bytes_per_s=TARGET.bytes_per_s / 3)  # its name is the same
    request = request_for(SMALL, target=changed)
    assert ahead.decide_ahead(request).result(LIMIT_S) == ""
    assert recalled(request) is not None
    assert recalled(request_for(SMALL)) is None


def test_the_process_has_the_same_request(monkeypatch):
    """Each field of its own value, so that none is left to a default; packages it finds itself."""
    asked = []
    monkeypatch.setattr(process.resolve, "resolve", asked.append)
    request = request_for(SMALL, only="c_reference", device=3, external=False, frozen=False)
    job = json.loads(json.dumps(message_of(request, "build")))
    assert process._done(job) == ""
    (found,) = asked
    for field in fields(Request):
        mine, theirs = (str(getattr(each, field.name)) for each in (request, found))
        assert mine == theirs, field.name


def test_decisions_come_before_kernels(monkeypatch):
    asked = []

    class Child:
        alive = True

        def ask(self, message, limit_s):
            asked.append(message["work"])
            time.sleep(0.05)
            return ""

        def interrupt(self): ...
        def end(self, patience_s): ...

    monkeypatch.setattr(ahead, "Child", Child)
    monkeypatch.setattr(ahead, "_ahead", ahead._Ahead())
    ahead._ahead.start(1)
    calls = [ahead.decide_ahead, ahead.build_ahead, ahead.build_ahead, ahead.decide_ahead, ahead.decide_ahead]
    for found in [each(request_for(SMALL)) for each in calls]:
        found.result(LIMIT_S)
    assert asked == ["decide"] * 3 + ["build"] * 2
    ahead._ahead.end()


def test_a_problem_that_fails_is_told_and_costs_itself_alone(processes):
    odd = ConvSignature((1, 8, 8, 8), (8, 8, 3, 3), dtype="bf16", mode="wrw", padding=1)
    failed = ahead.build_ahead(request_for(odd, only="no_such_solver")).result(LIMIT_S)
    assert failed.startswith("NoSolutionError: ")
    assert ahead.decide_ahead(request_for(odd)).result(LIMIT_S) == ""


def test_a_process_that_dies_or_hangs_keeps_nobody_waiting(processes, monkeypatch):
    monkeypatch.setattr(ahead, "JOB_S", 0.5)
    for child in processes._children:
        os.kill(child._process.pid, signal.SIGSTOP)
    late = [ahead.decide_ahead(request_for(replace(SMALL, m=m))) for m in (8, 16, 24, 32)]
    assert "did not end within" in late[0].result(LIMIT_S)
    assert all(each.result(LIMIT_S) for each in late)
    until = time.monotonic() + LIMIT_S
    while ahead.runs() and time.monotonic() < until:
        time.sleep(0.01)
    assert ahead.decide_ahead(request_for(SMALL)).result(LIMIT_S) == "no process is there"


def test_idle_processes_end(processes, monkeypatch):
    monkeypatch.setattr(ahead, "IDLE_S", 0.1)
    first = [child._process for child in processes._children]
    assert ahead.decide_ahead(request_for(SMALL)).result(LIMIT_S) == ""
    assert [each.wait(LIMIT_S) is not None for each in first] == [True, True]
    assert not ahead.runs()


@pytest.mark.parametrize(
    ("target", "mode", "variable"),
    [
        (host_target(1), "fast", None), (TARGET, "strict", None), (TARGET, "fast", ("TILESMITH_CACHE_ON", "0")),
        (TARGET, "fast", ("TILESMITH_ONLY_SOLVER", "mma_dense")),
        (TARGET, "fast", ("TILESMITH_TUNING_SPEC_PATH", "/none")),
    ],
)  # fmt: skip
def test_where_they_would_not_help_none_is_started(monkeypatch, target, mode, variable):
    monkeypatch.setattr(ahead, "_count", lambda: 2)
    monkeypatch.setattr(ahead, "Child", lambda: pytest.fail("a process was started"))
    if variable is not None:
        monkeypatch.setenv(*variable)
    ahead.start(target, mode)
    assert not ahead.runs()


def test_nor_where_cores_are_few(monkeypatch):
    monkeypatch.setattr(ahead, "Child", lambda: pytest.fail("a process was started"))
    monkeypatch.setattr(ahead, "usable_cores", lambda: 3)
    ahead.start(TARGET, "fast")
    monkeypatch.setattr(ahead, "usable_cores", lambda: 64)
    assert ahead._count() == ahead.MOST


def test_a_process_that_ends_leaves_none_behind_and_a_fork_has_its_own(home):
    text = """
import os, sys
from tilesmith.dispatch.background import ahead
from tilesmith.targets.cuda import cuda_target
ahead._count = lambda: 2
ahead.start(cuda_target("sm_90a"), "fast")
print(*[child._process.pid for child in ahead._ahead._children], flush=True)
child = os.fork()
if child == 0:
    os._exit(1 if ahead.runs() else 0)
print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    pids, status = done.stdout.splitlines()
    assert (status, done.stderr) == ("0", "")
    for pid in pids.split():
        assert subprocess.run(["kill", "-0", pid], capture_output=True, check=False).returncode != 0
