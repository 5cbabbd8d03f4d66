"""The search on a device: compilers and the measuring process work side by side, and the process outlives a problem.

The process is a stand-in that finds every kernel right; the rest is the search itself.
"""

from __future__ import annotations

import os
import time
import zlib
from typing import ClassVar

import pytest
from cuda_chain import H200

from package_server import until
from tilesmith.db.layers import Layers
from tilesmith.db.opening import open_database
from tilesmith.errors import CompileError
from tilesmith.measure.timing import Timing
from tilesmith.problems.gemm import GemmSignature
from tilesmith.ready import model_session
from tilesmith.ready.model_budget import next_action
from tilesmith.ready.model_session import Place, tune_problems
from tilesmith.toolchain import build as build_module
from tilesmith.toolchain.build import SlowCompilerError
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune import process, runner, session, units
from tilesmith.tune.messages import Certified, Certify, Load, Loaded, Prepare, Race, Raced, Ready, Refused, Reset, Setup
from tilesmith.tune.process import WorkerDiedError, Workers
from tilesmith.tune.session import tune

QUICK = {"strategy": "exhaustive"}  # asks in no time, and does not end early by what stand-ins take
GEMM = GemmSignature(256, 256, 256, dtype="bf16")
OTHER = GemmSignature(256, 512, 256, dtype="bf16")


class StandInWorker:
    """Answers as ``tune.worker`` does; what a kernel takes depends on its name."""

    made: ClassVar[list] = []
    up = 0.0  # long before any search

    def __init__(self, device):
        self.made.append(self)
        self.report, self.alive, self.dead = CrashReport(), True, False
        self.environment = dict(os.environ)
        self.seen, self.replies = [Prepare(device)], []

    def await_up(self, limit_s):
        return self.up

    def send(self, request):
        if not self.alive:
            raise WorkerDiedError("is gone")
        self.seen.append(request)
        if isinstance(request, Setup):
            self.replies.append(Ready(0.0))
        elif isinstance(request, Load):
            self.replies.append(self.load(request))
        elif isinstance(request, Certify):
            self.replies.append(Certified())
        elif isinstance(request, Race):
            self.replies.append(Raced({name: self.timing(name) for name in request.names}))

    def load(self, request):
        return Loaded(0.0, 1.0, self.timing(request.name), 0.0)

    def receive(self, limit_s):
        reply = self.replies.pop(0)
        if isinstance(reply, Refused) and reply.last:
            self.alive = False
        return reply

    def timing(self, name):
        us = 10.0 + zlib.crc32(name.removeprefix("shipped ").encode()) % 997
        return Timing(us, 0.1, 9, "stand-in", us)

    def kill(self, patience_s=0.0):
        self.alive, self.dead = False, True


class CrashReport:
    text = ""

    def write(self, text):
        self.text = text

    def read(self):
        return self.text


@pytest.fixture
def place(cuda, tmp_path, monkeypatch):
    StandInWorker.made = []
    monkeypatch.setattr(process, "WorkerProcess", StandInWorker)
    monkeypatch.setattr(runner, "WorkerProcess", StandInWorker)
    monkeypatch.setattr(session, "usable_cores", lambda: 5)
    return {"database": open_database(tmp_path / "t.db"), "cache": ArtifactCache(tmp_path / "cache"), "external": False}


def compilers(monkeypatch, seconds, refuse=()):
    """Compilers that take ``seconds(number)`` for their number-th kernel, and write nonsense."""
    started = []

    def build_unit(sources, target, path, compiler=None, limit_s=600.0):
        number = len(started)
        started.append(time.monotonic())
        took = seconds(number)
        time.sleep(min(took, limit_s))
        if took > limit_s:
            raise SlowCompilerError("did not end")
        if number in refuse:
            raise CompileError("was refused")
        path.write_bytes(b"".join(source.symbol.encode() for source in sources))
        return ()

    monkeypatch.setattr(units, "build_unit", build_unit)
    monkeypatch.setattr(build_module, "build_unit", build_unit)
    return started


