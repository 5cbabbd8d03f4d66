"""A list tuned by workers that are lost, hang, lie, or whose client is lost: what is kept, and what is tried again."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))

import simulated_search
from thread_executor import ThreadExecutor, simulated

from tilesmith.db.opening import open_database
from tilesmith.errors import FleetError
from tilesmith.fleet import session, spread
from tilesmith.fleet.outbox import Outbox
from tilesmith.fleet.session import Confirmed, FleetOptions, FleetRun, NotTuned, Tuned
from tilesmith.fleet.tasks import CHECK, COLLECT, TUNE, Checked, Reply, encode, read_reply, read_task
from tilesmith.problems.gemm import GemmSignature
from tilesmith.tune.progress import Began, Ended, Progress

PROBLEMS = [GemmSignature(m=8 + index, n=8, k=8).canonical.key() for index in range(8)]
OPTIONS = FleetOptions(seconds=1.0, wait_s=5.0, check=0.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Searches of 4 ms with five trials, whose times differ from one search to the next."""
    settings = {"seconds": dict.fromkeys(PROBLEMS, 0.004), "trials": 5, "noise": 0.3}
    monkeypatch.setenv(simulated_search.SETTINGS, json.dumps(settings))
    monkeypatch.setattr(spread, "POLL_S", 0.02)


@pytest.fixture
def database(tmp_path):
    found = open_database(tmp_path / "client.db")
    yield found
    found.close()


def tuned(executor, database, options=OPTIONS, problems=PROBLEMS, watcher=lambda event: None):
    run = FleetRun(problems, executor, database, options, watcher)
    return run, list(run.results())


def answers(database):
    return {record.problem: record for record in database.records("results")}


def test_every_problem_is_tuned_once_and_told(database):
    told = []
    run, results = tuned(ThreadExecutor("a", "b", "c"), database, watcher=told.append)
    assert {result.problem: result.record for result in results} == answers(database)
    assert sorted(answers(database)) == sorted(PROBLEMS)
    assert len(list(database.records("trials"))) == 5 * len(PROBLEMS)
    assert database.search(PROBLEMS[0], simulated_search.TARGET).ended == "converged"
    assert run.twice == run.refused == run.before == 0
    for kind in (Began, Ended):
        assert sorted(event.problem for event in told if isinstance(event, kind)) == sorted(PROBLEMS)
    assert {event.worker for event in told} == {"a", "b", "c"}
    assert any(isinstance(event, Progress) and event.phase == "done" for event in told)


def test_answers_do_not_depend_on_the_number_of_workers(database, tmp_path, monkeypatch):
    monkeypatch.setenv(simulated_search.SETTINGS, json.dumps({"seconds": dict.fromkeys(PROBLEMS, 0.0), "trials": 5}))
    tuned(ThreadExecutor("a"), database)
    other = open_database(tmp_path / "other.db")
    tuned(ThreadExecutor(*"bcdefg"), other)

    def bare(found):
        return {problem: replace(record, date="") for problem, record in answers(found).items()}

    assert bare(database) == bare(other)


def lying(change, *kinds):
    """Worker ``a`` changes what it sends."""

    def behave(place, payload, tell):
        reply = simulated(place.device, payload, tell)
        return change(reply) if place.name == "a" and read_task(payload).kind in kinds else reply

    return behave


def faster(reply):
    return re.sub(rb"(time_us[^0-9]+)[0-9.]+", rb"\g<1>0.001", reply)


def of_another_problem(reply):
    made = read_reply(reply)
    return encode(replace(made, parcels=(replace(made.parcels[0], problem=PROBLEMS[0] + ";bias=0"),)))


@pytest.mark.parametrize(
    "change", [faster, of_another_problem, lambda reply: reply[:-9], lambda reply: b'{"parcels":[]}']
)
def test_what_is_not_sealed_is_refused_and_tried_elsewhere(change, database, caplog):
    executor = ThreadExecutor("a", "b", behaviour=lying(change, TUNE))
    run, results = tuned(executor, database, problems=PROBLEMS[:3])
    assert {type(result) for result in results} == {Tuned}
    assert all(record.time_us >= 10.0 for record in database.records("trials"))
    assert "a" in {name for name, _ in executor.begun}
    assert "it is tried again" in caplog.text


def test_a_problem_that_no_worker_answers_is_given_up(database):
    executor = ThreadExecutor("a", behaviour=lying(faster, TUNE, COLLECT))
    run, (result,) = tuned(executor, database, problems=PROBLEMS[:1])
    assert isinstance(result, NotTuned)
    assert "its seal does not fit" in result.reason
    assert "5 attempts" in result.reason
    assert len([name for name, task in executor.begun if "collect" not in task]) == 5
    assert answers(database) == {}


