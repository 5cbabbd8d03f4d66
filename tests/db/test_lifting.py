"""Databases of versions whose targets named no card: every answer and every time is there under the card's name."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tilesmith.db import cards
from tilesmith.db.cards import Processor
from tilesmith.db.connect import _is_sound
from tilesmith.db.exchange import json_lines, merge
from tilesmith.db.files import _place, records_folder
from tilesmith.db.lines import line_of
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record, Search
from tilesmith.db.schema import VERSION, version_of
from tilesmith.db.seal import RECORD_FIELDS, SEARCH_FIELDS, seal_of, values_of

STORES = Path(__file__).parent / "stores"
H200, H100, CPU = "NVIDIA H200, driver 13.0", "NVIDIA H100 80GB HBM3, driver 12.4", "AMD EPYC 9R14 x2, Linux x86_64"
DATE = "2026-11-20T12:00:00Z"
OLD = (
    Record("p", "sm_90a:132", "s", "c=1", time_us=2.0, spread_us=0.1, samples=9, host=H200, date=DATE),
    Record("p", "sm_90a:132", "t", "c=2", time_us=3.0, host=H200, date=DATE),
    Record("q", "sm_90a:132", "s", "c=1", time_us=4.0, host=H100, date=DATE),
    Record("p", "x86_64-v4-bf16:2", "s", "c=1", time_us=5.0, host=CPU, date=DATE),
    Record("r", "sm_90a:132", "s", "", status="failed", reason="wrong", host=H200, date=DATE),
)
NAMED = ("sm_90a:132:h200", "sm_90a:132:h200", "sm_90a:132:h100-80gb-hbm3", "x86_64-v4-bf16:2:zen4", "sm_90a:132:h200")
SEARCHES = (
    Search("p", "sm_90a:132", "model", 0, 9, 1.5, "budget", DATE),
    Search("q", "sm_90a:132", "model", 0, 3, 1.0, "budget", DATE),
)


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr(cards, "processor_of_host", lambda: Processor("AMD EPYC 9R14", "x86_64-v4-bf16", "zen4"))


@pytest.fixture
def old(tmp_path):
    """A database as the version before wrote it."""
    path = Path(shutil.copy(STORES / "v2.db", tmp_path / "old.db"))
    connection = sqlite3.connect(path)
    for table in ("results", "trials", "searches"):
        connection.execute(f"DELETE FROM {table}")
    for table, names, rows in (
        ("results", RECORD_FIELDS, OLD), ("trials", RECORD_FIELDS, OLD), ("searches", SEARCH_FIELDS, SEARCHES),
    ):  # fmt: skip
        put = f"INSERT INTO {table} ({', '.join(names)}, seal) VALUES ({', '.join('?' * (len(names) + 1))})"
        connection.executemany(put, [(*values_of(row), seal_of(values_of(row))) for row in rows])
    connection.commit()
    connection.close()
    return path


def held(database):
    return sorted(database.records("results"), key=str), sorted(database.records("trials"), key=str)


EXPECTED = sorted((replace(record, target=name) for record, name in zip(OLD, NAMED, strict=True)), key=str)


@pytest.mark.parametrize("readonly", [False, True])
def test_every_answer_and_every_time_is_there_under_its_card(old, readonly, caplog):
    database = open_database(old, readonly=readonly)
    assert held(database) == (EXPECTED, EXPECTED)
    assert database.best("p", "sm_90a:132:h200").time_us == 2.0
    assert database.best("p", "sm_90a:132:h100-80gb-hbm3") is None
    assert database.search("p", "sm_90a:132:h200").trials == 9
    assert database.search("q", "sm_90a:132:h100-80gb-hbm3").trials == 3
    assert database.check() == ()
    assert not caplog.records
    database.close()
    connection = sqlite3.connect(old)
    assert version_of(connection) == (2 if readonly else VERSION)


def test_what_was_damaged_before_is_not_made_whole(old, caplog):
    connection = sqlite3.connect(old)
    connection.execute("UPDATE results SET time_us = 1.0 WHERE problem = 'p' AND solver = 's' AND target LIKE 'sm%'")
    connection.execute("UPDATE searches SET trials = 99 WHERE problem = 'p'")
    connection.commit()
    connection.close()
    database = open_database(old)
    assert [record.time_us for record in database.ranking("p", "sm_90a:132:h200")] == [3.0]
    assert database.search("p", "sm_90a:132:h200") is None
    assert len(database.check()) == 2


def test_an_old_version_number_is_no_damage_and_lifting_twice_changes_nothing(old):
    open_database(old).close()
    connection = sqlite3.connect(old)
    connection.execute("PRAGMA user_version = 2")  # as if killed before the last word
    connection.close()
    assert _is_sound(old)
    assert held(open_database(old)) == (EXPECTED, EXPECTED)


def test_a_damaged_old_database_is_set_aside_with_its_records_lifted(old, caplog):
    data = bytearray(old.read_bytes())
    data[100:200] = bytes(100)  # the description of the tables
    old.write_bytes(data)
    database = open_database(old)
    database.put_result(EXPECTED[0])
    assert database.persistent
    assert "damaged" in caplog.text


def test_files_of_records_answer_under_their_card_and_go_when_they_are_removed(tmp_path):
    path = tmp_path / "files.db"
    for table in ("results", "trials"):
        for record in OLD:
            place = records_folder(path) / _place(table, record)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(line_of(table, record) + "\n")
    (records_folder(path) / "searches").mkdir()
    database = open_database(path)
    assert held(database) == (EXPECTED, EXPECTED)
    assert [record.time_us for record in database.ranking("p", "sm_90a:132:h200")] == [2.0, 3.0]
    assert database.ranking("p", "sm_90a:132:h100-80gb-hbm3") == ()
    assert database.targets_of("p") == ("sm_90a:132:h200", "x86_64-v4-bf16:2:zen4")
    better = replace(OLD[0], target="sm_90a:132:h200", time_us=1.0)
    database.put_result(better)
    assert [record.time_us for record in database.ranking("p", "sm_90a:132:h200")] == [1.0, 3.0]
    assert database.remove("results", [better]) == 1
    assert [record.time_us for record in database.ranking("p", "sm_90a:132:h200")] == [3.0]
    assert database.check() == ()


def test_lines_and_databases_that_are_merged_get_their_cards(tmp_path, old):
    from tilesmith.db.exchange import import_file

    lines = tmp_path / "old.jsonl"
    lines.write_text("\n".join(json_lines(("results", record) for record in OLD)))
    database = open_database(None)
    assert import_file(lines, database, "newest").added == len(OLD)
    assert held(database)[0] == EXPECTED
    again = merge(
        (("results", record) for record in open_database(old, readonly=True).records("results")), database, "newest"
    )
    assert (again.added, again.kept) == (0, len(OLD))
