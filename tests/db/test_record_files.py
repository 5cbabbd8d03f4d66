"""One file a record: where locks fail a trial, from many processes, damaged."""

import errno
import logging
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tilesmith.db import trial
from tilesmith.db.files import FileDatabase, records_folder
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record, Search

P, T = "conv/1/some-problem", "x86_64-v4:2:zen4"
SEARCH = Search(P, T, "model", 7, 40, 9.5, "converged", "2026-01-02")


def record(solver="dense", config="mr=8 nv=2", time_us=10.0, **more):
    return replace(
        Record(P, T, solver, config, time_us=time_us, spread_us=0.1, samples=9, error=0.2, bound=1.0), **more
    )


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that grants a lock twice."""
    monkeypatch.setattr(trial.fcntl, "fcntl", lambda *arguments: 0)


def test_a_sound_folder_passes_both_trials_and_keeps_nothing(tmp_path):
    assert trial.why_not(tmp_path, thorough=False) is None
    assert trial.why_not(tmp_path, thorough=True) is None
    assert list(tmp_path.iterdir()) == []


def test_locks_that_are_granted_twice_are_found(tmp_path, no_locks):
    assert trial.why_not(tmp_path, thorough=False) == "a lock was granted twice"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_locks_that_are_refused_are_found(tmp_path, monkeypatch, code):
    def refuse(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(trial.fcntl, "fcntl", refuse)
    assert os.strerror(code) in trial.why_not(tmp_path, thorough=False)


def test_a_system_without_locks_of_open_files_is_judged_by_the_rest(tmp_path, monkeypatch):
    def unknown(*arguments):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(trial.fcntl, "fcntl", unknown)
    assert trial.why_not(tmp_path, thorough=True) is None


def test_where_the_trial_fails_records_are_files_told_once(tmp_path, no_locks, caplog):
    path = tmp_path / "t.db"
    with caplog.at_level(logging.WARNING):
        database = open_database(path)
        again = open_database(path)
    assert isinstance(database, FileDatabase)
    assert isinstance(again, FileDatabase)
    (line,) = caplog.messages
    assert "a lock was granted twice" in line
    database.put_results([record(), record("fast", time_us=1.0), record("bad").failed("wrong")])
    database.record_trials([record(config=f"mr={i}", time_us=9.0 - i) for i in range(4)])
    database.put_search(SEARCH)
    assert [r.solver for r in again.ranking(P, T)] == ["fast", "dense", "bad"]
    assert again.best(P, T).solver == "fast"
    assert [r.config for r in again.trials(P, T, "dense")] == ["mr=3", "mr=2", "mr=1", "mr=0"]
    assert again.trials(P, T, "other") == ()
    assert again.search(P, T) == SEARCH
    assert again.problems() == ((P, T),)
    assert again.targets_of(P) == (T,)
    assert again.ranking(P, "x86_64-v4:1:zen4") == ()
    assert again.remove("results", [record()]) == 1
    assert [r.solver for r in database.ranking(P, T)] == ["fast", "bad"]
    assert database.persistent
    assert not path.exists()


def test_the_folder_is_used_by_all_once_it_is_there_and_takes_the_file_over(tmp_path, monkeypatch):
    path = tmp_path / "t.db"
    file = open_database(path)
    file.put_result(record())
    file.record_trials([record(), record(config="mr=1")])
    file.close()
    with monkeypatch.context() as patch:
        patch.setattr(trial, "why_not", lambda folder, thorough: "no locks")
        assert isinstance(open_database(path), FileDatabase)
    later = open_database(path)  # here locks work, and yet
    assert isinstance(later, FileDatabase)
    assert later.ranking(P, T) == (record(),)
    assert len(later.trials(P, T)) == 2


def test_readonly_makes_nothing(tmp_path, no_locks):
    database = open_database(tmp_path / "t.db", readonly=True)
    database.put_result(record())
    assert database.ranking(P, T) == (record(),)
    assert list(tmp_path.iterdir()) == []
    open_database(tmp_path / "t.db").put_result(record())
    reader = open_database(tmp_path / "t.db", readonly=True)
    reader.put_result(record("mine", time_us=1.0))
    assert [r.solver for r in reader.ranking(P, T)] == ["mine", "dense"]
    assert [r.solver for r in open_database(tmp_path / "t.db").ranking(P, T)] == ["dense"]


def test_bytes_of_a_record_flipped_in_turn_is_never_used(tmp_path, no_locks, caplog):
    database = open_database(tmp_path / "t.db")
    database.put_result(record())
    (path,) = records_folder(tmp_path / "t.db").glob("results/*/*/*.json")
    content = path.read_bytes()
    for place in (*range(0, len(content), 7), len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        assert database.ranking(P, T) == () or place == len(content) - 1  # the newline at the end means nothing
    for length in range(0, len(content) - 1, 17):
        path.write_bytes(content[:length])
        assert database.ranking(P, T) == ()
    assert "db check" in caplog.text
    assert len(database.check()) == 1
    assert database.repair() == 1
    assert database.check() == ()
    assert not path.exists()


def test_a_record_under_anothers_name_is_refused(tmp_path, no_locks, caplog):
    database = open_database(tmp_path / "t.db")
    database.put_results([record("a"), record("b", time_us=1.0)])
    first, second = sorted(records_folder(tmp_path / "t.db").glob("results/*/*/*.json"))
    first.write_bytes(second.read_bytes())
    assert len(database.ranking(P, T)) == 1
    assert "another record" in caplog.text


def test_a_folder_that_fails_keeps_in_memory(tmp_path, no_locks, caplog, monkeypatch):
    from tilesmith.db import files

    database = open_database(tmp_path / "t.db")
    database.put_result(record("old"))
    caplog.clear()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "publish", full)
    database.put_results([record("new", time_us=1.0), record("newer", time_us=0.5)])
    assert [r.solver for r in database.ranking(P, T)] == ["newer", "new", "old"]
    assert len(caplog.records) == 1
    assert not database.persistent


def test_many_processes_write_at_once(tmp_path):
    (tmp_path / "t.db.records").mkdir()
    script = (
        "import sys; from tilesmith.db.opening import open_database; from tilesmith.db.records import Record\n"
        "database = open_database(sys.argv[1])\n"
        "for i in range(10):\n"
        "    database.record_trials([Record('p', 't', sys.argv[2], f'i={i}', time_us=1.0 + i)])\n"
        "    database.put_result(Record('p', 't', 'same', f'i={i}', time_us=1.0 + i))\n"
        "    assert len(database.trials('p', 't', sys.argv[2])) == i + 1\n"
        "assert database.persistent\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "t.db"), f"w{n}"]) for n in range(3)]
    assert [writer.wait(60) for writer in writers] == [0] * 3
    database = open_database(tmp_path / "t.db")
    assert len(database.trials("p", "t")) == 30
    assert len(database.ranking("p", "t")) == 1
    assert database.check() == ()


def test_what_a_killed_trial_left_goes_with_the_next(tmp_path):
    place = tmp_path / ".tilesmith-trial"
    place.mkdir()
    with subprocess.Popen(["true"]) as gone:
        pass
    node = os.uname().nodename
    (place / f"{node}!{gone.pid}!1!1").touch()
    (place / f"{node}!{os.getpid()}!1!1").touch()  # somebody's who lives
    (place / "elsewhere!1!1!1-journal").touch()
    assert trial.why_not(tmp_path, thorough=False) is None
    assert sorted(path.name for path in place.iterdir()) == sorted(
        ["elsewhere!1!1!1-journal", f"{node}!{os.getpid()}!1!1"]
    )
    os.utime(place / "elsewhere!1!1!1-journal", (0, 0))
    (place / f"{node}!{os.getpid()}!1!1").unlink()
    assert trial.why_not(tmp_path, thorough=True) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_nameless_files_is_tried_with_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_CREAT | os.O_EXCL)
    assert trial.why_not(tmp_path, thorough=False) is None
    assert list(tmp_path.iterdir()) == []