def seconds_of_eight(place):
    """What a search of eight configs takes on this machine, as busy as it is, and longer than that."""
    began = time.monotonic()
    tune(OTHER, H200, max_trials=8, max_seconds=None, **QUICK, **place)
    return 3.5 + 3 * (time.monotonic() - began)


def test_few_seconds_measure_more_than_the_untuned_choice(place, monkeypatch):
    compilers(monkeypatch, lambda number: 0.3)
    result = tune(GEMM, H200, max_seconds=seconds_of_eight(place), **QUICK, **place)
    assert result.trials >= 8
    assert result.ended == "budget"
    stages = list(result.stages.values())
    assert list(result.stages) == ["ready", "first", "playoff", "shipped"]
    assert stages == sorted(stages)


def test_what_is_compiled_is_measured_though_the_time_is_over(place, monkeypatch):
    compilers(monkeypatch, lambda number: 0.0)
    monkeypatch.setattr(session, "LATE_S", 300.0)  # a busy machine takes long to begin
    result = tune(GEMM, H200, max_seconds=0.1, **QUICK, **place)
    assert result.ended == "budget"
    assert 1 <= result.trials <= session.LEAST
    before = len(StandInWorker.made)

    def has_measured(_):
        return any(isinstance(seen, Load) for worker in StandInWorker.made[before:] for seen in worker.seen)

    monkeypatch.setattr(session._Budget, "out_of_time", property(has_measured))
    result = tune(OTHER, H200, **QUICK, **place)
    assert result.trials == session.LEAST


def test_the_untuned_choice_is_measured_though_the_time_is_over(place, monkeypatch):
    """Else a search may end with what an earlier one found elsewhere, and be slower than no search."""
    started = compilers(monkeypatch, lambda number: 2.0 if number == 0 else 0.0)
    monkeypatch.setattr(session, "LATE_S", 300.0)  # a busy machine takes long to begin
    monkeypatch.setattr(session._Budget, "out_of_time", property(lambda _: len(started) > session.LEAST))
    monkeypatch.setattr(session._Budget, "left_s", property(lambda budget: 0.0 if budget.out_of_time else 60.0))
    seen = []
    tune(GEMM, H200, progress=seen.append, **QUICK, **place)
    assert [each.untuned_us is not None for each in seen if each.phase == "playoff"] == [True]


def test_the_untuned_choice_is_compiled_though_it_begins_late(place, monkeypatch):
    """On a busy machine others may be measured, and the time be over, before its compiler begins."""
    compilers(monkeypatch, lambda _: 0.0)
    monkeypatch.setattr(session._Budget, "left_s", property(lambda _: 0.0))
    first_s, asked = session._Search._first_s, []

    def late(search, patience_s):
        asked.append(patience_s)
        if len(asked) == 1:
            until(lambda: search.log.time_s)
        return first_s(search, patience_s)

    monkeypatch.setattr(session._Search, "_first_s", late)
    seen = []
    tune(GEMM, H200, progress=seen.append, **QUICK, **place)
    assert [each.untuned_us is not None for each in seen if each.phase == "playoff"] == [True]


def test_a_slow_compiler_holds_nobody_up(place, monkeypatch):
    slow = []
    started = compilers(monkeypatch, lambda number: 300.0 if slow == [number] else 0.1)
    budget = seconds_of_eight(place)
    slow.append(len(started) + 3)
    result = tune(GEMM, H200, max_seconds=budget, **QUICK, **place)
    assert result.trials >= 8
    assert result.seconds < 250.0


def test_compilers_that_begin_cold_have_not_failed(place, monkeypatch):
    """On a fresh machine the first compilers read their library from the disk, all at once."""
    monkeypatch.setattr(session, "SLOW_S", 0.2)
    compilers(monkeypatch, lambda number: 0.8 if number < 4 else 0.0)
    result = tune(GEMM, H200, max_trials=12, max_seconds=120.0, **QUICK, **place)
    assert (result.trials, result.failed) == (12, 0)


