"""A database that another process holds delays a call by TILESMITH_DB_TIMEOUT at most, and costs one warning."""

import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from holding import KINDS, held
from tilesmith.cli.main import run
from tilesmith.db import waiting
from tilesmith.db.exchange import import_file
from tilesmith.db.layers import open_layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch import locations, resolve
from tilesmith.dispatch.launchable import forget_launchables, get_launchable
from tilesmith.env import FIND_MODES
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import command_of
from tilesmith.targets.detect import host_target

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
TARGET = host_target(1)
WAIT_S = 0.4
# What a call may take besides, on a busy machine. Without a deadline it was a minute, or for ever.
SLACK_S = 15.0


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The database of the calls, with an answer whose kernel is in the cache."""
    path = tmp_path / "test.db"
    best = get_launchable(SMALL, target=TARGET, mode="fast")
    record = Record(
        SMALL.canonical.key(), TARGET.name, best.solver, best.config, revision=2, time_us=5.0, spread_us=0.1
    )
    database = open_database(path)
    database.put_result(replace(record, revision=int(best.plan.provenance.partition("/")[2].split()[0])))
    database.close()
    as_a_new_process()
    monkeypatch.setenv("TILESMITH_DB_TIMEOUT", str(WAIT_S))
    # A search measures nothing here: what is asked is how long databases are waited for.
    monkeypatch.setattr(resolve, "_measure", lambda *arguments: None)
    return path


def as_a_new_process():
    forget_launchables()
    for layers in (*locations._opened.values(), *(layers for _, layers in locations._read.values())):
        layers.close()
    locations._opened.clear()
    locations._read.clear()


def timed(call):
    begun = time.monotonic()
    found = call()
    took = time.monotonic() - begun
    assert took < WAIT_S + SLACK_S
    return found


def warnings(caplog, path):
    """Of the databases of this test: what an earlier one measures in the background may still warn of its own."""
    mine = [record for record in caplog.records if f"{path.parent}{os.sep}" in record.getMessage()]
    return [record for record in mine if record.name == "tilesmith.db"]


@pytest.mark.parametrize("kind", ["exclusive", "stopped"])
@pytest.mark.parametrize("mode", FIND_MODES)
def test_a_call_of_every_mode_ends_in_time_with_one_warning(mode, kind, path, caplog):
    with held(path, kind), caplog.at_level(logging.WARNING):
        launch = timed(lambda: get_launchable(SMALL, target=TARGET, mode=mode))
        (told,) = warnings(caplog, path)
    assert str(path) in told.getMessage()
    # What the file holds is read all the same.
    assert launch.choice.basis == ("measurement" if mode == "normal" else "database")


@pytest.mark.parametrize("mode", FIND_MODES)
def test_a_database_that_is_open_already_is_waited_for_no_longer(mode, path, caplog):
    other = ConvSignature((1, 8, 8, 8), (8, 3, 3, 8), shared_layout="NHWC")
    get_launchable(SMALL, target=TARGET, mode=mode)
    with held(path, "stopped while it writes"), caplog.at_level(logging.WARNING):
        locations.open_databases().writable.put_result(Record("p", "t", "s", "c", time_us=1.0))
        forget_launchables()
        timed(lambda: get_launchable(SMALL, target=TARGET, mode=mode))
        timed(lambda: get_launchable(other, target=TARGET, mode=mode if mode != "strict" else "fast"))
    assert len(warnings(caplog, path)) == 1


def test_several_held_layers_share_the_deadline_of_a_call(path, tmp_path, monkeypatch, caplog):
    team = [tmp_path / f"team{i}.db" for i in range(4)]
    for each in team:
        open_database(each).close()
    monkeypatch.setenv("TILESMITH_DB_PATH", os.pathsep.join(map(str, (*team, path))))
    monkeypatch.setenv("TILESMITH_DB_TIMEOUT", "2")
    begun = time.monotonic()
    with held(team[0], "exclusive"), held(team[1], "exclusive"), held(team[2], "exclusive"), held(path, "exclusive"):
        begun = time.monotonic()
        get_launchable(SMALL, target=TARGET, mode="fast")
        took = time.monotonic() - begun
    assert 1.9 < took < 7.5
    assert len(warnings(caplog, path)) == 4


def test_explain_ends_in_time(path, capsys):
    with held(path, "exclusive"):
        assert timed(lambda: run(["explain", command_of(SMALL), "--threads", "1"])) == 0
    assert "measured, in user layer" in capsys.readouterr().out


def test_work_on_a_database_waits_longer_but_not_for_ever(path, tmp_path, monkeypatch):
    """`db import` and the like: each operation up to a minute, which is shortened here."""
    lines = tmp_path / "in.jsonl"
    subprocess.run([sys.executable, "-m", "tilesmith", "db", "export", "--out", str(lines)], check=True,
                   env={**os.environ, "TILESMITH_DB_PATH": str(path)}, capture_output=True)  # fmt: skip
    monkeypatch.setattr(waiting, "PATIENT_S", 3 * WAIT_S)
    other = tmp_path / "other.db"
    open_database(other).close()
    with waiting.patiently():
        database = open_database(other)
        begun = time.monotonic()
        with held(other, "exclusive"):
            assert import_file(lines, database, "newest").added == 1
        assert time.monotonic() - begun > 2.5 * WAIT_S
    assert not database.persistent
    with held(other, "exclusive"):
        monkeypatch.setenv("TILESMITH_DB_PATH", str(other))
        assert timed(lambda: run(["db", "import", str(lines)])) == 2


def test_a_held_lock_beside_a_damaged_file_is_no_wait(path, monkeypatch, caplog):
    """Of several processes one sets a damaged file aside; it may be stopped while it does."""
    from filelock import FileLock

    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
    taken, done = threading.Event(), threading.Event()

    def hold():
        with FileLock(f"{path}.lock"):
            taken.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    try:
        launch = timed(lambda: get_launchable(SMALL, target=TARGET, mode="fast"))
    finally:
        done.set()
        holder.join()
    assert launch.choice.basis == "prediction"


def test_a_statement_without_an_end_is_stopped(path, caplog):
    """A view may stand where the table should: a file that reads itself without end."""
    import sqlite3

    raw = sqlite3.connect(path, isolation_level=None)
    columns = [row[1] for row in raw.execute("PRAGMA table_info(results)")]
    raw.execute("DROP TABLE results")
    raw.execute(
        "CREATE VIEW results AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i > 0) "
        f"SELECT {', '.join(f'i AS {name}' for name in columns)} FROM n"
    )
    raw.close()
    for mode in ("fast", "strict"):
        as_a_new_process()
        with waiting.one_call():
            layers = timed(lambda mode=mode: open_layers([path], readonly=mode == "strict"))
            assert timed(lambda layers=layers: layers.answers("p", "t")) == ()


def test_the_deadline_is_a_variable_with_a_rule(monkeypatch):
    from tilesmith import env
    from tilesmith.errors import EnvironmentValueError

    for bad in ("0", "-1", "nan", "inf", "soon", "99999", "1e3"):
        monkeypatch.setenv("TILESMITH_DB_TIMEOUT", bad)
        with pytest.raises(EnvironmentValueError, match="a number of seconds"):
            env.DB_TIMEOUT.get()
    assert set(KINDS) == {"exclusive", "stopped", "stopped while it writes"}
