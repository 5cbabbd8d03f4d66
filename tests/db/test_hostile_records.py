"""A record with a field outside its rule is refused wherever it enters, however well it is sealed."""

import json
import logging
import math
import sqlite3

import pytest

from hostile_records import NAMES, line_of, put, sealed
from tilesmith.cli.main import run
from tilesmith.db.exchange import import_file
from tilesmith.db.opening import open_database
from tilesmith.db.records import OK, RECORD_RULES, Record, Search
from tilesmith.db.schema import FIELDS
from tilesmith.db.seal import seal_of
from tilesmith.errors import RecordError, TilesmithError
from tilesmith.problems.conv import ConvSignature

SIGNATURE = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
P, T = SIGNATURE.key(), "x86_64-v4:2:zen4"
GOOD = {
    "problem": P, "target": T, "solver": "c_dense", "config": "mh=1 mw=8", "revision": 1, "time_us": 12.5,
    "spread_us": 0.25, "samples": 31, "prepare_us": 2.0, "workspace": 4096, "error": 0.5, "bound": 1.0, "status": OK,
    "reason": "", "method": "median", "compiler": "gcc 12", "generator": "g", "host": "h",
    "date": "2026-01-02T03:04:05Z", "origin": "tune",
}  # fmt: skip
# Field, value: each by itself makes a record that no reader may meet.
HOSTILE = [
    ("time_us", -1.0), ("time_us", 0.0), ("time_us", 5e-324), ("time_us", 1e300),
    ("spread_us", -0.5), ("spread_us", -1e-9), ("spread_us", 1e300), ("prepare_us", -2.0), ("prepare_us", 1e300),
    ("samples", -1), ("samples", 2**62), ("revision", -1), ("revision", 2**40), ("workspace", -1),
    ("workspace", 2**62), ("error", -1.0), ("bound", -1.0), ("status", "OK"), ("status", ""), ("date", "yesterday"),
    ("date", "0000-01-01T00:00:00Z"), ("date", "2026-13-01"), ("date", "2026-01-02 03:04:05"), ("solver", ""),
    ("solver", "s" * 201), ("solver", "c\x1b[2J"), ("config", "mr=1 " * 1000), ("config", "mr=1\nnr=2"),
    ("origin", "o" * 41), ("reason", "r" * 70_000), ("host", "h" * 70_000),
]  # fmt: skip
NO_JSON = [
    ("time_us", -0.0),
    ("time_us", math.nan), ("time_us", math.inf), ("spread_us", math.nan), ("prepare_us", math.inf),
    ("error", math.nan), ("bound", math.inf), ("samples", 10**400), ("revision", True), ("workspace", 2**64),
    ("reason", "\ud800"), ("solver", "\ud800"), ("target", ".."), ("target", "t" * 81), ("problem", "p" * 5000),
    ("problem", ""),
]  # fmt: skip


def test_the_rules_are_those_of_the_fields():
    assert tuple(RECORD_RULES) == NAMES
    assert Record(**GOOD).ok


@pytest.mark.parametrize(("name", "value"), [*HOSTILE, *NO_JSON])
def test_a_record_checks_itself_when_it_is_made(name, value):
    if name in ("error", "bound") and not math.isfinite(value):
        assert getattr(Record(**GOOD | {name: value}), name) is None  # a check that met NaN
    elif name == "reason" and value == "\ud800":
        assert Record(**GOOD | {name: value}).reason == "?"
    elif value == "..":
        assert Record(**GOOD | {name: value}).target == ".."
    else:
        with pytest.raises(RecordError) as caught:
            Record(**GOOD | {name: value})
        assert f"record with {name} " in str(caught.value)
        assert "which is not " in str(caught.value)
        assert len(str(caught.value)) < 250


@pytest.mark.parametrize("table", ["results", "trials"])
@pytest.mark.parametrize("way", ["user", "files", "import"])
def test_a_sealed_record_outside_its_rule_never_enters(way, table, tmp_path, caplog):
    for number, (name, value) in enumerate(HOSTILE):
        (path, *_), file = put(sealed(GOOD | {"solver": f"s{number}", name: value}), way, tmp_path, table)
    database = open_database(path)
    with caplog.at_level(logging.WARNING):
        found = import_file(file, database, "newest").bad if file else database.check()
        assert database.ranking(P, T) == database.trials(P, T) == database.trials(P, T, "s1") == ()
        assert list(database.records(table)) == []
    told = "\n".join(found)
    assert len(found) == len(HOSTILE)
    for name, value in HOSTILE:
        assert f"record with {name} {ascii(value)[:70]}" in told
        assert file or f"record with {name} {ascii(value)[:70]}" in caplog.text
    if file is None:
        assert database.repair() == len(HOSTILE)
    assert database.check() == ()
    database.close()


