"""``-s 1`` and the flags that a driver command would pass over in silence."""

import re
import time
from types import SimpleNamespace

import pytest

from tilesmith.cli import terminal
from tilesmith.cli.main import run
from tilesmith.cli.verbs import driver
from tilesmith.db.records import Record
from tilesmith.errors import InterruptedSearchError, OutOfTimeError
from tilesmith.ready import watch_display
from tilesmith.tune import session
from tilesmith.tune.progress import PLAYOFF, SEARCH, Progress

SMALL = "conv -n 1 -c 8 -H 8 -W 8 -k 8 -y 3 -x 3 -p 1 -q 1"


@pytest.fixture
def searches(monkeypatch):
    """What each search was asked for; it tells its state, and takes a while."""
    asked = []
    record = Record("problem", "target", "c_dense", "mh=1", time_us=3.25)

    def slow(signature, target, *, progress, max_seconds, started, **options):
        asked.append((signature.mode, max_seconds, time.monotonic() - started))
        key = signature.canonical.key()
        progress(Progress(key, SEARCH, 12, 1, 1.0, max_seconds, "c_dense mh=1", 3.25, 6.5, 8))
        time.sleep(0.15)
        progress(Progress(key, PLAYOFF, 34, 0, 1.0, max_seconds, "c_dense mh=1", 3.25))
        time.sleep(0.15)
        return SimpleNamespace(
            record=record, default=None, disturbed=0, trials=34, new_trials=34, failed=1, seconds=0.5,
            ended="converged", stages={},
        )  # fmt: skip

    monkeypatch.setattr(session, "tune", slow)
    monkeypatch.setattr(watch_display, "EVERY_S", 0.05)
    return asked


def test_a_search_has_a_budget_and_tells_its_state_on_a_pipe(searches, capsys):
    assert run([*SMALL.split(), "-F", "3", "-s", "1"]) == 0
    captured = capsys.readouterr()
    assert [(mode, seconds) for mode, seconds, _ in searches] == [("fwd", 60.0), ("bwd", 60.0)]
    lines = [line for line in captured.err.splitlines() if not line.endswith("between two problems")]
    problem = r"\[[12]/2\] (fwd|bwd) 1x8x8x8 k8 3x3 p1 fp32: "
    assert [line for line in lines if not re.match(problem, line) or len(line) > 80] == []
    assert any(re.search(r": 12 tried, 8 left, 6.5 -> 3.25 us, \d:\d\d left$", line) for line in lines)
    assert any(": 34 tried, 3.25 us" in line for line in lines)
    assert sum(bool(re.fullmatch(problem + "3.25 us, c_dense", line)) for line in lines) == 2
    assert "Verifies OK" in captured.out
    assert "tried" not in captured.out


@pytest.mark.parametrize("words", [["--seconds=7.5", "--json"], ["--json", "--seconds", "7.5", "-t", "1"]])
def test_seconds_of_a_search(words, searches, capsys):
    assert run([*SMALL.split(), "-F", "1", "-V", "0", "-s", "1", *words]) == 0
    ((_, seconds, late),) = searches
    assert seconds == 7.5
    assert late >= 0


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_seconds_are_a_number(value, capsys):
    assert run([*SMALL.split(), "-s", "1", "--seconds", value]) == 2
    assert f"--seconds {value!r} is not a number of seconds" in capsys.readouterr().err


def test_a_search_without_an_answer_is_told_and_the_command_runs(capsys, monkeypatch):
    def late(*args, **options):
        raise OutOfTimeError("the 0.1 s of the search were over")

    monkeypatch.setattr(session, "tune", late)
    assert run([*SMALL.split(), "-F", "1", "-s", "1", "--seconds", "0.1"]) == 1
    captured = capsys.readouterr()
    assert "tilesmith: fwd: the 0.1 s of the search were over" in captured.err
    assert "Forward Convolution Verifies OK" in captured.out


def test_ctrl_c_in_a_search_ends_the_command(capsys, monkeypatch):
    def stopped(*args, **options):
        raise InterruptedSearchError("stopped")

    monkeypatch.setattr(session, "tune", stopped)
    assert run([*SMALL.split(), "-F", "0", "-s", "1"]) == 130
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == f"tilesmith: {driver.STOPPED}"
    assert "Verifies" not in captured.out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("-w 1", "--wall (-w) 1 prints nothing without --time (-t) 1"),
        ("-w 2", "--wall (-w) 2 prints nothing without --time (-t) 1"),
        ("-i 100", "--iter (-i) 100 counts for --time (-t) 1 alone"),
        ("-C folder", "--verification_cache (-C) is not used"),
        ("-a bias.bin", "--in_bias (-a) is read by none of the directions fwd"),
        ("-D dy.bin", "--dout_data (-D) is read by none of the directions fwd"),
        ("--seconds 5", "--seconds counts for --search (-s) 1 alone"),
    ],
)
def test_flags_without_an_effect_are_told(flags, told, capsys):
    assert run([*SMALL.split(), "-F", "1", "-V", "0", *flags.split()]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tilesmith: warning: ")
    assert told in line


def test_flags_with_an_effect_are_not(capsys):
    assert run([*SMALL.split(), "-F", "1", "-t", "1", "-w", "1", "-i", "3"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "Wall-clock Time Forward Conv." in captured.out


def test_a_file_for_the_bias_is_none_for_the_residual(tmp_path, monkeypatch, capsys):
    """The third argument of a forward problem is its residual where it has no bias."""
    import numpy as np

    monkeypatch.chdir(tmp_path)
    np.full(8, 7.0, np.float32).tofile("bias.bin")
    words = [*SMALL.split(), "-F", "1", "-a", "bias.bin", "-o", "1"]
    assert run([*words, "--epilogue", "residual"]) == 0
    assert "--in_bias (-a) is read by none" in capsys.readouterr().err
    assert run([*words, "--epilogue", "bias"]) == 0
    assert capsys.readouterr().err == ""


def test_a_search_of_another_verb_shows_one_line():
    shown = []
    steps = terminal.Steps(shown.append, shown.append, 0.02)
    with steps.search("conv (fwd)", 60.0) as listener:
        time.sleep(0.1)
        listener(Progress("problem", SEARCH, 5, 0, 1.0, 60.0))
        time.sleep(0.1)
    assert shown[0] == "conv (fwd): 0:00 of 1:00, preparing"
    assert shown[-2] == "conv (fwd): 0:00 of 1:00, 5 tried"
    assert shown[-1] == ""
    assert driver.SEARCH_S == 60.0
