"""A list that is tuned: what a terminal, a pipe and the last lines show; the budget by gain; Ctrl-C and resuming."""

import io
import os
import pty
import re
import select
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tilesmith import ConvSignature, GemmSignature
from tilesmith.cli import terminal
from tilesmith.cli.main import run
from tilesmith.cli.verbs import tune as verb
from tilesmith.db.records import Record
from tilesmith.errors import InterruptedSearchError, LaunchError
from tilesmith.problems.driver import calls_of, calls_text
from tilesmith.ready import telling
from tilesmith.ready.model_records import ModelResult
from tilesmith.ready.watch import Watch, tasks_of
from tilesmith.ready.watch_display import watching
from tilesmith.ready.watch_lines import state_line, summary_table, summary_words
from tilesmith.tune import session
from tilesmith.tune.progress import ANSWERED, FAILED, SEARCH, Began, Compared, Ended, Progress

CONTROL = re.compile(r"[^\n\x20-\x7e]")
CONV = ConvSignature((8, 56, 56, 256), (512, 3, 3, 256), stride=2, padding=1, shared_layout="NHWC", mode="wrw")
GEMM = GemmSignature(64, 64, 64)
TASKS = tasks_of([(CONV, 12), (GEMM, 1), (CONV, 3)])
LIST = "gemm -m 8 -n 8 -k 8  # 12 calls\ngemm -m 8 -n 8 -k 16  # 1 call\ngemm -m 8 -n 8 -k 24\n"


def events(task, us=50.0, worker=""):
    """Those of a problem that gets twice as fast."""
    yield Began(task.key, 15.0, worker=worker)
    yield Compared(task.key, "pytorch", 1.2 * us, worker)
    yield Progress(task.key, SEARCH, 37, 2, 1.0, 15.0, "cuda_sm90_halo_wrw a=1", us, 2 * us, 20, 37, worker)
    yield Ended(task.key, ANSWERED, "cuda_sm90_halo_wrw", "a=1", 2 * us, us, seconds=3.0, worker=worker)


# --- the state --------------------------------------------------------------------------------------------------------


def test_calls_of_a_list_are_read_as_they_are_written():
    for count in (1, 2, 123):
        assert calls_of(f"gemm -m 8  # {calls_text(count)}") == count
    assert [calls_of(line) for line in ("gemm -m 8", "gemm # 3 calls of old", "gemm # 0 calls")] == [1, 1, 1]
    assert [task.calls for task in TASKS] == [15, 1]


def test_time_left_follows_what_problems_took_and_how_many_are_at_work():
    watch = Watch(TASKS, each_s=15.0)
    assert watch.left_s == 30.0
    for event in events(TASKS[1]):
        watch(event)
    assert watch.left_s == 3.0  # as long as the one that is done
    watch(Began(CONV.canonical.key(), 15.0, worker="b"))
    assert 2.0 < watch.left_s <= 3.0
    assert "1 left" not in state_line(watch)
    assert Watch(TASKS, total_s=40.0).left_s == pytest.approx(40.0, abs=1.0)
    assert Watch(TASKS, total_s=float("inf")).left_s is None


def test_events_of_many_workers_are_folded():
    tasks = tasks_of((GemmSignature(8, 8, k), k) for k in range(1, 9))
    watch = Watch(tasks, each_s=15.0)

    def work(task):
        for event in events(task, worker=task.key):
            watch(event)

    threads = [threading.Thread(target=work, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(watch.ended), watch.now) == (8, [])
    assert watch.sums_us == (100.0 * 36, 50.0 * 36)
    watch(Ended(tasks[0].key, FAILED, reason="lost"))
    assert watch.rows[tasks[0].key].answered  # a later failure does not take an answer away


# --- what is shown ----------------------------------------------------------------------------------------------------


def told(watch, width=80):
    rows = list(watch.rows.values())
    return [state_line(watch, width), *summary_table(rows, width).splitlines(), *summary_words(watch, rows)]


def test_every_line_fits_and_has_the_times():
    watch = Watch(TASKS, each_s=15.0)
    lines = told(watch)
    for task in TASKS:
        for event in events(task):
            watch(event)
            lines += told(watch)
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if CONTROL.search(line)]
    assert any(line.endswith(": 37 tried, 100 -> 50.0 us, pytorch 60.0, 0:03 left") for line in lines)
    last = told(watch, 200)
    assert last[1] == "microseconds of one call; every problem: fp32"
    assert last[2].split() == ["#", "problem", "calls", "untuned", "tuned", "pytorch", "gain", "won"]
    row = ["15", "100", "50", "60", "2.00x", "cuda_sm90_halo_wrw"]
    assert last[3].split()[-6:] == row
    assert "2 problems tuned in 0:00: 2.000x over untuned (geomean; 2 by over 2 %)" in last
    assert "all calls together: 1.6 ms untuned, 0.8 ms tuned, 2.000x" in last
    assert "1.200x over pytorch (geomean of 2); pytorch is faster on none" in last


def test_what_has_no_answer_and_what_a_library_wins_is_said():
    watch = Watch(TASKS, each_s=15.0)
    for event in events(TASKS[0]):
        watch(event)
    watch(Compared(TASKS[0].key, "pytorch", 25.0))
    watch(Ended(TASKS[1].key, FAILED, reason="no memory"))
    lines = told(watch)
    assert [line.split()[-1] for line in lines[3:5]] == ["pytorch", "failed"]
    assert lines[-2:] == ["0.500x over pytorch (geomean of 1); pytorch is faster on 1", "1 failed"]