def test_where_every_compilation_is_slow_none_has_failed_for_it(place, monkeypatch):
    monkeypatch.setattr(session, "SLOW_S", 0.1)
    compilers(monkeypatch, lambda number: 0.4)
    result = tune(GEMM, H200, max_trials=12, max_seconds=120.0, **QUICK, **place)
    assert (result.trials, result.failed) == (12, 0)


def test_a_kernel_that_is_slow_beside_others_has_failed(place, monkeypatch):
    monkeypatch.setattr(session, "SLOW_S", 0.3)
    compilers(monkeypatch, lambda number: 100.0 if number == 9 else 0.0)
    result = tune(GEMM, H200, max_trials=12, max_seconds=120.0, **QUICK, **place)
    assert (result.trials, result.failed) == (12, 1)


@pytest.fixture
def budgets(monkeypatch):
    """Those of the searches of a test."""
    kept = []

    class Kept(session._Budget):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            kept.append(self)

    monkeypatch.setattr(session, "_Budget", Kept)
    return kept


def test_no_time_is_kept_for_a_compilation_that_nothing_needs(place, budgets, monkeypatch):
    compilers(monkeypatch, lambda number: 0.3)
    for known in (False, True):  # a finalist of an earlier search may have to be compiled again
        tune(GEMM, H200, max_trials=16 if known else 8, max_seconds=120.0, **QUICK, **place)
        assert (budgets[-1].compile_s > 0.25) == known
        assert budgets[-1].round_s < 1.0  # it was met


def test_the_playoff_of_short_kernels_is_expected_to_be_short():
    long, short = (session._Budget(None, 12.0, 1.5, best_s=1e-5, round_s=each) for each in (session.math.inf, 5e-4))
    assert long.races_s == pytest.approx(1.44 * 4 / 3)
    assert short.races_s == pytest.approx(2 * 31 * 5 * 5e-4 * 4 / 3)


def test_the_playoff_of_long_kernels_has_time_for_their_rests(place, budgets, monkeypatch):
    """A sample of 20 ms is followed by 200 ms of rest: both races of five finalists need 6.6 s. A search that has few
    seconds has fewer finalists, and keeps less than half of its seconds for their races.
    """
    compilers(monkeypatch, lambda number: 0.0)
    tune(GEMM, H200, max_trials=2, max_seconds=120.0, **QUICK, **place)
    budgets[-1].best_s, budgets[-1].max_seconds = 0.02, 60.0
    assert budgets[-1].finalists == 4
    assert budgets[-1].races_s == pytest.approx(2 * 3 * 5 * 0.22)
    for seconds, finalists in ((12.0, 2), (8.0, 1), (2.0, 1)):
        budgets[-1].max_seconds = seconds
        assert budgets[-1].finalists == finalists
        assert budgets[-1].races_s == pytest.approx(2 * min(0.2 * seconds, 3 * (finalists + 1) * 0.22))


@pytest.mark.parametrize("us", [100.0, 20_000.0])
def test_long_kernels_race_at_the_end_alone(place, budgets, monkeypatch, us):
    """A race of a few takes seconds, in which ten times as many can be loaded and timed roughly."""
    compilers(monkeypatch, lambda number: 0.0)
    monkeypatch.setattr(session, "AHEAD", 8)
    monkeypatch.setattr(StandInWorker, "timing", lambda self, name: Timing(us + len(name), 0.0, 9, "stand-in", us))
    tune(GEMM, H200, max_trials=16, max_seconds=12.0, **QUICK, **place)
    seen = [request for worker in StandInWorker.made for request in worker.seen]
    entrants = [len(request.names) for request in seen if isinstance(request, Race)]
    if us < 1000.0:
        assert len(entrants) > 2
    else:
        assert len(entrants) == 2
        assert max(entrants) <= budgets[-1].finalists + 1 == 3


