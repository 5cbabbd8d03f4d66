"""Jobs survive their terminal, say how they ended, and are stopped as by Ctrl-C."""

import sys
import time

import pytest

from tilesmith.errors import ArgumentError
from tilesmith.lab import jobs

PATIENT = """
import time
try:
    print("on", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("kept")
    raise SystemExit(130)
"""


def until(job, state):
    end = time.monotonic() + 20
    while jobs.job_of(job.number).state != state:
        assert time.monotonic() < end
        time.sleep(0.02)
    return jobs.job_of(job.number)


def program(text):
    return [sys.executable, "-c", text]


def test_a_job_ends_with_its_status_and_its_output(place):
    first = jobs.begin_job(["run", "MNK=8"], program("print('hello'); raise SystemExit(3)"))
    second = jobs.begin_job(["tune"], program("print('more')"))
    assert (first.number, second.number) == (1, 2)
    assert until(first, jobs.ENDED).status == 3
    assert until(second, jobs.ENDED).status == 0
    assert jobs.log_of(first) == "hello\n"
    assert [(job.number, job.words) for job in jobs.jobs()] == [(1, ("run", "MNK=8")), (2, ("tune",))]


def test_a_job_is_interrupted_and_ends_in_its_own_way(place):
    job = jobs.begin_job([], program(PATIENT))
    while "on" not in jobs.log_of(job):
        time.sleep(0.02)
    assert (jobs.stop_job(job).state, jobs.job_of(1).status) == (jobs.ENDED, 130)
    assert "kept" in jobs.log_of(job)


def test_a_job_that_does_not_listen_is_killed(place):
    job = jobs.begin_job([], program(
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    ))  # fmt: skip
    while "on" not in jobs.log_of(job):
        time.sleep(0.02)
    assert jobs.stop_job(job, 0.2).state == jobs.DIED


def test_a_job_that_is_not_there(place):
    with pytest.raises(ArgumentError, match="no job 7; known: none"):
        jobs.job_of(7)