def test_what_was_damaged_on_its_way_is_asked_for_again(database):
    _, (result,) = tuned(ThreadExecutor("a", behaviour=lying(faster, TUNE)), database, problems=PROBLEMS[:1])
    assert isinstance(result, Tuned)
    assert answers(database) == {PROBLEMS[0]: result.record}


def test_a_lost_worker_costs_nothing_that_it_had_found(database):
    """It is lost after its parcel is kept, before its reply: another worker of the machine hands it in."""
    found = {}

    def behave(place, payload, tell):
        reply = simulated(place.device, payload, tell)
        if place.name == "a" and read_task(payload).kind == TUNE:
            (parcel,) = read_reply(reply).parcels
            found[parcel.problem] = parcel
            raise RuntimeError("killed")
        time.sleep(0.1)
        return reply

    run, results = tuned(ThreadExecutor("a", "b", behaviour=behave), database, problems=PROBLEMS[:3])
    assert sorted(result.problem for result in results) == sorted(PROBLEMS[:3])
    assert len(found) == run.twice == 1
    held = {(record.problem, record.config) for record in database.records("trials")}
    assert len(held) == 15
    assert {result.problem: result.record for result in results} == answers(database)
    assert Outbox(run.run).waiting() == ()


def test_a_worker_that_hangs_is_ended(database, monkeypatch):
    monkeypatch.setattr(session, "LATE_S", -1.8)  # of the 2 s that a search of one second may take

    hanging = threading.Event()

    def behave(place, payload, tell):
        if place.name == "a":
            hanging.wait(60)
        return simulated(place.device, payload, tell)

    executor = ThreadExecutor("a", "b", behaviour=behave)
    began = time.monotonic()
    _, results = tuned(executor, database, problems=PROBLEMS[:3])
    assert time.monotonic() - began < 30  # a busy machine's
    hanging.set()
    assert {type(result) for result in results} == {Tuned}
    assert executor.dropped == ["a"]


def test_a_lost_client_goes_on_and_changes_no_answer(database, tmp_path):
    run = FleetRun(PROBLEMS, ThreadExecutor("a", "b"), database, OPTIONS)
    results = run.results()
    first = [next(results) for _ in range(3)]
    with pytest.raises(FleetError, match="another process tunes the same list"):
        next(FleetRun(PROBLEMS, ThreadExecutor("c"), database, OPTIONS).results())
    results.close()
    time.sleep(0.1)  # the workers end what they had begun, and nobody takes it
    again, rest = tuned(ThreadExecutor("a", "b"), database)
    told = [result.problem for result in [*first, *rest]]
    # Answers that came together are kept together: the client may be lost between them, when some are not told yet.
    assert len(told) == len(set(told))
    assert again.before >= 3 + len(set(PROBLEMS) - set(told))
    kept = answers(database)
    assert set(told) <= set(kept) == set(PROBLEMS)
    assert {result.problem: result.record for result in [*first, *rest]} == {problem: kept[problem] for problem in told}
    anew, results = tuned(ThreadExecutor("a"), database, problems=PROBLEMS)
    assert anew.before == 0
    assert len(results) == len(PROBLEMS)


def test_a_second_machine_measures_a_sample(database, caplog):
    asked = []

    def behave(place, payload, tell):
        task = read_task(payload)
        if task.kind != CHECK:
            return simulated(place.device, payload, tell)
        asked.append((task.problem, place.host, len(task.lines)))
        return encode(Reply(checked=Checked(place.host, 30.0, 20.0, False, "simulated tile=1")))

    executor = ThreadExecutor("a", "b", behaviour=behave, hosts={"b": "there"})
    found = {}
    run, results = tuned(executor, database, replace(OPTIONS, check=1.0))
    for result in results:
        if isinstance(result, Tuned):
            found[result.problem] = executor_host(result.worker)
    assert len(asked) == len(PROBLEMS) == run.checked == sum(isinstance(result, Confirmed) for result in results)
    assert all(host != found[problem] and lines == 1 for problem, host, lines in asked)
    assert run.agreed == 0
    assert "it takes 30.0 us on" in caplog.text


def executor_host(worker):
    return {"a": "here", "b": "there"}[worker]


def test_no_worker_is_an_error_and_not_a_wait(database):
    with pytest.raises(FleetError, match="no worker that can be used came within 0 s"):
        tuned(ThreadExecutor(), database, replace(OPTIONS, wait_s=0.1))


def test_jobs_that_no_worker_may_run_fail(database):
    executor = ThreadExecutor("a")
    made = spread.Spread(executor, wait_s=0.1)
    made.add(spread.Job("elsewhere", lambda place: b"", "sm_80", 1.0))
    ((outcome,),) = made.run()
    assert outcome.reason == "no worker of target sm_80 has been there for 0 s"
