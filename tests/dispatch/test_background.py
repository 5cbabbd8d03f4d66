"""Mode ``background``: the first calls run untuned, and the measured kernel replaces the untuned one everywhere."""

import logging
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import tilesmith
from tilesmith import ConvSignature, GemmSignature, env, get_launchable
from tilesmith.cli.main import run
from tilesmith.db.records import Record
from tilesmith.dispatch import eager, kept_calls
from tilesmith.dispatch.background import jobs as background
from tilesmith.dispatch.locations import open_databases
from tilesmith.solvers.table import candidates
from tilesmith.targets.detect import host_target
from tilesmith.targets.target import target_from

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
NCHW = ConvSignature((1, 16, 8, 8), (16, 16, 3, 3), padding=1)
LIMIT_S = 60.0


@pytest.fixture
def measured(monkeypatch):
    """The problems that were handed to the measuring process; instead of it, the plain reference wins at once."""
    asked = []

    class Process:
        alive = True

        def ask(self, message, limit_s):
            asked.append(message["key"])
            target = target_from(*message["target"])
            (plain,) = candidates(tilesmith.parse_key(message["key"]), target, ("c_reference",))
            revision, config = plain.solver.revision, str(plain.solver.default_config(plain.geometry, target))
            open_databases().writable.put_result(
                Record(message["key"], target.name, "c_reference", config, revision, time_us=1.0)
            )
            return ""

        def end(self, patience_s):
            self.alive = False

    monkeypatch.setattr(background, "Child", Process)
    monkeypatch.setattr(background, "QUIET_MOST_S", 0.0)
    monkeypatch.setattr(background, "_background", background._Background())
    yield asked
    background._background.end()


def done():
    assert background.wait_until_done(LIMIT_S)


def test_a_launchable_changes_its_kernel_once(measured):
    launch = get_launchable(SMALL, mode="background", threads=1)
    x, w = SMALL.get_sample_args(seed=0)
    untuned, packed = launch(x, w), launch.prepare(w)
    done()
    assert (launch.solver, launch.choice.basis) == ("c_reference", "database")
    assert launch.plan.solver == "c_reference"
    assert get_launchable(SMALL, mode="background", threads=1) is launch
    want = reference(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    for y in (untuned, launch(x, w), packed(x)):
        assert np.allclose(y, want, atol=1e-4)
    assert measured == [SMALL.key()]


def reference(x, w):
    """The convolution with padding 1, in float64, from its definition."""
    x, w = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1))), w.astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwyx,kcyx->nkhw", windows, w)


def test_calls_of_conv_switch_too(measured, monkeypatch):
    x, w = NCHW.get_sample_args(seed=1)
    seen = []
    tables = [kept_calls.by_arrays, kept_calls.by_shapes, kept_calls.by_filter]
    for _ in range(3):  # by the three tables of calls
        y = tilesmith.conv(x, w, padding=1, mode="background", threads=1)
    assert all(tables)
    done()
    assert not any(tables)
    get = eager.get_launchable
    monkeypatch.setattr(eager, "get_launchable", lambda *a, **b: seen.append(get(*a, **b)) or seen[-1])
    again = tilesmith.conv(x, w, padding=1, mode="background", threads=1)
    assert [launch.solver for launch in seen] == ["c_reference"]
    assert np.allclose(again, y, atol=1e-4)


def test_a_call_made_while_the_tables_are_emptied_is_not_kept(monkeypatch):
    """A thread that has looked up the untuned kernel must not keep it after it was replaced."""
    x, w = NCHW.get_sample_args(seed=1)
    make = eager._conv_call

    def slow(*arguments):
        call = make(*arguments)
        kept_calls.forget_calls()
        return call

    monkeypatch.setattr(eager, "_conv_call", slow)
    tilesmith.conv(x, w, padding=1, mode="fast", threads=1)
    assert not any((kept_calls.by_arrays, kept_calls.by_shapes))


def test_a_deterministic_problem_keeps_its_kernel_in_this_process(measured):
    launch = get_launchable(replace(SMALL, deterministic=True), mode="background", threads=1)
    before = launch.solver, launch.config
    done()
    assert (launch.solver, launch.config) == before
    tilesmith.forget()
    again = get_launchable(replace(SMALL, deterministic=True), mode="background", threads=1)
    assert again.solver == "c_reference"


@pytest.mark.parametrize("mode", ["fast", "strict", "hybrid"])
def test_other_modes_measure_nothing_later(measured, mode):
    open_databases().writable.put_result(record_of_reference())
    get_launchable(
        SMALL, mode="fast", threads=1, only="c_reference"
    )  # its kernel is in the cache: strict mode compiles none
    get_launchable(SMALL, mode=mode, threads=1, only="c_reference" if mode == "strict" else None)
    get_launchable(SMALL, mode="background", threads=1)  # an answer at hand
    done()
    assert measured == []