def screen(monkeypatch, term, no_color=""):
    """What a terminal gets from a display, and what of stdout meanwhile."""
    main, side = pty.openpty()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", no_color)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    watch = Watch(TASKS, each_s=15.0)
    with open(side, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with watching(watch, every_s=0.05) as watcher:
            for event in events(TASKS[0]):
                watcher(event)
                time.sleep(0.06)
            print("data")
        with terminal.progress(2, "bench") as step:
            step("one")
            print("data")
        stream.flush()
        text = b""
        while select.select([main], [], [], 0)[0]:
            text += os.read(main, 1 << 16)
    os.close(main)
    return text.decode().replace("\r\n", "\n"), out.getvalue()


def test_a_terminal_is_drawn_on_and_stdout_goes_where_it_leads(monkeypatch):
    text, out = screen(monkeypatch, "xterm")
    assert "\x1b[" in text
    assert "37 tried, 20 left, 2 failed, 100 -> 50.0 us (2.00x)" in text
    assert "1 of 2 done, 2.00x so far" in text
    assert out == "data\ndata\n"
    assert "data" not in text


@pytest.mark.parametrize(("term", "no_color"), [("dumb", ""), ("xterm", "1")])
def test_without_a_cursor_or_colours_there_are_plain_lines(term, no_color, monkeypatch):
    text, out = screen(monkeypatch, term, no_color)
    assert not CONTROL.search(text)
    assert "37 tried, 100 -> 50.0 us, pytorch 60.0" in text
    assert max(map(len, text.splitlines())) <= 80
    assert out == "data\ndata\n"


# --- the verb ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def listing(tmp_path):
    path = tmp_path / "problems.txt"
    path.write_text(LIST)
    return str(path)


@pytest.fixture
def tuned(monkeypatch):
    """Each search ends at once: the second has no answer, and with ``stop`` Ctrl-C ends the third."""
    asked = SimpleNamespace(searches=[], stop=False)

    def tune(signature, target, *, progress, strategy, max_seconds, started, **options):
        asked.searches.append((signature.k, strategy, max_seconds))
        if signature.k == 16:
            raise LaunchError("too large")
        if signature.k == 24 and asked.stop:
            raise InterruptedSearchError("stopped")
        record = Record("problem", target.name, "c_dense", "a=1", time_us=2.0)
        untuned = Record("problem", target.name, "c_dense", "a=2", time_us=3.0)
        return SimpleNamespace(
            record=record, default=untuned, disturbed=0, trials=9, new_trials=9, failed=0, seconds=0.5,
            ended="converged", stages={},
        )  # fmt: skip

    monkeypatch.setattr(session, "tune", tune)
    monkeypatch.setattr(telling, "time_own_operator", lambda *place: SimpleNamespace(median_us=4.0))
    return asked


def test_a_list_ends_with_its_table(listing, tuned, capsys):
    assert run(["tune", listing]) == 1  # one has no answer
    captured = capsys.readouterr()
    assert tuned.searches == [(k, "model", 15.0) for k in (8, 16, 24)]
    table = captured.out.splitlines()
    assert [line.split()[0] for line in table[1:5]] == ["#", "1", "2", "3"]
    assert table[2].split()[-6:] == ["12", "3", "2", "4", "1.50x", "c_dense"]
    assert table[3].split()[-1] == "failed"
    assert "tilesmith: gemm 8x8x16 fp32: too large" in captured.err
    assert max(map(len, table)) <= 80
    assert run(["tune", listing, "--against", "none", "--json"]) == 1
    assert "pytorch" not in capsys.readouterr().out


def test_ctrl_c_keeps_what_was_found_and_prints_it(listing, tuned, capsys):
    tuned.stop = True
    assert run(["tune", listing]) == 130
    captured = capsys.readouterr()
    assert captured.out.splitlines()[2].split()[-1] == "c_dense"
    assert "1 not tuned" in captured.out
    assert captured.err.splitlines()[-1].endswith("the same command with --resume goes on")


def test_a_second_run_passes_over_what_is_tuned(capsys, monkeypatch):
    words = ["tune", "gemm -m 8 -n 8 -k 8", "--trials", "1", "--against", "none"]
    assert run(words) == 0
    assert "1 problem tuned in " in capsys.readouterr().out
    monkeypatch.setattr(session, "tune", None)
    assert run([*words, "--resume"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 tuned by an earlier run"


def test_a_total_budget_goes_where_calls_times_gain_are_largest(listing, monkeypatch, capsys):
    asked = []

    def tune_problems(calls, place, *, seconds, seed, watcher, library):
        asked.append(({signature.k: count for signature, count in calls.items()}, seconds, library))
        for task in tasks_of(calls.items()):
            for event in events(task):
                watcher(event)
        return ModelResult("here", (), (), 0.0, "interrupted" if seconds == 7 else "converged")

    monkeypatch.setattr(verb, "tune_problems", tune_problems)
    assert run(["tune", listing, "--total-seconds", "40"]) == 0
    assert run(["tune", listing, "--until-no-gain", "--against", "none"]) == 0
    assert run(["tune", listing, "--until-no-gain", "--total-seconds", "7"]) == 130
    calls = {8: 12, 16: 1, 24: 1}
    assert asked == [(calls, 40.0, True), (calls, float("inf"), False), (calls, 7.0, True)]
    assert "all calls together: 1.4 ms untuned, 0.7 ms tuned, 2.000x" in capsys.readouterr().out


@pytest.mark.parametrize("extra", [["--seconds", "5"], ["--trials", "3"], ["--strategy", "random"], ["--resume"]])
def test_what_searches_problems_alike_is_no_part_of_a_total_budget(listing, extra, capsys):
    assert run(["tune", listing, "--total-seconds", "40", *extra]) == 2
    assert f"{extra[0]} is for a list whose problems are searched alike" in capsys.readouterr().err