@pytest.mark.parametrize(("name", "value"), NO_JSON)
def test_what_sqlite_cannot_hold_never_enters_by_a_line(name, value, tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text(line_of(sealed(GOOD | {name: value})) + "\n" + line_of(sealed(GOOD)) + "\n")
    database = open_database(None)
    taken = import_file(file, database, "newest")
    if value == "..":
        assert (taken.added, taken.bad) == (2, [])
        return
    assert taken.added == 1
    assert len(taken.bad) == 1
    assert database.ranking(P, T) == (Record(**GOOD),)


def test_a_hostile_record_among_good_ones_costs_itself_alone(tmp_path):
    path = tmp_path / "t.db"
    put(sealed(GOOD | {"solver": "a", "spread_us": -1.0}), "user", tmp_path)
    database = open_database(tmp_path / "user.db")
    database.put_result(Record(**GOOD))
    assert database.ranking(P, T) == (Record(**GOOD),)
    assert not path.exists()


@pytest.mark.parametrize("target", ["..", ".", "...", "a.b"])
def test_a_target_of_dots_is_no_other_folder(target, tmp_path):
    (tmp_path / "t.db.records").mkdir()
    database = open_database(tmp_path / "t.db")
    record = Record(**GOOD | {"target": target})
    database.put_result(record)
    database.record_trials([record])
    assert open_database(tmp_path / "t.db").ranking(P, target) == (record,)
    assert list(open_database(tmp_path / "t.db").records("trials")) == [record]


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ("S:-1,0,a", "time_us"), ("S:1e-30,0,a", "time_us"), ("S:1e30,0,a", "time_us"), ("S:nan,0,a", "time_us"),
        ("S:1,-1,a", "workspace"), ("S:1,99999999999999999999,a", "workspace"),
        (f"S:1,0,a,revision=3{' mr=1' * 1000}", "config"),
    ],
)  # fmt: skip
def test_find_db_text_obeys_the_rules_of_records(entry, field, tmp_path):
    file = tmp_path / "gfx90a68.HIP.fdb.txt"
    key = "16-8-8-3x3-16-8-8-1-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-F"
    file.write_text(f"{key}={entry}\n{key}=T:1,0,a\n")
    database = open_database(None)
    taken = import_file(file, database, "newest")
    assert taken.added == 1
    (line,) = taken.bad
    assert f"record with {field} " in line


def test_a_search_checks_itself_too(tmp_path):
    good = {"strategy": "model", "seed": 0, "trials": 3, "seconds": 1.5, "ended": "budget", "date": ""}
    Search(P, T, **good)
    for name, value in {
        "seconds": -1.0, "seed": -1, "trials": 2**62, "ended": "", "strategy": "s\n", "date": "d"
    }.items():  # fmt: skip
        with pytest.raises(RecordError):
            Search(P, T, **good | {name: value})
        path = tmp_path / f"{name}.db"
        open_database(path).close()
        row = (P, T, *(good | {name: value}).values())
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute(f"INSERT INTO searches VALUES ({', '.join('?' * 9)})", (*row, seal_of(row)))
        raw.close()
        database = open_database(path)
        assert database.search(P, T) is None
        assert len(database.check()) == 1
    assert len(FIELDS["searches"]) == 8


def test_the_verbs_meet_hostile_records(tmp_path, monkeypatch, capsys):
    """`check` names them, `stats`, `query`, `export` and `merge` go on with the others, `prune` and `repair` remove."""
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "user.db"))
    for number, (name, value) in enumerate(HOSTILE):
        changed = GOOD | {"solver": f"s{number}", name: value}
        put(sealed(changed), "user", tmp_path, "results")
        put(sealed(changed), "user", tmp_path, "trials")
    open_database(tmp_path / "user.db").put_result(Record(**GOOD))
    for words in (
        ["stats", "--json"], ["query", "--json"], ["query", "--trials"], ["export"], ["prune", "--dry-run", "--failed"],
        ["prune", "--older-than", "36500"],
    ):  # fmt: skip
        assert run(["db", *words]) in (0, 1)
    capsys.readouterr()
    assert run(["db", "stats", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["results"], found["trials"]) == (1, 0)
    assert run(["db", "check"]) == 1
    assert capsys.readouterr().out.count("record with ") == 2 * len(HOSTILE)
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "other.db"))
    assert run(["db", "merge", str(tmp_path / "user.db")]) == 0
    assert "1 added" in capsys.readouterr().out
    assert run(["db", "check", "--db", str(tmp_path / "user.db"), "--repair"]) == 0
    assert open_database(tmp_path / "user.db", readonly=True).check() == ()


def test_keys_that_are_no_text_are_passed_once_and_can_be_removed(tmp_path, caplog):
    """Bytes that are no UTF-8 read as another text, in front of them: a reader of many rows would never get past."""
    database = open_database(tmp_path / "t.db")
    raw = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    row = sealed(GOOD)
    for table in ("results", "trials"):
        raw.execute("BEGIN")
        for number in range(1200):
            key = b"\xff%d" % number if number % 2 else b"%d" % number
            cast = "?" if number % 3 else "CAST(? AS TEXT)"
            raw.execute(f"INSERT INTO {table} VALUES ({cast}, {', '.join('?' * 20)})", (key, *row[1:]))
        raw.execute("COMMIT")
        assert list(database.records(table)) == []
    database.put_result(Record(**GOOD))
    assert list(database.records("results")) == [Record(**GOOD)]
    assert len(database.check()) == database.repair() == 2400
    assert database.check() == ()
    assert list(database.records("results")) == [Record(**GOOD)]


@pytest.mark.parametrize("date", ["9999-12-31T23:59:59Z", "2999-01-01", "1970-01-01T00:00:00Z"])
def test_a_record_from_the_future_does_not_stay_the_newest(date):
    from tilesmith.db.exchange import merge

    database = open_database(None)
    odd, today = Record(**GOOD | {"date": date}), Record(**GOOD)
    merge([("results", odd)], database, "newest")
    assert database.ranking(P, T) == (odd,)
    merge([("results", today)], database, "newest")
    assert database.ranking(P, T) == (today,)
    merge([("results", odd)], database, "newest")
    assert database.ranking(P, T) == (today,)


def test_a_target_of_another_form_is_told_at_once(tmp_path):
    (tmp_path / "f.txt").write_text("x=S:1,0,a\n" * 3)
    with pytest.raises(TilesmithError, match="write it as gfx90a:104"):
        import_file(tmp_path / "f.txt", open_database(None), "newest", "t" * 100)