def record_of_reference():
    (plain,) = candidates(SMALL, host_target(1), ("c_reference",))
    config = str(plain.solver.default_config(plain.geometry, host_target(1)))
    return Record(SMALL.key(), host_target(1).name, "c_reference", config, plain.solver.revision, time_us=1.0)


def test_a_failure_leaves_the_untuned_choice_and_is_told_once(measured, monkeypatch, caplog):
    monkeypatch.setattr(background.Child, "ask", lambda self, message, limit_s: "it crashed")
    with caplog.at_level(logging.INFO, "tilesmith.dispatch"):
        launches = [get_launchable(replace(SMALL, dilation=d), mode="background", threads=1) for d in (1, 2)]
        done()
    assert [launch.choice.basis for launch in launches] == ["prediction"] * 2
    told = [entry for entry in caplog.records if "keeps its untuned choice: it crashed" in entry.message]
    assert [entry.levelname for entry in told] == ["WARNING", "INFO"]


def test_the_queue_is_bounded(measured, monkeypatch, caplog):
    monkeypatch.setattr(background, "MOST", 1)
    held = threading.Event()
    ask = background.Child.ask
    monkeypatch.setattr(background.Child, "ask", lambda *a: held.wait(LIMIT_S) and ask(*a))
    for dilation in (1, 2, 1):
        get_launchable(replace(SMALL, dilation=dilation), mode="background", threads=1)
    held.set()
    done()
    assert measured == [SMALL.key()]
    assert [entry.levelname for entry in caplog.records if "wait to be measured" in entry.message] == ["WARNING"]


def test_nothing_is_measured_while_the_stream_is_captured(measured, monkeypatch):
    captured = threading.Event()
    captured.set()
    monkeypatch.setattr("tilesmith.dispatch.launchable.capture_of_thread", lambda: captured.is_set)
    get_launchable(SMALL, mode="background", threads=1)
    time.sleep(0.5)
    assert measured == []
    captured.clear()
    done()
    assert measured == [SMALL.key()]


def test_a_busy_process_is_waited_for(measured, monkeypatch):
    monkeypatch.setattr(background, "QUIET_MOST_S", LIMIT_S)
    quiet = threading.Event()
    monkeypatch.setattr(background, "_was_quiet", quiet.is_set)
    get_launchable(SMALL, mode="background", threads=1)
    time.sleep(0.5)
    assert measured == []
    quiet.set()
    done()
    assert measured == [SMALL.key()]


def test_preloading_and_commands_measure_at_once(measured, monkeypatch, capsys):
    assert tilesmith.CachePopulator(signatures=[SMALL], mode="background", threads=1).mode == "hybrid"
    monkeypatch.setenv("TILESMITH_FIND_MODE", "background")
    assert run(["env", "--json"]) == 0
    assert env.FIND_MODE.get() == "hybrid"
    assert measured == []


# --- processes --------------------------------------------------------------------------------------------------------


def run_program(text: str, limit_s: float = 120.0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=limit_s, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


BEGIN = """
import os, sys, time, tilesmith
from tilesmith.dispatch.background import jobs as background
launch = tilesmith.get_launchable(tilesmith.GemmSignature(24, 40, 32), mode="background", threads=1)
"""


def test_another_process_measures_and_records(home):
    out = run_program(BEGIN + "print(background.wait_until_done(100), launch.choice.basis)")
    assert out == "True database\n"
    assert get_launchable(GemmSignature(24, 40, 32), mode="strict", threads=1).choice.basis == "database"


def test_a_process_that_ends_at_once_leaves_nothing_behind(home):
    text = (
        BEGIN
        + """
while background._background._process is None:
    time.sleep(0.01)
print(background._background._process._process.pid, time.monotonic())
"""
    )
    pid, ended = run_program(text).split()
    assert time.monotonic() - float(ended) < 5
    assert subprocess.run(["kill", "-0", pid], capture_output=True, check=False).returncode != 0


def test_a_fork_has_a_queue_of_its_own(home):
    text = (
        BEGIN
        + """
sys.stdout.flush()
child = os.fork()
if child == 0:
    assert background._background._thread is None
    assert background.wait_until_done(0.1)
    other = tilesmith.get_launchable(tilesmith.GemmSignature(16, 40, 32), mode="background", threads=1)
    ok = background.wait_until_done(60) and other.choice.basis == "database"
    background._end()
    os._exit(0 if ok else 1)
print(os.waitpid(child, 0)[1], background.wait_until_done(60), launch.choice.basis)
"""
    )
    assert run_program(text) == "0 True database\n"
