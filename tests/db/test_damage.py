"""What is damaged is never used: flipped bytes in every column, page and file, and what is done about it."""

import logging
import os
import shutil
import sqlite3
import struct
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tilesmith.db import connect
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record, Search
from tilesmith.db.schema import FIELDS, TABLES
from tilesmith.db.seal import seal_of, values_of

P, T = "conv/1/some-problem", "x86_64-v4:2:zen4"
FULL = Record(
    P, T, "c_dense", "mh=1 mw=8", 3, 12.5, 0.125, 41, 3.5, 4096, 2e-5, 8e-5, "ok", "", "median", "gcc 12", "g", "h",
    "2026-01-02", "tune",
)  # fmt: skip
SEARCH = Search(P, T, "model", 7, 40, 9.5, "converged", "2026-01-02")


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "t.db"
    database = open_database(path)
    database.put_result(FULL)
    database.record_trials([FULL])
    database.put_search(SEARCH)
    database.close()
    return path


def flipped(value):
    """The value with one bit changed, in each byte of text and several of a number."""
    if value is None:
        yield 0.5
    elif isinstance(value, str):
        data = value.encode()
        for place in range(len(data)):
            for bit in range(8):
                yield (data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]).decode("latin-1")
        yield value + "x"
    elif isinstance(value, int):
        yield from (value ^ 1 << bit for bit in range(40))
    else:
        bits = int.from_bytes(struct.pack(">d", value), "big")
        for bit in range(64):
            yield struct.unpack(">d", (bits ^ 1 << bit).to_bytes(8, "big"))[0]
        yield None


@pytest.mark.parametrize("table", TABLES)
def test_every_column_flipped_in_turn_is_never_used(store, table):
    database = open_database(store)
    raw = sqlite3.connect(store, isolation_level=None)
    raw.execute("PRAGMA synchronous = OFF")
    held = SEARCH if table == "searches" else FULL
    count = 0
    for name, value in zip((*FIELDS[table], "seal"), (*values_of(held), seal_of(values_of(held))), strict=True):
        for other in flipped(value):
            raw.execute("BEGIN")
            try:
                raw.execute(f"UPDATE {table} SET {name} = ?", (other,))
            except sqlite3.IntegrityError:  # NOT NULL: SQLite itself refuses
                raw.execute("ROLLBACK")
                continue
            raw.execute("COMMIT")
            found = _read(database, table, *raw.execute(f"SELECT problem, target FROM {table}").fetchone())
            assert found == (), (name, value, other)
            raw.execute(f"UPDATE {table} SET {name} = ?", (value,))
            count += 1
    assert database.ranking(P, T) == (FULL,)
    assert count > 200


def _read(database, table, problem, target):
    if table == "searches":
        return database.search(problem, target) or ()
    return database.ranking(problem, target) if table == "results" else database.trials(problem, target)


def test_bytes_of_the_file_flipped_in_turn_are_never_used_silently(store, tmp_path, caplog):
    """Each answer is the record as it was written or none at all, and the file can be written afterwards."""
    content = store.read_bytes()
    used = [place for place in range(len(content)) if content[place]]
    path = tmp_path / "flipped" / "t.db"
    path.parent.mkdir()
    for place in (*used[:40:3], *used[40::61]):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        database = open_database(path)
        assert database.ranking(P, T) in ((), (FULL,)), place
        assert database.trials(P, T) in ((), (FULL,)), place
        assert database.search(P, T) in (None, SEARCH), place
        database.close()
        for leftover in path.parent.iterdir():
            leftover.unlink()


def test_lengths_of_a_truncated_file_are_misses(store, tmp_path):
    content = store.read_bytes()
    path = tmp_path / "short" / "t.db"
    path.parent.mkdir()
    for length in [0, 1, 15, 16, 99, 100, 101, *range(200, len(content), 1499)]:
        path.write_bytes(content[:length])
        database = open_database(path)
        assert database.ranking(P, T) in ((), (FULL,)), length
        database.put_result(FULL)
        assert database.ranking(P, T) == (FULL,)
        database.close()
        for leftover in path.parent.iterdir():
            leftover.unlink()


