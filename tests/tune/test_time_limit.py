"""The seconds of a search are a hard limit, of a fifth more or two seconds, from the start of the process to its end.

What is slow here is slow on every machine: compilers that sleep, kernels that spin, workers that do not answer. Each
would take a search without a deadline far beyond its budget. ``SLACK_S`` is what a busy machine may take on top, and
more where more processes want its cores than it has.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from planted_solver import HANG, RIGHT, SIGNATURE, SLOW, Planted, candidate

from tilesmith.db.opening import open_database
from tilesmith.errors import CompileError, OutOfTimeError
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.build import build_unit
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.compilers import _find, find_compiler
from tilesmith.toolchain.processes import Processes
from tilesmith.tune.session import tune

SLACK_S = 2.0


def allowed_s(seconds):
    crowd = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 1.0
    return max(1.2 * seconds, seconds + 2.0) + SLACK_S * max(1.0, crowd)


@pytest.fixture
def place(tmp_path):
    return {"database": open_database(tmp_path / "t.db"), "cache": ArtifactCache(tmp_path / "cache")}


@pytest.fixture
def slow_compiler(tmp_path, monkeypatch):
    """Makes ``CC`` a script that sleeps before each compilation, and notes the process that sleeps."""

    def make(seconds):
        real = " ".join(find_compiler().command)
        path = tmp_path / "slowcc"
        path.write_text(
            f'#!/bin/sh\ncase "$*" in *" -o "*) sleep {seconds} & echo $! >> {tmp_path}/asleep; wait $!;; esac\n'
            f'exec {real} "$@"\n'
        )
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))
        return tmp_path / "asleep"

    yield make
    _find.cache_clear()


def timed(seconds, call):
    began = time.monotonic()
    try:
        return call()
    except OutOfTimeError as error:
        return error
    finally:
        assert time.monotonic() - began < allowed_s(seconds)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_end(listing):
    """Whether no process of the list is left; what is killed takes a moment to go."""
    pids = listing.read_text().split()
    assert pids
    deadline = time.monotonic() + 10
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


@pytest.mark.needs_linux
def test_a_compiler_that_sleeps_is_ended_with_the_search_and_all_of_its_children(place, slow_compiler):
    asleep = slow_compiler(60)
    found = timed(3.0, lambda: tune(SIGNATURE, host_target(1), among=[candidate(Planted())], max_seconds=3.0, **place))
    assert isinstance(found, OutOfTimeError)
    assert "3.0 s" in str(found)
    assert "--seconds" in str(found)
    assert all_end(asleep)


def test_slow_compilers_cost_configs_and_not_the_promise(place, slow_compiler):
    slow_compiler(0.8)
    solver = Planted(spins=tuple(range(0, 2000, 2)))
    options = {"strategy": "exhaustive", "max_seconds": 5.0}
    found = timed(5.0, lambda: tune(SIGNATURE, host_target(1), among=[candidate(solver)], **options, **place))
    # What was measured is kept, and a config that was still with the compiler has not failed.
    kept = place["database"].trials(SIGNATURE.canonical.key(), host_target(1).name)
    assert [record.reason for record in kept if not record.ok] == []
    if not isinstance(found, OutOfTimeError):
        assert found.record.ok
        assert found.ended == "budget"


def test_slow_kernels_keep_the_promise(place):
    """Half a second a call: a check and three rounds of a race are seconds each."""
    solver = Planted(spins=tuple(range(600_000, 600_020)), default=SLOW)
    options = {"strategy": "exhaustive", "max_seconds": 3.0}
    found = timed(3.0, lambda: tune(SIGNATURE, host_target(1), among=[candidate(solver)], **options, **place))
    assert isinstance(found, OutOfTimeError) or found.record.ok


def test_a_kernel_that_hangs_is_ended_with_the_search(place):
    solver = Planted(kinds=(HANG, RIGHT), default=HANG, spins=(0,))
    options = {"strategy": "exhaustive", "max_seconds": 2.0}
    found = timed(2.0, lambda: tune(SIGNATURE, host_target(1), among=[candidate(solver)], **options, **place))
    assert isinstance(found, OutOfTimeError)
    # It may only have been slow: it is tried again.
    assert place["database"].trials(SIGNATURE.canonical.key(), host_target(1).name) == ()


def test_the_whole_command_keeps_the_promise(tmp_path, slow_compiler):
    slow_compiler(60)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_")}
    environment |= {"TILESMITH_CACHE_DIR": str(tmp_path / "cache"), "TILESMITH_DB_PATH": str(tmp_path / "x.db")}
    command = [sys.executable, "-m", "tilesmith", "tune", "gemm -m 64 -n 64 -k 64", "--threads", "1", "--seconds", "2"]
    done = timed(
        2.0, lambda: subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    )
    assert done.returncode == 1
    assert done.stderr.count("give it more") == 1, done.stderr


def test_a_search_that_is_started_late_has_less(place):
    """What a command has spent before, such as loading the program, is part of its seconds."""
    solver = Planted(spins=tuple(range(0, 2000, 2)), draft_s=0.05)
    options = {"strategy": "exhaustive", "max_seconds": 30.0, "started": time.monotonic() - 25.0}
    found = timed(5.0, lambda: tune(SIGNATURE, host_target(1), among=[candidate(solver)], **options, **place))
    assert isinstance(found, OutOfTimeError) or (found.ended == "budget" and found.seconds > 25.0)


def test_a_compiler_beyond_its_limit_is_ended_with_its_children(tmp_path, slow_compiler):
    asleep = slow_compiler(60)
    draft = Planted().draft(None, Planted().default_config(None, None), host_target(1))
    began = time.monotonic()
    with Processes(), pytest.raises(CompileError, match="did not end within 0.5 s"):
        build_unit(draft.sources, host_target(1), tmp_path / "x.so", None, 0.5)
    assert time.monotonic() - began < 20
    assert all_end(asleep)


@pytest.mark.needs_linux
def test_ctrl_c_ends_compilers(tmp_path, slow_compiler):
    asleep = slow_compiler(60)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_")}
    environment |= {"TILESMITH_CACHE_DIR": str(tmp_path / "cache"), "TILESMITH_DB_PATH": str(tmp_path / "x.db")}
    for verb in (["tune"], ["preload", "--mode", "fast"]):
        asleep.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tilesmith", *verb, "gemm -m 64 -n 64 -k 64"]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while not asleep.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=50)
        assert (process.returncode, time.monotonic() - began < 20) == (130, True)
        assert all_end(asleep)
