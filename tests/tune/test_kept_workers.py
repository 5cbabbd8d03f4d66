"""The measuring process of a processor is kept for the next search: how long, for whom, and what ends it."""

import os
import time

import pytest

import tilesmith
from fresh_home import cache_dir, home  # noqa: F401
from tilesmith import GemmSignature
from tilesmith.tune import process
from tilesmith.tune.messages import Ready, Setup
from tilesmith.tune.process import WorkerDiedError, WorkerProcess, Workers, workers_of_process

CPU = -1


@pytest.fixture
def started(monkeypatch):
    """The processes that are started."""
    found = []

    class Counted(WorkerProcess):
        def __init__(self, *given):
            super().__init__(*given)
            found.append(self)

    monkeypatch.setattr(process, "WorkerProcess", Counted)
    process._workers_of.cache_clear()
    yield found
    workers_of_process().close()
    process._workers_of.cache_clear()


def ready(worker, folder):
    worker.send(Setup(GemmSignature(4, 4, 4).key(), 0, str(folder / f"{time.monotonic_ns()}.npy"), CPU, str(folder)))
    return isinstance(worker.receive(60), Ready)


def test_calls_that_measure_share_one(started, home, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    for m in (5, 6, 7):
        assert tilesmith.get_launchable(GemmSignature(m, 8, 8)).choice.basis == "measurement"
    assert len(started) == 1
    # What a process reads of its environment belongs to its answers.
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "other"))
    tilesmith.get_launchable(GemmSignature(9, 8, 8))
    assert [each.alive for each in started] == [False, True]


def test_an_idle_one_ends_by_itself_and_is_not_taken_shortly_before(started, tmp_path):
    with Workers(idle_s=2) as workers:
        first = workers.take(CPU)
        assert ready(first, tmp_path)
        workers.give(CPU, first)
        assert workers.take(CPU) is first
        assert ready(first, tmp_path)
        time.sleep(2.5)  # as long as it is in use it does not end
        assert first.alive
        workers.give(CPU, first)
        time.sleep(1.7)
        second = workers.take(CPU)
        assert second is not first
        assert ready(second, tmp_path)
        workers.give(CPU, second)
        deadline = time.monotonic() + 20
        while second.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not second.alive
        with pytest.raises(WorkerDiedError, match="SIGALRM"):
            second.receive(1)


def test_a_forked_child_has_its_own(started):
    mine = workers_of_process()
    child = os.fork()
    if child == 0:
        os._exit(0 if process.workers_of_process() is not mine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert workers_of_process() is mine