def test_what_is_whole_of_a_damaged_file_is_in_the_fresh_one(tmp_path, caplog):
    path = tmp_path / "t.db"
    database = open_database(path)
    records = [Record(f"p{i:03}", T, "s", "c" * 400, time_us=1.0 + i) for i in range(200)]
    database.put_results(records)
    database.close()
    content = bytearray(path.read_bytes())
    page = content.find(b"p100")
    content[page // 4096 * 4096 : page // 4096 * 4096 + 4096] = os.urandom(4096)
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        again = open_database(path)
        kept = list(again.records("results"))
        assert again.persistent
        kept = list(again.records("results"))
    assert "damaged" in caplog.text
    assert "records that are whole" in caplog.text
    assert set(kept) <= set(records)
    assert len(kept) > 150
    assert records[0] in kept
    assert records[-1] in kept
    assert again.check() == ()


def test_check_tells_and_repair_removes(store, caplog):
    raw = sqlite3.connect(store, isolation_level=None)
    raw.execute("UPDATE trials SET time_us = 1.0")
    raw.execute("UPDATE searches SET seed = 8")
    database = open_database(store)
    lines = database.check()
    assert len(lines) == 2
    assert all(str(store) in line and P in line for line in lines)
    assert database.repair() == 2
    assert database.check() == ()
    assert database.ranking(P, T) == (FULL,)


def test_another_programs_database_stays_as_it_is(tmp_path, caplog):
    path = tmp_path / "theirs.db"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE people (name TEXT)")
    raw.commit()
    raw.close()
    before = path.read_bytes()
    for readonly in (False, True):
        with caplog.at_level(logging.WARNING):
            database = open_database(path, readonly=readonly)
        database.put_result(FULL)
        assert database.ranking(P, T) == (FULL,)
    assert "another program" in caplog.text
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["notes.txt", "notes"])
def test_a_file_that_was_never_a_database_stays_as_it_is(name, tmp_path, caplog):
    path = tmp_path / name
    path.write_text("a list of problems, named by mistake\n" * 50)
    with caplog.at_level(logging.WARNING):
        database = open_database(path)
    database.put_result(FULL)
    assert database.ranking(P, T) == (FULL,)
    assert not database.persistent
    assert "stays as it is" in caplog.text
    assert [found.name for found in tmp_path.iterdir()] == [name]


def test_a_file_that_is_replaced_in_use_gets_what_is_written(tmp_path):
    path = tmp_path / "t.db"
    database = open_database(path)
    database.put_result(FULL)
    path.rename(tmp_path / "aside.db")
    open_database(path).close()
    database.record_trials([FULL])
    assert open_database(path).trials(P, T) == (FULL,)


def test_a_busy_file_is_waited_for_and_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_DB_TIMEOUT", "60")
    path = tmp_path / "t.db"
    database = open_database(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.6, lambda: other.execute("COMMIT")).start()
    database.put_result(FULL)
    assert database.persistent
    assert open_database(path).ranking(P, T) == (FULL,)


@pytest.mark.parametrize("kind", ["new", "old"])
def test_a_busy_file_is_waited_for_when_it_is_opened(kind, tmp_path, monkeypatch, caplog):
    """Crowds begin on one cold file: each must bring it to the newest schema, or see that another has."""
    monkeypatch.setenv("TILESMITH_DB_TIMEOUT", "60")
    path = tmp_path / "t.db"
    if kind == "old":
        shutil.copy(STORES / "v1.db", path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.6, lambda: other.execute("COMMIT")).start()
    database = open_database(path)
    database.put_result(FULL)
    assert database.persistent
    assert not caplog.records


# --- stores of the past -----------------------------------------------------------------------------------------------

STORES = Path(__file__).parent / "stores"


@pytest.mark.parametrize("name", sorted(path.name for path in STORES.glob("*.db")))
@pytest.mark.parametrize("readonly", [False, True])
def test_stores_of_every_version_are_readable_for_ever(name, readonly, tmp_path, caplog):
    path = Path(shutil.copy(STORES / name, tmp_path))
    database = open_database(path, readonly=readonly)
    conv, gemm = (database.ranking(problem, target) for problem, target in database.problems())
    assert [(r.solver, r.time_us, r.ok) for r in conv] == [
        ("c_dense", 12.5, True), ("c_reference", 250.0, True), ("c_depthwise", None, False),
    ]  # fmt: skip
    assert [(r.solver, r.config, r.target, r.origin) for r in gemm] == [
        ("gemm_sm90", "bm=128 bn=64", "sm_90a:132:generic", "find")  # its host names no card
    ]
    dense = conv[0]
    assert dense.config == "mh=1 mw=8 nv=1 rows=8 cols=0 unroll=2 kg=1 kout=0 cb=0 cpad=0 pack=1 pf=0"
    assert (dense.revision, dense.spread_us, dense.samples, dense.prepare_us) == (1, 0.125, 41, 3.5)
    assert (dense.workspace, dense.error, dense.bound) == (4096, 2e-5, 8e-5)
    assert (dense.method, dense.compiler, dense.host) == ("wall-time median", "gcc 12.2.0", "a CPU x2, Linux x86_64")
    assert (dense.generator, dense.date) == ("tilesmith 0.1.0 0123456789abcdef", "2026-11-20T12:00:00Z")
    assert conv[2].reason == "14 of 1024 elements wrong"
    assert len(database.trials(dense.problem, dense.target)) == 3
    search = database.search(dense.problem, dense.target)
    assert (search.strategy, search.trials, search.seconds, search.ended) == ("model", 3, 9.5, "converged")
    assert database.check() == ()
    assert not caplog.records


