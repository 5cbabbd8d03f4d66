"""The Dask executor, against a scheduler and workers in this process."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import simulated_search

from tilesmith.db.opening import open_database
from tilesmith.errors import FleetError
from tilesmith.fleet import spread
from tilesmith.fleet.dask_cluster import DaskExecutor
from tilesmith.fleet.executor import Wanted
from tilesmith.fleet.session import FleetOptions, FleetRun, NotTuned, Tuned
from tilesmith.fleet.survey import Survey
from tilesmith.fleet.tasks import TUNE, read_task
from tilesmith.problems.gemm import GemmSignature
from tilesmith.tune.progress import Progress

pytestmark = pytest.mark.needs_dask

PROBLEMS = [GemmSignature(m=8 + index, n=8, k=8).canonical.key() for index in range(10)]
OPTIONS = FleetOptions(seconds=1.0, wait_s=10.0)


@pytest.fixture(scope="module")
def cluster():
    import distributed

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as found:
        yield found


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    settings = {"seconds": dict.fromkeys(PROBLEMS, 0.01), "trials": 4}
    monkeypatch.setenv(simulated_search.SETTINGS, json.dumps(settings))
    monkeypatch.setattr(spread, "POLL_S", 0.05)


def opened(cluster, run=simulated_search.run, look=simulated_search.look):
    return DaskExecutor(Wanted(cluster.scheduler_address, run, "cuda", look=look))


def crash(device, payload, tell):
    """Raises on one worker for everything, as a broken machine does."""
    if read_task(payload).kind == TUNE and device.endswith("-0"):
        raise RuntimeError("this machine is broken")
    return simulated_search.run(device, payload, tell)


def other_version(device, threads):
    return msgspec.json.encode(Survey("there", "cuda", simulated_search.TARGET, "another"))


def tuned(executor, tmp_path, told=None):
    with_events = told.append if told is not None else lambda event: None
    try:
        run = FleetRun(PROBLEMS, executor, open_database(tmp_path / "client.db"), OPTIONS, with_events)
        return list(run.results())
    finally:
        executor.close()


def test_a_list_is_tuned_by_both_workers(cluster, tmp_path):
    told = []
    results = tuned(opened(cluster), tmp_path, told)
    assert sorted(result.problem for result in results) == sorted(PROBLEMS)
    assert {type(result) for result in results} == {Tuned}
    assert len({result.worker for result in results}) == 2
    assert any(isinstance(event, Progress) for event in told)


def test_what_fails_on_one_worker_is_tuned_on_the_other(cluster, tmp_path, caplog):
    results = tuned(opened(cluster, crash), tmp_path)
    assert {type(result) for result in results} == {Tuned}
    assert len({result.worker for result in results}) == 1
    assert not any(isinstance(result, NotTuned) for result in results)
    assert "RuntimeError: this machine is broken" in caplog.text


def test_a_worker_with_another_version_is_not_used(cluster, caplog):
    executor = opened(cluster, look=other_version)
    try:
        ends = time.monotonic() + 10
        while "another version" not in caplog.text and time.monotonic() < ends:
            assert executor.places() == ()
            time.sleep(0.02)
        assert "it has another version of Tilesmith" in caplog.text
    finally:
        executor.close()


def test_a_scheduler_that_is_not_there_is_told_in_time():
    began = time.monotonic()
    with pytest.raises(FleetError, match="no scheduler answers at tcp://127.0.0.1:1 within 0 s"):
        DaskExecutor(Wanted("tcp://127.0.0.1:1", simulated_search.run, connect_s=0.3))
    assert time.monotonic() - began < 8