def test_the_winner_is_not_compiled_again(place, monkeypatch):
    started = compilers(monkeypatch, lambda number: 0.0)
    result = tune(GEMM, H200, max_trials=12, max_seconds=120.0, **QUICK, **place)
    assert result.trials == 12
    kept = place["cache"].directory / "keys"
    assert len(list(kept.iterdir())) == len(result.artifacts)  # what lost is in no cache
    count = len(started)
    again = tune(GEMM, H200, max_trials=12, max_seconds=120.0, **QUICK, **place)
    assert again.new_trials == 0
    assert again.record.config == result.record.config
    assert len(started) - count <= 6  # the finalists but the winner


def test_the_worker_is_kept_for_the_next_problem(place, monkeypatch):
    compilers(monkeypatch, lambda number: 0.0)
    with Workers() as workers:
        for signature in (GEMM, OTHER):
            tune(signature, H200, max_trials=6, max_seconds=120.0, workers=workers, **place)
        (worker,) = StandInWorker.made
        kinds = [type(request) for request in worker.seen if isinstance(request, Setup | Reset)]
        assert kinds == [Setup, Reset, Setup, Reset]
        worker.alive = False  # it dies between two problems
        tune(GEMM, H200, max_trials=8, max_seconds=120.0, workers=workers, **place)
        assert len(StandInWorker.made) == 2
        assert worker.dead
    assert all(each.dead for each in StandInWorker.made)
    tune(OTHER, H200, max_trials=8, max_seconds=120.0, **place)
    assert StandInWorker.made[-1].dead


def test_a_kernel_that_takes_the_context_with_it_costs_its_config_alone(place, monkeypatch):
    compilers(monkeypatch, lambda number: 0.0)
    loads = []

    def load(self, request):
        loads.append(request.name)
        if len(set(loads)) == 3 and len(loads) == 3:
            return Refused("LaunchError: an illegal memory access was encountered", last=True)
        return Loaded(0.0, 1.0, self.timing(request.name), 0.0)

    monkeypatch.setattr(StandInWorker, "load", load)
    result = tune(GEMM, H200, max_trials=10, max_seconds=120.0, **QUICK, **place)
    assert (result.trials, result.failed) == (10, 1)
    assert len(StandInWorker.made) == 2
    (failed,) = [r for r in place["database"].trials(result.problem, result.target) if not r.ok]
    assert "illegal memory access" in failed.reason


def test_what_a_compiler_refuses_costs_its_config_alone(place, monkeypatch):
    compilers(monkeypatch, lambda number: 0.0, refuse=(0, 4))
    result = tune(GEMM, H200, max_trials=10, max_seconds=120.0, **place)
    assert result.record.ok
    assert 1 <= result.failed <= 2


def test_the_problems_of_a_model_are_tuned_on_a_device(place, monkeypatch):
    compilers(monkeypatch, lambda number: 0.0)
    monkeypatch.setattr(  # each is measured, and nothing is searched
        model_session, "next_action",
        lambda standings, left_s: next_action([s for s in standings if s.row.state == "unmeasured"], left_s),
    )  # fmt: skip
    where = Place(H200, 0, Layers((place["database"],)), place["cache"], external=False)
    told = []
    result = tune_problems({GEMM: 3, OTHER: 1}, where, seconds=600, progress=told.append)
    assert {row.signature: (row.calls, row.state) for row in result.rows} == {
        GEMM: (3, "measured"), OTHER: (1, "measured"),
    }  # fmt: skip
    assert result.after_us == sum(row.calls * row.tuned_us for row in result.rows)
    for row in result.rows:
        assert place["database"].best(row.signature.key(), H200.name).config == row.config
    assert (told[-1].measured, told[-1].problems) == (2, 2)
    assert len(StandInWorker.made) == 1  # one measuring process, one context
