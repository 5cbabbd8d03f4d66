"""The database keeps what it is told, survives everything that can happen to a file, and never raises."""

import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tilesmith.db import schema
from tilesmith.db.opening import open_database
from tilesmith.db.records import FAILED, Record, Search

P, T = "conv/1/some-problem", "x86_64-v4:2:zen4"


def record(solver="dense", config="mr=8 nv=2", time_us=10.0, **more):
    return Record(P, T, solver, config, time_us=time_us, spread_us=0.1, samples=9, error=0.2, bound=1.0, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "tilesmith.db"


def test_what_is_recorded_is_read_back_by_another_process(path):
    full = record(
        revision=3,
        prepare_us=5.5,
        workspace=4096,
        method="m",
        compiler="gcc 12",
        generator="0.1",
        host="h",
        date="2026-01-02",
    )
    first = open_database(path)
    first.record_trials([full])
    first.put_result(full)
    first.close()
    second = open_database(path)
    assert second.persistent
    assert second.trials(P, T) == (full,)
    assert second.best(P, T) == full
    assert second.problems() == ((P, T),)
    assert second.best(P, "x86_64-v4:1:zen4") is None


def test_ranking_is_by_time_with_failures_last_and_never_chosen(path):
    database = open_database(path)
    database.put_result(record("slow", time_us=30.0))
    database.put_result(record("fast", time_us=10.0))
    database.put_result(record("wrong", time_us=1.0).failed("error 7 above the bound"))
    assert [r.solver for r in database.ranking(P, T)] == ["fast", "slow", "wrong"]
    assert database.ranking(P, T)[-1].status == FAILED
    assert database.best(P, T).solver == "fast"
    assert database.best(P, T, lambda r: r.solver != "fast").solver == "slow"
    database.put_result(record("fast", time_us=40.0))
    assert database.best(P, T).solver == "slow"


def test_trials_are_one_row_a_config_fastest_first(path):
    database = open_database(path)
    database.record_trials([record(config=f"mr={i}", time_us=10.0 - i) for i in range(5)])
    database.record_trials([record(config="mr=0", time_us=1.0)])
    database.record_trials([record(config="mr=9").failed("crashed")])
    assert [r.config for r in database.trials(P, T)] == ["mr=0", "mr=4", "mr=3", "mr=2", "mr=1", "mr=9"]
    assert database.trials(P, T, "other") == ()


def test_searches_are_kept(path):
    search = Search(P, T, "model", 0, 40, 9.5, "converged", "2026-01-01")
    open_database(path).put_search(search)
    assert open_database(path).search(P, T) == search
    assert open_database(path).search("x", T) is None


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to look at" * 50, b"SQLite format 3\0" + b"\xff" * 4000]
)
def test_a_damaged_file_is_moved_aside_and_a_fresh_one_begins(path, content, caplog):
    path.parent.mkdir()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        database = open_database(path)
    assert "damaged" in caplog.text
    database.put_result(record())
    assert database.persistent
    assert open_database(path).best(P, T) == record()
    (aside,) = path.parent.glob("tilesmith.db.damaged-*")
    assert aside.read_bytes() == content


def test_damage_in_the_middle_of_use_costs_the_old_rows_only(path, caplog):
    database = open_database(path)
    database.record_trials([record(config=f"mr={i} " + "x" * 500) for i in range(200)])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with caplog.at_level(logging.WARNING):
        assert open_database(path).trials(P, T) == ()
    assert "damaged" in caplog.text
    fresh = open_database(path)
    fresh.record_trials([record()])
    assert fresh.trials(P, T) == (record(),)


def test_a_truncated_file_is_a_miss(path):
    database = open_database(path)
    database.record_trials([record(config=f"mr={i}") for i in range(500)])
    database.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    again = open_database(path)
    assert isinstance(again.trials(P, T), tuple)
    again.put_result(record())
    assert again.best(P, T) == record()


def test_a_row_that_makes_no_sense_is_left_out(path, caplog):
    database = open_database(path)
    database.put_result(record("good", time_us=9.0))
    database.put_result(record("bad", time_us=1.0))
    raw = sqlite3.connect(path)
    raw.execute("UPDATE results SET time_us = 'fast!' WHERE solver = 'bad'")
    raw.commit()
    assert [r.solver for r in database.ranking(P, T)] == ["good"]
    raw.execute("UPDATE results SET time_us = -1 WHERE solver = 'bad'")
    raw.commit()
    assert database.best(P, T).solver == "good"


def test_a_newer_schema_is_a_miss_with_a_warning_and_left_untouched(path, caplog):
    open_database(path).put_result(record())
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.commit()
    raw.close()
    before = path.read_bytes()
    for readonly in (False, True):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            database = open_database(path, readonly=readonly)
        assert "newer" in caplog.text
        assert database.best(P, T) is None
        database.put_result(record(time_us=5.0))
        assert database.best(P, T).time_us == 5.0
    assert path.read_bytes() == before


