"""``tilesmith db`` and ``tilesmith retune`` end to end: what they print, what they change, how they exit."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from tilesmith.cli.main import run
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.problems.keys import parse_key
from tilesmith.problems.short_name import short_key
from tilesmith.targets.detect import host_target

STORE = Path(__file__).parents[1] / "db" / "stores" / "v2.db"
CONV = "conv -n 1 -c 16 -H 8 -W 8 -k 16 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC"
GEMM_KEY = "gemm1;m=64;n=64;k=64;batch=1;a=fp32,n;b=fp32,n;c=fp32;acc=fp32;alpha=1.0;beta=0.0"
T = "x86_64-v4:2"
OUTDATED = Record(GEMM_KEY, "x86_64-v2:9", "c_dense", "", revision=0, time_us=1.0, date="2026-01-01T00:00:00Z")


@pytest.fixture
def user(tmp_path, monkeypatch):
    path = tmp_path / "user.db"
    shutil.copy(STORE, path)
    monkeypatch.setenv("TILESMITH_DB_PATH", str(path))
    return path


def rows(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_query_by_command_key_target_and_solver(user, capsys):
    assert run(["db", "query", "--json"]) == 0
    assert len(rows(capsys)) == 4
    assert run(["db", "query", *CONV.split(), "--json"]) == 0
    assert [row["solver"] for row in rows(capsys)] == ["c_dense", "c_depthwise", "c_reference"]
    assert run(["db", "query", GEMM_KEY, "--json"]) == 0
    (row,) = rows(capsys)
    assert (row["target"], row["role"], row["layer"], row["outdated"]) == (
        "sm_90a:132:generic",
        "user",
        str(user),
        False,
    )
    assert run(["db", "query", "--target", T, "--solver", "c_dense", "--trials", "--json"]) == 0
    assert [row["time_us"] for row in rows(capsys)] == [12.5]
    assert run(["db", "query", "--solver", "c_reference"]) == 0
    assert "250" in capsys.readouterr().out
    assert run(["db", "query", "--target", "sm_80:108"]) == 1
    assert "no database holds such a record" in capsys.readouterr().err


def test_query_shows_every_layer(user, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{user}:{tmp_path / 'mine.db'}")
    open_database(tmp_path / "mine.db").put_result(Record(GEMM_KEY, T, "c_dense", "", time_us=1.0))
    assert run(["db", "query", GEMM_KEY, "--json"]) == 0
    assert [(row["role"], row["solver"]) for row in rows(capsys)] == [("user", "c_dense"), ("team", "gemm_sm90")]


def test_export_and_import_bring_everything_back(user, tmp_path, monkeypatch, capsys):
    out = tmp_path / "all.jsonl"
    assert run(["db", "export", "--out", str(out)]) == 0
    assert "8 lines" in capsys.readouterr().err
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "other.db"))
    assert run(["db", "import", str(out), "--json"]) == 0
    (report,) = rows(capsys)
    assert (report["added"], report["replaced"], report["kept"], report["bad"]) == (8, 0, 0, [])
    assert run(["db", "export"]) == 0
    assert capsys.readouterr().out == out.read_text()
    assert run(["db", "import", str(out), "--policy", "fastest"]) == 0
    assert "0 added, 0 replaced, 8 kept" in capsys.readouterr().out


def test_import_reports_bad_lines_and_takes_the_rest(user, tmp_path, capsys):
    path = tmp_path / "in.jsonl"
    run(["db", "export", "--solver", "c_reference", "--out", str(path)])
    path.write_text("{}\n" + path.read_text() + "rubbish\n")
    capsys.readouterr()
    assert run(["db", "import", str(path)]) == 2
    captured = capsys.readouterr()
    assert "2 bad lines" in captured.out
    assert [line.split(": ")[1] for line in captured.err.splitlines()] == [f"{path}:1", f"{path}:4"]
    assert run(["db", "import", str(tmp_path / "gone")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_miopens_text_both_ways(user, tmp_path, monkeypatch, capsys):
    assert run(["db", "export", "--format", "miopen"]) == 2
    assert "--target" in capsys.readouterr().err
    out = tmp_path / "find.txt"
    assert run(["db", "export", "--format", "miopen", "--target", T, "--out", str(out)]) == 0
    (line,) = out.read_text().splitlines()
    assert line.startswith("16-8-8-3x3-16-8-8-1-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-F=c_dense:0.0125,4096,")
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "other.db"))
    assert run(["db", "import", str(out)]) == 2
    assert run(["db", "import", str(out), "--target", T]) == 0
    capsys.readouterr()
    assert run(["db", "query", "--json"]) == 0
    found = rows(capsys)
    assert [(row["solver"], row["time_us"], row["origin"]) for row in found] == [
        ("c_dense", 12.5, "import"), ("c_reference", 250.0, "import"),
    ]  # fmt: skip
    assert found[0]["config"].startswith("mh=1 mw=8")
    assert run(["db", "export", "--format", "miopen", "--target", "sm_90a:132", "--db", str(user)]) == 0
    assert "1 problems have no find-db line" in capsys.readouterr().err


def test_merge(user, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "other.db"))
    assert run(["db", "merge", str(user)]) == 0
    assert "8 added" in capsys.readouterr().out
    assert run(["db", "merge", f"file://{user}", "--policy", "mine", "--json"]) == 0
    assert rows(capsys)[0]["kept"] == 8
    assert run(["db", "merge", str(tmp_path / "gone.db")]) == 2
    assert "no such database" in capsys.readouterr().err


def test_stats(user, capsys):
    open_database(user).put_result(OUTDATED)
    assert run(["db", "stats", "--json"]) == 0
    (found,) = rows(capsys)
    assert (found["problems"], found["results"], found["trials"], found["failed"]) == (2, 5, 4, 1)
    assert found["outdated"] >= 1  # the others may have been revised since the store was written
    assert found["targets"] == {"sm_90a:132:generic": 1, "x86_64-v2:9": 1, f"{T}:generic": 3}
    assert found["role"] == "user"
    assert run(["db", "stats"]) == 0
    assert "sm_90a:132:generic 1" in capsys.readouterr().out


def test_prune(user, capsys):
    open_database(user).put_result(OUTDATED)
    assert run(["db", "prune"]) == 2
    assert "say which records go" in capsys.readouterr().err
    assert run(["db", "prune", "--failed", "--dry-run", "--json"]) == 0
    assert rows(capsys) == [{"database": str(user), "dry_run": True, "results": 1, "trials": 1}]
    assert run(["db", "prune", "--failed", "--target", "sm_90a:132"]) == 0
    assert "0 answers and 0 trials" in capsys.readouterr().out
    assert run(["db", "prune", "--failed"]) == 0
    assert run(["db", "prune", "--stale", "--target", "x86_64-v2:9"]) == 0
    assert "1 answers and 0 trials removed" in capsys.readouterr().out.splitlines()[-1]
    assert run(["db", "prune", "--older-than", "36500"]) == 0
    assert "0 answers" in capsys.readouterr().out
    assert [r.solver for r in open_database(user).records("results")] == ["c_dense", "c_reference", "gemm_sm90"]
    assert run(["db", "prune", *CONV.split(), "--solver", "c_reference"]) == 0
    assert [r.solver for r in open_database(user).records("trials")] == ["c_dense", "gemm_sm90"]


def test_check_and_repair(user, capsys):
    assert run(["db", "check"]) == 0
    assert "whole" in capsys.readouterr().out
    raw = sqlite3.connect(user, isolation_level=None)
    raw.execute("UPDATE results SET time_us = 1.0 WHERE solver = 'c_reference'")
    assert run(["db", "check"]) == 1
    assert "--repair" in capsys.readouterr().out
    assert run(["db", "check", "--json"]) == 1
    (row,) = rows(capsys)
    assert (row["ok"], len(row["damaged"])) == (False, 1)
    assert run(["db", "check", "--repair"]) == 0
    assert "1 damaged records removed" in capsys.readouterr().out
    assert run(["db", "check"]) == 0


def test_check_tells_of_a_file_of_which_nothing_can_be_read(user, tmp_path, monkeypatch, capsys):
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"no database at all " * 300)
    assert run(["db", "check", "--db", str(garbage), "--json"]) == 1
    (row,) = rows(capsys)
    assert not row["ok"]
    assert "not a database" in row["damaged"][0]
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{garbage}:{user}")
    assert run(["db", "check"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"{user} (user, an SQLite file): whole" in told
    assert "1 damaged" in told
    assert run(["db", "check", "--db", str(garbage), "--repair"]) == 0
    assert run(["db", "check"]) == 0


@pytest.mark.needs_fifos
def test_export_does_not_wait_for_the_reader_of_a_fifo(user, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert run(["db", "export", "--out", str(tmp_path / "pipe")]) == 2
    assert f"{tmp_path / 'pipe'}: cannot be written" in capsys.readouterr().err
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert run(["db", "export", "--out", str(tmp_path / "pipe")]) == 0
    assert json.loads(os.read(reader, 1 << 20).splitlines()[0])
    os.close(reader)


@pytest.mark.parametrize("words", [["merge"], ["query", "--db"], ["stats", "--db"], ["export", "--db"]])
def test_a_file_of_which_nothing_can_be_read_is_refused(words, user, tmp_path, capsys):
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"no database at all " * 300)
    assert run(["db", *words, str(garbage)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{garbage}: cannot be read as a database" in line


@pytest.mark.parametrize("verb", ["db", "cache"])
def test_a_verb_without_its_action_is_one_short_line(verb, capsys):
    assert run([verb]) == 2
    assert capsys.readouterr().err == f"tilesmith: an action is missing (see `tilesmith {verb} --help`)\n"


@pytest.mark.parametrize(
    "words",
    [["query", "nonsense"], ["query", "a;b"], ["prune", "--older-than", "x"], ["nonesuch"], ["check", "--db", "/gone"]],
)
def test_bad_words_are_one_line(words, user, capsys):
    assert run(["db", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# --- retune -----------------------------------------------------------------------------------------------------------


def test_retune_searches_what_is_stale_once(tmp_path, monkeypatch, capsys):
    path = tmp_path / "mine.db"
    monkeypatch.setenv("TILESMITH_DB_PATH", str(path))
    key = parse_key("gemm1;m=16;n=16;k=16;batch=1;a=fp32,n;b=fp32,n;c=fp32;acc=fp32;alpha=1.0;beta=0.0").key()
    target = host_target(1).name
    database = open_database(path)
    database.put_result(Record(key, target, "c_reference", "", time_us=0.001, compiler="gcc 1", host="another"))
    database.put_result(Record(key, "sm_90a:132", "gemm_sm90", "", time_us=1.0))
    assert run(["retune"]) == 2
    assert "--stale" in capsys.readouterr().err
    assert run(["retune", "--stale", "--list", "--threads", "1", "--json"]) == 0
    (row,) = rows(capsys)
    assert [change.split(" ")[0] for change in row["changes"]] == ["compiler", "machine"]
    assert run(["retune", "--stale", "--threads", "1", *CONV.split()]) == 0
    assert "0 stale problems" in capsys.readouterr().err
    assert run(["retune", "--stale", "--threads", "1", "--trials", "4", "--seconds", "60", "--json"]) == 0
    captured = capsys.readouterr()
    row = json.loads(captured.out)
    assert (row["key"], row["old_solver"], row["old_time_us"], row["changed"]) == (key, "c_reference", 0.001, True)
    assert row["solver"] != "c_reference"
    assert f"{short_key(key)}: c_reference (0.0 us) -> {row['solver']}" in captured.err
    held = open_database(path).ranking(key, target)
    assert held[0].solver == row["solver"]
    assert all(record.compiler != "gcc 1" for record in held)
    # What was done is not done again: a run that is stopped goes on with the rest.
    assert run(["retune", "--stale", "--threads", "1"]) == 0
    assert "0 stale problems" in capsys.readouterr().err
    assert len(open_database(path).ranking(key, "sm_90a:132")) == 1
