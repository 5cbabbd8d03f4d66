"""After ``forget`` a call reads what lies at its databases' paths then, whatever has happened to the files."""

import os
from dataclasses import replace

import pytest

from tilesmith import forget, get_launchable
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch import locations
from tilesmith.dispatch.locations import open_databases
from tilesmith.problems.conv import ConvSignature
from tilesmith.targets.detect import host_target

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
TARGET = host_target(1)


@pytest.fixture
def layers(tmp_path, monkeypatch):
    team, user = tmp_path / "team.db", tmp_path / "user.db"
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{team}{os.pathsep}{user}")
    return team, user


@pytest.fixture
def record():
    """An answer that a call can use."""
    found = get_launchable(SMALL, target=TARGET, mode="fast")
    revision = int(found.plan.provenance.partition("/")[2].split()[0])
    return Record(SMALL.canonical.key(), TARGET.name, found.solver, found.config, revision=revision, time_us=5.0)


def ask(mode="fast"):
    forget()
    return get_launchable(SMALL, target=TARGET, mode=mode).choice


def made(path, record):
    database = open_database(path)
    database.put_result(record)
    database.close()


@pytest.mark.parametrize("mode", ["fast", "hybrid", "strict"])
@pytest.mark.parametrize("which", [0, 1], ids=["team", "user"])
def test_forget_sees_a_database_that_was_deleted_and_made_anew(layers, record, which, mode):
    path = layers[which]
    made(path, record)
    assert ask(mode).time_us == 5.0
    path.unlink()
    made(path, replace(record, time_us=7.0))
    assert ask(mode).time_us == 7.0
    other = path.with_name("other.db")
    made(other, replace(record, time_us=9.0))
    os.replace(other, path)
    assert ask(mode).time_us == 9.0
    made(path, replace(record, time_us=3.0))  # in place
    assert ask(mode).time_us == 3.0


@pytest.mark.parametrize("which", [0, 1], ids=["team", "user"])
def test_forget_sees_a_database_that_is_gone_and_one_that_has_come(layers, record, which):
    path = layers[which]
    assert ask().basis == "prediction"
    made(path, record)
    assert ask().time_us == 5.0
    path.unlink()
    assert ask().basis == "prediction"
    made(path, replace(record, time_us=7.0))
    assert ask().time_us == 7.0


def test_forget_sees_a_copy_that_was_taken_of_a_file_which_has_changed(layers, record, monkeypatch):
    """A user layer that cannot be written is read from a copy."""
    _, user = layers
    made(user, record)
    other = user.with_name("other.db")
    made(other, replace(record, time_us=7.0))
    locations._opened.clear()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert ask().time_us == 5.0
    assert not open_databases().writable.persistent
    os.replace(other, user)
    assert ask().time_us == 7.0


def test_forget_keeps_databases_whose_files_are_the_same(layers, record):
    """With what this process keeps in memory, where a file cannot be written."""
    made(layers[1], record)
    ask()
    before = open_databases().databases
    forget()
    assert open_databases().databases == before