def test_the_lines_of_the_past_are_readable_for_ever():
    from tilesmith.db.exchange import everything, import_file

    database = open_database(None)
    taken = import_file(STORES / "records1.jsonl", database, "newest")
    assert taken.bad == []
    assert taken.newer == 0
    assert list(everything(database)) == list(everything(open_database(STORES / "v2.db", readonly=True)))


def test_the_files_of_the_past_are_readable_for_ever(tmp_path):
    from tilesmith.db.exchange import everything

    shutil.copytree(STORES / "files1.db.records", tmp_path / "files1.db.records")
    database = open_database(tmp_path / "files1.db")
    assert list(everything(database)) == list(everything(open_database(STORES / "v2.db", readonly=True)))
    assert database.check() == ()


def test_a_damaged_type_of_a_column_changes_no_record(tmp_path):
    """In a numeric column the text ``0.10`` would become the number 0.1."""
    path = tmp_path / "t.db"
    record = Record("p", "t:1", "s", "mr=1", time_us=1.0, generator="0.10")
    database = open_database(path)
    database.put_result(record)
    database.close()
    whole = path.read_bytes()
    assert b"generator TEXT" in whole
    path.write_bytes(whole.replace(b"generator TEXT", b"generator UEXT"))
    database = open_database(path)
    database.put_result(replace(record, solver="other"))
    assert database.ranking("p", "t:1") == (replace(record, solver="other"), record)


def test_a_damaged_version_of_the_file_format_does_not_make_it_read_only(store, caplog):
    content = bytearray(store.read_bytes())
    content[18] = 0x41
    store.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        database = open_database(store)
        database.put_result(replace(FULL, solver="another"))
    assert "damaged" in caplog.text
    assert {record.solver for record in open_database(store).ranking(P, T)} == {"c_dense", "another"}


@pytest.mark.parametrize("readonly", [True, False])
def test_a_damaged_name_in_a_file_of_another_version(store, readonly):
    """SQLite's message quotes the name, which is no text; a file of another version is read through a copy."""
    raw = sqlite3.connect(store, isolation_level=None)
    raw.execute("PRAGMA user_version = 1")
    raw.close()
    whole = store.read_bytes()
    at = whole.index(b"CREATE TABLE results")
    for place in (at + 15, at + 5, whole.rindex(b"results", 0, at) + 2):
        store.write_bytes(whole[:place] + b"\x97" + whole[place + 1 :])
        database = open_database(store, readonly=readonly)
        assert database.ranking(P, T) in ((), (FULL,))
        database.put_result(FULL)
        database.close()


SHIFTED = Path(__file__).parents[1] / "fuzz" / "corpus" / "database" / "bytes-inserted-in-the-schema"


@pytest.fixture
def shifted(tmp_path):
    path = tmp_path / "t.db"
    path.write_bytes(SHIFTED.read_bytes())
    return path


@pytest.mark.parametrize("readonly", [True, False])
def test_a_schema_that_sqlite_finds_no_memory_for_is_damaged(shifted, caplog, readonly):
    path = shifted
    database = open_database(path, readonly=readonly)
    assert database.ranking(P, T) == ()
    database.put_result(FULL)
    database.close()
    assert "damaged" in caplog.text or "malformed" in caplog.text  # SQLite 3.40 finds no memory, others may say more
    assert path.read_bytes() == SHIFTED.read_bytes() if readonly else open_database(path).ranking(P, T) == (FULL,)


def test_memory_that_is_missing_is_no_damage(monkeypatch):
    with pytest.raises(sqlite3.DatabaseError, match="a damaged description"), connect._telling_damage():
        raise MemoryError
    monkeypatch.setattr(connect, "_PLENTY", 1 << 62)
    with pytest.raises(MemoryError), connect._telling_damage():
        raise MemoryError


def test_a_damaged_text_of_the_index_loses_no_record(store):
    """SQLite compiles the expressions of an index when it writes a row: until then the file looks whole."""
    whole, late = store.read_bytes(), replace(FULL, solver="late")
    begin = whole.index(b"CREATE INDEX neighbours")
    for number, at in enumerate(range(begin, whole.index(b"AS INTEGER)", begin), 5)):
        store.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << number % 8]) + whole[at + 1 :])
        database = open_database(store)
        database.put_result(late)
        assert set(database.ranking(P, T)) == {FULL, late}, at
        assert database.trials(P, T) == (FULL,), at
        database.close()
