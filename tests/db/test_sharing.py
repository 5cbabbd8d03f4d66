"""Databases of a team: pushed to a shared folder and to an object store, pulled, and read as a layer."""

from __future__ import annotations

import pytest

from tilesmith.cli.main import run
from tilesmith.db import sharing
from tilesmith.db.exchange import NEWEST
from tilesmith.db.layers import open_layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.errors import FileFormatError

URL = "memory://team/kernels.db"


def record(problem, time_us=1.0, date="2026-01-01T00:00:00Z"):
    return Record(problem, "t:1:x", "s", "c=1", time_us=time_us, spread_us=0.1, samples=9, date=date)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    path = tmp_path / "mine.db"
    monkeypatch.setenv("TILESMITH_DB_PATH", str(path))
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    database = open_database(path)
    database.put_results([record("a"), record("b", 2.0)])
    database.close()
    return path


@pytest.fixture
def store():
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.store.clear()
    return system


def problems(path):
    return {each.problem: each.time_us for each in open_database(path, readonly=True).records("results")}


def test_push_to_a_folder_and_pull(mine, tmp_path, monkeypatch, capsys):
    team = tmp_path / "team.db"
    assert run(["db", "push", str(team)]) == 0
    assert "2 added, 0 replaced" in capsys.readouterr().out
    assert problems(team) == {"a": 1.0, "b": 2.0}
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{team}:{tmp_path / 'other.db'}")
    assert run(["db", "pull"]) == 0
    assert problems(tmp_path / "other.db") == {"a": 1.0, "b": 2.0}
    assert run(["db", "push", str(tmp_path / "no" / "team.db")]) == 2
    assert "no folder" in capsys.readouterr().err
    assert run(["db", "push", "https://team.example/kernels.db"]) == 2
    assert "push to the folder or bucket behind it" in capsys.readouterr().err
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "other.db"))
    assert run(["db", "pull"]) == 2


def test_an_object_of_a_store_is_pushed_pulled_and_a_layer(mine, store, tmp_path, monkeypatch):
    assert run(["db", "push", URL]) == 0
    layers = open_layers([URL, tmp_path / "user.db"])
    assert [answer.record.time_us for answer in layers.answers("b", "t:1:x")] == [2.0]
    sharing.push([("results", record("c", 3.0))], URL, NEWEST)
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{URL}:{tmp_path / 'other.db'}")
    assert run(["db", "pull"]) == 0  # not the copy of today, which lacks it
    assert problems(tmp_path / "other.db") == {"a": 1.0, "b": 2.0, "c": 3.0}


def test_two_who_push_at_once_lose_nothing(store, monkeypatch):
    real, others = sharing._put, [record("theirs", 5.0)]

    def put(url, data):
        real(url, data)
        if others:  # another process had read before, and writes after
            real(url, other_file)

    sharing.push([("results", record("old"))], URL, NEWEST)
    sharing.push([("results", others[0])], URL, NEWEST)
    other_file = store.cat_file("/team/kernels.db")
    monkeypatch.setattr(sharing, "_put", lambda url, data: (put(url, data), others.clear()))
    sharing.push([("results", record("mine", 7.0))], URL, NEWEST)
    held = open_database(None)
    held.close()
    found = {each.problem for each in open_layers([URL], readonly=False).databases[0].records("results")}
    assert found == {"old", "theirs", "mine"}


def test_what_is_no_database_is_left_alone(store):
    store.pipe_file("/team/kernels.db", b"something else")
    with pytest.raises(FileFormatError, match="no SQLite file"):
        sharing.push([("results", record("a"))], URL, NEWEST)
    assert store.cat_file("/team/kernels.db") == b"something else"
