"""The seconds of a search on a device are a hard limit, too: a fifth more or two seconds, whatever is slow there."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from cuda_chain import H200
from test_cuda_searching import GEMM, QUICK, CrashReport, StandInWorker, compilers, place  # noqa: F401

from tilesmith.errors import LaunchError, OutOfTimeError
from tilesmith.tune import process, runner, session
from tilesmith.tune.messages import Certify, Load, Prepare, Prepared, Race, Refused, Setup, frame, take_reply
from tilesmith.tune.process import WorkerDiedError, WorkerProcess, Workers
from tilesmith.tune.session import tune
from tilesmith.tune.worker import serve

# The budget, what a search may take on top of it here, and what a busy machine may take on top of both.
SECONDS, LATE_S, SLACK_S = 1.0, 1.0, 2.0


class SlowWorker(StandInWorker):
    """Takes its time for some kinds of requests: seconds, or a function of the request that gives them.

    The first ``die`` processes end while they start.
    """

    takes: ClassVar[dict[type, float | Callable[[Any], float]]] = {}
    die: ClassVar[int] = 0

    def send(self, request):
        super().send(request)
        self.asked = request

    def await_up(self, limit_s):
        if len(self.made) <= self.die:
            self.alive = False
            raise WorkerDiedError("ended with status 1")
        seconds = self.takes.get(Prepare)
        if seconds is None:
            return super().await_up(limit_s)
        time.sleep(min(seconds, limit_s))
        if seconds > limit_s:
            raise WorkerDiedError(f"was not up within {limit_s:.1f} s")
        return time.monotonic()

    def receive(self, limit_s):
        seconds = self.takes.get(type(self.asked), 0.0)
        seconds = seconds(self.asked) if callable(seconds) else seconds
        time.sleep(min(seconds, limit_s))
        if seconds > limit_s:
            raise WorkerDiedError(f"did not end within {limit_s:.1f} s")
        return super().receive(limit_s)


@pytest.fixture
def slow(place, monkeypatch):  # noqa: F811
    monkeypatch.setattr(process, "WorkerProcess", SlowWorker)
    monkeypatch.setattr(runner, "WorkerProcess", SlowWorker)
    monkeypatch.setattr(session, "LATE_S", LATE_S)

    def search(takes, **options):
        monkeypatch.setattr(SlowWorker, "takes", takes)
        began = time.monotonic()
        try:
            return tune(GEMM, H200, max_seconds=SECONDS, **QUICK, **(place | options))
        except OutOfTimeError as error:
            return error
        finally:
            assert time.monotonic() - began < takes.get(Prepare, 0.0) + SECONDS + session.LATE_S + SLACK_S

    return search


def external_alone(request):
    return 100.0 if request.solver else 0.0


@pytest.mark.parametrize("request_kind", [Setup, Load, Race, "external"])
def test_a_worker_that_does_not_answer_keeps_nobody(slow, place, monkeypatch, request_kind):  # noqa: F811
    compilers(monkeypatch, lambda number: 0.0)
    found = slow({Load: external_alone} if request_kind == "external" else {request_kind: 100.0}, external=True)
    assert isinstance(found, OutOfTimeError) or found.record.ok
    if request_kind is Setup:
        assert "before the data and its float64 reference were made" in str(found)
    # What was ended by the clock says nothing of a config, nor of PyTorch's kernels.
    assert [
        record.reason for record in place["database"].trials(GEMM.canonical.key(), H200.name) if not record.ok
    ] == []
    assert all(worker.dead for worker in StandInWorker.made)


def test_without_time_for_its_ending_a_search_answers_with_what_passed_every_check(slow, place, monkeypatch):  # noqa: F811
    compilers(monkeypatch, lambda number: 0.0)
    found = slow({Race: lambda request: 100.0 if request.compares else 0.0})
    assert found.record.ok
    assert found.ended == "budget"
    certified = [request.name for worker in StandInWorker.made for request in worker.seen if type(request) is Certify]
    assert f"{found.record.solver} {found.record.config}".strip() in certified
    assert all(artifact.path.exists() for artifact in found.artifacts)
    assert [record.config for record in place["database"].ranking(GEMM.canonical.key(), H200.name)] == [
        found.record.config
    ]


@pytest.mark.parametrize("request_kind", [Setup, Race])
def test_the_next_problem_finds_a_worker_in_place_of_one_that_was_ended(slow, monkeypatch, request_kind):
    """It makes its context between the two, and not in the time of the second one."""
    compilers(monkeypatch, lambda number: 0.0)
    with Workers() as workers:
        slow({request_kind: 100.0}, workers=workers)
        *ended, fresh = StandInWorker.made
        assert all(worker.dead for worker in ended)
        assert fresh.alive
        assert fresh.seen == [Prepare(0)]
        assert slow({}, workers=workers, max_trials=2).record.ok
        assert StandInWorker.made[-1] is fresh
        assert type(fresh.seen[1]) is Setup
    assert fresh.dead


def test_a_search_counts_its_seconds_from_when_its_worker_is_up(slow, monkeypatch):
    """What starts for longer than the search may take costs it nothing, and compilers have begun meanwhile."""
    begun = compilers(monkeypatch, lambda number: 0.0)
    up_s = SECONDS + LATE_S + 0.1
    before = time.monotonic()
    found = slow({Prepare: up_s}, started=before - 100.0)
    assert found.record.ok
    assert found.seconds < time.monotonic() - before - up_s + 0.01
    assert found.stages["ready"] < 1.0
    assert begun[0] < before + up_s


def test_a_search_that_finds_its_worker_up_counts_from_its_own_start(slow, monkeypatch):
    compilers(monkeypatch, lambda number: 0.0)
    assert isinstance(slow({}, started=time.monotonic() - 100.0), OutOfTimeError)


def test_a_worker_that_is_never_up_ends_the_search(slow, monkeypatch):
    compilers(monkeypatch, lambda number: 0.0)
    monkeypatch.setattr(runner, "START_S", 0.2)
    with Workers() as workers, pytest.raises(LaunchError, match=r"worker process was not up within 0\.2 s"):
        slow({Prepare: 100.0}, workers=workers)
    (worker,) = StandInWorker.made
    assert worker.dead


@pytest.mark.parametrize("die", [1, runner.DEATHS])
def test_workers_that_die_while_they_start_are_replaced_some_times(slow, monkeypatch, die):
    compilers(monkeypatch, lambda number: 0.0)
    monkeypatch.setattr(SlowWorker, "die", die)
    if die < runner.DEATHS:
        assert slow({}, max_trials=2).record.ok
        assert len(StandInWorker.made) == die + 1
    else:
        with pytest.raises(LaunchError, match="worker process ended with status 1"):
            slow({})
        assert len(StandInWorker.made) == die


def test_a_real_worker_says_when_it_is_up():
    """It says so where there is no such device, too."""
    before = time.monotonic()
    worker = WorkerProcess(99)
    try:
        up = worker.await_up(60.0)
        assert before < up < time.monotonic()
        assert worker.await_up(0.0) == up
        worker.send(Certify("anything"))
        assert isinstance(worker.receive(60.0), Refused)
    finally:
        worker.kill()


def test_the_reply_to_a_request_is_found_behind_that_of_the_start():
    worker = WorkerProcess(99)
    try:
        worker.send(Certify("anything"))
        assert isinstance(worker.receive(60.0), Refused)
        with pytest.raises(WorkerDiedError, match="did not end within"):
            worker.receive(0.05)
    finally:
        worker.kill()


def test_a_real_process_that_starts_for_ever_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(process, "_start", lambda report: sleeper())
    worker = WorkerProcess(0)
    with pytest.raises(WorkerDiedError, match=r"was not up within 0\.1 s"):
        worker.await_up(0.1)
    assert worker.alive
    worker.kill()
    assert not worker.alive


def sleeper():
    words = [sys.executable, "-c", "import time; time.sleep(100)"]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_worker_that_is_prepared_makes_the_context_and_says_when(cuda):
    for device, made in ((0, True), (99, False)):
        cuda.log()
        replies = io.BytesIO()
        serve(io.BytesIO(frame(Prepare(device))), replies, CrashReport())
        reply = take_reply(bytearray(replies.getvalue()))
        assert isinstance(reply, Prepared)
        assert reply.moment <= time.monotonic()
        assert ("synchronize" in cuda.log()) == made


def test_compilers_that_do_not_end_keep_nobody(slow, monkeypatch):
    """They have begun while the worker starts, before any second counts."""
    compilers(monkeypatch, lambda number: SECONDS + LATE_S + SLACK_S + 2.0)
    found = slow({})
    assert isinstance(found, OutOfTimeError)
    assert "before a config was measured" in str(found)


def test_pytorch_has_the_time_that_the_playoff_leaves(slow, place, monkeypatch):  # noqa: F811
    """It is loaded in the playoff; where that takes longer than there is, the generated kernels race alone."""
    compilers(monkeypatch, lambda number: 0.0)
    monkeypatch.setattr(session, "LATE_S", 4.0)
    monkeypatch.setattr("test_cuda_time_limit.SLACK_S", 5.0)
    found = slow({Load: external_alone}, external=True, max_trials=3)
    assert found.record.ok
    assert any(isinstance(request, Load) and request.solver for worker in StandInWorker.made for request in worker.seen)
    assert len(StandInWorker.made) == 2  # the one that was loading it is gone
    assert all(not record.solver.startswith("torch") for record in found.ranking)
