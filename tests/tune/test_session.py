"""A search survives every kind of kernel, keeps what it learns, and never makes things worse."""

import os
import re
import signal
import threading
from dataclasses import replace

import pytest
from planted_solver import (
    BROKEN,
    CRASH,
    GENERATOR,
    HANG,
    INPUT,
    LATE,
    OUTSIDE,
    RIGHT,
    SIGNATURE,
    SLOW,
    STALE,
    WRONG,
    Planted,
    candidate,
)  # fmt: skip

from tilesmith.db.opening import open_database
from tilesmith.db.records import UNTUNED
from tilesmith.errors import InterruptedSearchError, NoSolutionError, TilesmithError
from tilesmith.measure.timing import Timing
from tilesmith.report.databases import source_of
from tilesmith.runtime.executable import Executable
from tilesmith.solvers.solver import Config
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune import measuring
from tilesmith.tune.job import make_job
from tilesmith.tune.playoff import ROUNDS, choose_finalists, in_order
from tilesmith.tune.session import STRATEGIES, tune
from tilesmith.tune.space import Point
from tilesmith.tune.trial_log import TrialLog


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A cache that the searches share: most have kernels in common."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def place(tmp_path, compiled):
    return {"database": open_database(tmp_path / "t.db"), "cache": ArtifactCache(compiled)}


def search(place, *solvers, **options):
    options = {"strategy": "exhaustive", "max_seconds": 30.0, **options}
    return tune(SIGNATURE, host_target(1), among=[candidate(solver) for solver in solvers], **place, **options)


def test_the_fastest_right_kernel_wins_and_everything_is_kept(place, tmp_path):
    solver = Planted()
    result = search(place, solver)
    assert result.record.config == "kind=0 spin=0"
    assert result.default.config == "kind=1 spin=0"
    assert result.record.time_us < result.default.time_us
    assert result.speedup > 1.2
    assert (result.trials, result.new_trials, result.failed, result.ended) == (8, 8, 0, "converged")
    # The databases, as another process sees them.
    again = open_database(tmp_path / "t.db")
    best = again.best(SIGNATURE.canonical.key(), host_target(1).name)
    assert best == result.record == result.ranking[0]
    assert len(again.trials(result.problem, result.target)) == 8
    search_row = again.search(result.problem, result.target)
    assert (search_row.strategy, search_row.ended, search_row.trials) == ("exhaustive", "converged", 8)
    # One trial says that it is the untuned choice, and reports compare the winner with it.
    known = again.trials(result.problem, result.target)
    assert [record.config for record in known if record.origin == UNTUNED] == ["kind=1 spin=0"]
    (finding,) = source_of(again, "t.db").findings
    assert finding.gain == pytest.approx(result.speedup)


def test_records_carry_their_evidence(place):
    record = search(place, Planted()).record
    assert 0 < record.spread_us < record.time_us
    assert record.samples >= 3
    assert 0 < record.error <= record.bound
    assert record.revision == 1
    assert record.origin in ("tune", "untuned")
    for text in (record.method, record.compiler, record.generator, record.host, record.date):
        assert text


def test_the_plan_of_the_winner_runs_and_is_right(place):
    import numpy as np

    result = search(place, Planted())
    assert all(artifact.path.exists() for artifact in result.artifacts)
    run = Executable(result.plan, [artifact.path for artifact in result.artifacts]).bind(SIGNATURE)
    a, b = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((8, 32), (32, 16)))
    assert np.allclose(run(a, b), a.astype(np.float64) @ b, atol=1e-4)


BAD = {
    WRONG: "wrong numbers: 1 of 128",
    CRASH: r"crashed \(SIGSEGV\)",
    BROKEN: "refused generated source",
    STALE: "wrong numbers",
    OUTSIDE: r"behind the (result|tensor)",
    INPUT: "argument 0",
    GENERATOR: "a bug in the solver",
}


def test_a_bad_kernel_costs_its_config_alone(place):
    result = search(place, Planted(kinds=(RIGHT, *BAD, SLOW), spins=(0, 200)))
    assert result.record.config == "kind=0 spin=0"
    assert result.failed == 2 * len(BAD)
    failed = {r.config: r for r in place["database"].trials(result.problem, result.target) if not r.ok}
    assert set(failed) == {f"kind={kind} spin={spin}" for kind in BAD for spin in (0, 200)}
    for config, record in failed.items():
        assert re.search(BAD[int(config.split()[0].removeprefix("kind="))], record.reason)
        assert record.time_us is None


def test_a_kernel_that_hangs_costs_its_config_alone(place, monkeypatch):
    monkeypatch.setattr(measuring.Measurer, "limit_s", lambda self, point: 1.5)
    result = search(place, Planted(kinds=(HANG, RIGHT, SLOW), spins=(0,)))
    assert result.record.config == "kind=0 spin=0"
    (failed,) = [r for r in place["database"].trials(result.problem, result.target) if not r.ok]
    assert failed.config == f"kind={HANG} spin=0"
    assert "did not end within 1.5 s" in failed.reason


