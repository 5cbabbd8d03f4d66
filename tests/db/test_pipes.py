"""A pipe, a device or a folder among the files of a database is named as what it is: nothing waits for it."""

import logging
import os
import time

import pytest

from tilesmith.cli.main import run
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.db.state import state_of

P, T = "conv/1/some-problem", "x86_64-v4:2:zen4"
RECORD = Record(P, T, "dense", "mr=8", time_us=10.0)
SLACK_S = 20.0  # of a busy machine; without care it is for ever
KINDS = ("pipe", "device", "folder", "link to a pipe")


def lay(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(f"{path}.pipe")
        path.symlink_to(f"{path}.pipe")


@pytest.fixture(autouse=True)
def no_call_blocks():
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < SLACK_S


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_database_that_is_no_file_counts_as_empty(kind, readonly, tmp_path, caplog):
    path = tmp_path / "t.db"
    lay(kind, path)
    with caplog.at_level(logging.WARNING):
        database = open_database(path, readonly=readonly)
        assert database.ranking(P, T) == ()
        database.put_result(RECORD)
        assert database.ranking(P, T) == (RECORD,)
    (line,) = caplog.messages
    assert "not a file" in line
    assert not database.persistent
    assert state_of(str(path)) is None
    assert len(database.check()) == 1


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("readonly", [True, False])
def test_a_pipe_beside_a_database_is_not_waited_for(suffix, late, readonly, tmp_path, caplog):
    path = tmp_path / "t.db"
    open_database(path).put_result(RECORD)
    database = open_database(path, readonly=readonly) if late else None
    os.mkfifo(f"{path}{suffix}")
    database = database or open_database(path, readonly=readonly)
    assert database.ranking(P, T) in ((), (RECORD,))
    database.put_result(RECORD)
    assert database.ranking(P, T) == (RECORD,)
    assert any(f"t.db{suffix} is a pipe, not a file" in line for line in caplog.messages)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_is_no_file_is_a_miss_with_a_warning(kind, tmp_path, caplog):
    (tmp_path / "t.db.records").mkdir()
    database = open_database(tmp_path / "t.db")
    database.put_result(RECORD)
    (file,) = (tmp_path / "t.db.records" / "results").rglob("*.json")
    file.unlink()
    lay(kind, file)
    assert database.ranking(P, T) == ()
    if kind != "folder":
        assert "not a file" in caplog.text
        assert len(database.check()) == 1
        assert database.repair() == 1
        database.put_result(RECORD)
        assert database.ranking(P, T) == (RECORD,)


def test_a_record_file_of_any_length_is_not_read(tmp_path, caplog):
    (tmp_path / "t.db.records").mkdir()
    database = open_database(tmp_path / "t.db")
    database.put_result(RECORD)
    (file,) = (tmp_path / "t.db.records" / "results").rglob("*.json")
    with file.open("wb") as opened:
        opened.truncate(1 << 40)  # no blocks are taken
    assert database.ranking(P, T) == ()
    assert "more than 1048576" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["check", "stats", "query", "merge"])
def test_verbs_say_what_is_there(kind, verb, tmp_path, monkeypatch, capsys):
    path = tmp_path / "odd.db"
    lay(kind, path)
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "mine.db"))
    words = ["merge", str(path)] if verb == "merge" else [verb, "--db", str(path)]
    assert run(["db", *words]) in (1, 2)
    said = capsys.readouterr()
    assert "not a file" in said.out + said.err