def test_a_directory_that_cannot_be_made_means_memory(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        database = open_database(tmp_path / "file" / "x.db")
    assert len(caplog.records) == 1
    assert not database.persistent
    database.put_result(record())
    assert database.best(P, T) == record()


def test_readonly_reads_the_file_and_writes_to_memory(path):
    open_database(path).put_result(record())
    before = path.read_bytes()
    database = open_database(path, readonly=True)
    assert database.best(P, T) == record()
    database.put_result(record("faster", time_us=1.0))
    assert database.best(P, T).solver == "faster"
    assert path.read_bytes() == before


def test_readonly_of_nothing_is_empty_and_makes_no_file(path):
    assert open_database(path, readonly=True).best(P, T) is None
    assert not path.exists()


def test_readonly_damage_is_left_where_it_is(path, caplog):
    path.parent.mkdir()
    path.write_bytes(b"rubbish" * 1000)
    with caplog.at_level(logging.WARNING):
        assert open_database(path, readonly=True).best(P, T) is None
    assert path.read_bytes() == b"rubbish" * 1000
    assert len(caplog.records) == 1


def test_a_failing_write_degrades_to_memory_and_keeps_what_was_read(path, caplog):
    database = open_database(path)
    database.put_result(record("old"))
    database._connection.execute("PRAGMA query_only = 1")  # as a disk that turned read-only
    with caplog.at_level(logging.WARNING):
        database.put_result(record("new", time_us=1.0))
        database.put_result(record("newer", time_us=0.5))
    assert len(caplog.records) == 1
    assert {r.solver for r in database.ranking(P, T)} == {"old", "new", "newer"}
    assert not database.persistent


def test_many_processes_write_at_once(path):
    script = (
        "import sys; from tilesmith.db.opening import open_database; from tilesmith.db.records import Record\n"
        "database = open_database(sys.argv[1])\n"
        "for i in range(25):\n"
        "    database.record_trials([Record('p', 't', sys.argv[2], f'i={i}', time_us=1.0 + i)])\n"
        "    assert len(database.trials('p', 't', sys.argv[2])) == i + 1\n"
        "assert database.persistent\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(path), f"w{n}"]) for n in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert len(open_database(path).trials("p", "t")) == 100


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_was_acknowledged_outlives_a_writer_that_is_killed(path, kind):
    """A writer says what it has recorded, and is killed in the middle of the next; three times on one database."""
    path.parent.mkdir()
    if kind == "folder":
        (path.parent / "tilesmith.db.records").mkdir()
    script = (
        "import sys; from tilesmith.db.opening import open_database; from tilesmith.db.records import Record\n"
        "database = open_database(sys.argv[1])\n"
        "for i in range(10**6):\n"
        "    record = Record('p', 't', sys.argv[2], f'i={i}', time_us=1.0 + i)\n"
        "    database.record_trials([record])\n"
        "    database.put_result(record)\n"
        "    print(i, flush=True)\n"
    )
    for turn in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(path), f"w{turn}"], stdout=subprocess.PIPE, text=True
        ) as writer:
            acknowledged = [int(writer.stdout.readline()) for _ in range(5 + 7 * turn)]
            writer.kill()
            acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
        database = open_database(path)
        held = {record.config for record in database.trials("p", "t", f"w{turn}")}
        assert {f"i={i}" for i in acknowledged} <= held
        (answer,) = [record for record in database.ranking("p", "t") if record.solver == f"w{turn}"]
        assert int(answer.config.removeprefix("i=")) >= acknowledged[-1]
        assert database.check() == ()
        database.close()


def test_a_forked_child_uses_its_own_connection(path):
    database = open_database(path)
    database.put_result(record())
    child = os.fork()
    if child == 0:
        database.put_result(record("child", time_us=1.0))
        os._exit(0 if database.best(P, T).solver == "child" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert database.best(P, T).solver == "child"


def test_migration_lifts_an_old_file_step_by_step(tmp_path):
    steps = (*schema.STEPS, "ALTER TABLE searches ADD COLUMN note TEXT NOT NULL DEFAULT ''")
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    schema.migrate(connection, steps[:1])
    assert schema.version_of(connection) == 1
    connection.execute("INSERT INTO searches VALUES ('p', 't', 's', 0, 1, 1.0, 'budget', 'd')")
    schema.migrate(connection, steps)
    assert schema.version_of(connection) == len(steps)
    assert connection.execute("SELECT note FROM searches").fetchone() == ("",)
    schema.migrate(connection, steps)


def test_a_failed_migration_changes_nothing(tmp_path):
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    with pytest.raises(sqlite3.Error):
        schema.migrate(connection, (*schema.STEPS, "CREATE TABLE extra (x); nonsense"))
    assert schema.version_of(connection) == schema.VERSION
    assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'extra'").fetchone() is None


def test_importing_the_database_is_light():
    code = "import sys, tilesmith.db.layers; assert not {'numpy', 'torch', 'rich'} & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(Path("src").resolve())}
    )