def test_a_kernel_that_crashes_in_the_race_is_named_and_the_race_goes_on(place):
    result = search(place, Planted(kinds=(RIGHT, LATE), default=RIGHT, spins=(0, 50)))
    assert result.record.config.startswith("kind=0")
    failed = {r.config: r.reason for r in place["database"].trials(result.problem, result.target) if not r.ok}
    assert all(config.startswith(f"kind={LATE}") and "SIGSEGV" in reason for config, reason in failed.items())
    assert failed


def test_when_nothing_works_the_error_says_why_and_the_failures_are_kept(place):
    solver = Planted(kinds=(WRONG,), default=WRONG, spins=(0,))
    with pytest.raises(NoSolutionError, match="planted: wrong numbers"):
        search(place, solver)
    problem, target = SIGNATURE.canonical.key(), host_target(1).name
    assert place["database"].best(problem, target) is None
    assert [r.status for r in place["database"].ranking(problem, target)] == ["failed"]


def test_tuned_is_never_slower_than_the_untuned_default(place):
    # The default is the best: a short search that tries others must come back to it.
    solver = Planted(default=RIGHT)
    result = search(place, solver, strategy="random", max_trials=4)
    assert result.record.config == "kind=0 spin=0"
    assert result.record == result.default


def test_a_tie_goes_to_the_earlier_solver_then_to_its_default():
    solvers = [Planted(name="zeta", default=RIGHT), Planted(name="alpha", default=RIGHT)]
    job = make_job(SIGNATURE, host_target(1), "tune", [candidate(solver) for solver in solvers])

    def point(solver, spin):
        return Point(solver, Config((("kind", RIGHT), ("spin", spin))))

    def timing(median):
        return Timing(median, 0.5, 9, "m")

    timings = {
        point("alpha", 0): timing(9.8), point("zeta", 100): timing(10.0), point("zeta", 0): timing(10.2),
        point("alpha", 200): timing(9.0),
    }  # fmt: skip
    assert in_order(job, timings) == [point("alpha", 200), point("zeta", 0), point("zeta", 100), point("alpha", 0)]


def test_the_untuned_default_and_near_solvers_are_finalists():
    solvers = [Planted(name="far"), Planted(name="near"), Planted(name="best", predicted=1e-6)]
    job = make_job(SIGNATURE, host_target(1), "tune", [candidate(solver) for solver in solvers])
    log = TrialLog()

    def tried(solver, kind, spin, seconds):
        point = Point(solver, Config((("kind", kind), ("spin", spin))))
        log.add(point, replace(job.blank(point), time_us=seconds * 1e6, spread_us=0.1), seconds)
        return point

    top = [tried("best", RIGHT, spin, 1.0 + spin * 1e-3) for spin in (0, 10, 20, 30, 40)][:4]
    near, _ = tried("near", RIGHT, 0, 1.14), tried("far", RIGHT, 0, 1.16)
    default = tried("best", SLOW, 0, 3.0)
    assert job.untuned == default
    assert choose_finalists(job, log) == [*top, near, default]


@pytest.mark.parametrize(
    ("second_race", "winner"),
    [
        ({RIGHT: 9.0, SLOW: 10.0}, RIGHT),
        ({RIGHT: 18.0, SLOW: 20.0}, RIGHT),  # a machine that is slower now
        ({RIGHT: 11.0, SLOW: 10.0}, SLOW),  # it was faster for a moment alone
        ({RIGHT: 10.1, SLOW: 10.0}, RIGHT),  # no slower, as far as one can tell
    ],
)
def test_who_replaces_the_untuned_default_is_not_slower_the_second_time(place, monkeypatch, second_race, winner):
    playoffs = []

    def race(self, points, rounds, budget_s, drop_ratio, compares=False):
        race = {RIGHT: 9.0, SLOW: 10.0}
        if rounds == ROUNDS:
            playoffs.append(points)
            race = race if len(playoffs) == 1 else second_race
        times = {point: race[point.config["kind"]] + point.config["spin"] for point in points}
        return {point: Timing(us, 0.2, 9, "", us) for point, us in times.items()}

    monkeypatch.setattr(measuring.Measurer, "race", race)
    result = search(place, Planted(kinds=(RIGHT, SLOW), spins=(0, 200)))
    assert len(playoffs) == 2
    assert result.record.config == f"kind={winner} spin=0"
    assert place["database"].best(result.problem, result.target) == result.record
    assert result.speedup == pytest.approx(10.0 / 9.0 if winner == RIGHT else 1.0)
    assert f"k{winner}" in result.plan.run[0].symbol  # what was compiled alone last


def test_each_solver_gets_its_answer(place):
    fast = Planted(kinds=(RIGHT,), default=RIGHT, spins=(0,), name="fast")
    slow = Planted(kinds=(SLOW,), default=SLOW, spins=(0,), name="slow")
    wrong = Planted(kinds=(WRONG,), default=WRONG, spins=(0,), name="wrong")
    result = search(place, slow, wrong, fast)
    assert [(r.solver, r.status) for r in result.ranking] == [("fast", "ok"), ("slow", "ok"), ("wrong", "failed")]


def test_trials_are_a_budget_and_the_next_search_resumes(place):
    solver = Planted(kinds=(RIGHT, SLOW, WRONG))
    first = search(place, solver, max_trials=5)
    assert (first.new_trials, first.ended) == (5, "budget")
    drafted = set(map(str, solver.drafted))
    solver.drafted.clear()
    second = search(place, solver)
    assert (second.trials, second.new_trials) == (12, 7)
    # Nothing is measured twice but the finalists.
    again = set(map(str, solver.drafted)) & drafted
    assert len(again) <= 5
    third = search(place, solver)
    assert third.new_trials == 0
    assert third.record.config == "kind=0 spin=0"


def test_trials_of_another_revision_or_machine_are_not_reused(place):
    search(place, Planted(), max_trials=5)
    assert search(place, Planted(revision=2)).new_trials == 8
    database = place["database"]
    for record in database.trials(SIGNATURE.canonical.key(), host_target(1).name):
        database.record_trials([replace(record, host="another machine")])
    assert search(place, Planted(revision=2)).new_trials == 8


def test_a_seed_measures_the_same_configs(tmp_path):
    tried = []
    for run in range(2):
        place = {"database": open_database(tmp_path / f"{run}.db"), "cache": ArtifactCache(tmp_path / "cache")}
        result = search(place, Planted(spins=tuple(range(0, 400, 10))), strategy="random", max_trials=10, seed=3)
        tried.append({r.config for r in place["database"].trials(result.problem, result.target)})
    assert tried[0] == tried[1]
    assert len(tried[0]) == 10


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_finds_the_best_of_a_small_space(place, strategy):
    result = search(place, Planted(default=RIGHT), strategy=strategy, max_trials=30)
    assert result.record.config == "kind=0 spin=0"
    assert result.record.origin in (("find",) if strategy == "defaults" else ("tune", "untuned"))


def test_seconds_are_a_budget(place):
    """Each config takes 0.05 s to draft, however busy the machine is: the budget has room for few of 2,000."""
    solver = Planted(spins=tuple(range(0, 2000, 2)), draft_s=0.05)
    result = search(place, solver, max_seconds=6.0)
    assert result.ended == "budget"
    assert len(solver.drafted) < 3.0 / 0.05 + 16  # a batch that was begun in time, and what is compiled alone
    assert result.seconds < 8.0
    assert result.record.ok


def test_ctrl_c_keeps_what_is_done_and_the_next_run_goes_on(place):
    solver = Planted(spins=tuple(range(0, 2000, 2)), draft_s=0.02)
    seen = []

    def listener(progress):
        seen.append(progress)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedSearchError, match="kept") as error:
        search(place, solver, progress=listener)
    assert error.value.exit_status == 130
    database = place["database"]
    problem, target = SIGNATURE.canonical.key(), host_target(1).name
    kept = database.trials(problem, target)
    assert len(kept) >= 16
    assert database.best(problem, target) is not None
    assert database.search(problem, target).ended == "interrupted"
    result = search(place, solver, max_trials=len(kept) + 3)
    assert (result.trials, result.new_trials) == (len(kept) + 3, 3)


def test_progress_tells_the_state(place):
    seen = []
    search(place, Planted(), progress=seen.append)
    assert [p.phase for p in seen] == ["search", "playoff", "done"]
    assert seen[-1].trials == 8
    assert seen[-1].best.startswith("planted kind=0")
    assert seen[-1].best_us > 0


def test_a_search_works_in_any_thread(place):
    found = []
    thread = threading.Thread(target=lambda: found.append(search(place, Planted())))
    thread.start()
    thread.join(60)
    assert found[0].record.ok


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "luck"}, "strategy 'luck' does not exist; known: model"),
        ({"max_trials": 0}, "max_trials must be above 0, got 0"),
        ({"max_seconds": -1.0}, "max_seconds must be above 0, got -1.0"),
    ],
)
def test_bad_options_are_named(place, options, message):
    with pytest.raises(TilesmithError, match=message):
        search(place, Planted(), **options)


def test_no_solver_fits(place):
    with pytest.raises(NoSolutionError, match="no solver fits"):
        tune(SIGNATURE, host_target(1), among=[], **place)
