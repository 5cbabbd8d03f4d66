"""What a report reads: databases, exported records and result files, each refused whole if it is none of them."""

import json
import math
import random
from dataclasses import replace

import pytest
from report_samples import HOSTILE, KEYS, TARGET, TIMES, make_database, make_results, trials

from tilesmith.cli.main import run
from tilesmith.db.records import Record
from tilesmith.errors import FileFormatError
from tilesmith.report.gather import gather, read_source
from tilesmith.report.importance import importance
from tilesmith.report.payload import page_data, trial_data
from tilesmith.report.words import sentences


def test_a_database_says_what_was_gained(tmp_path):
    first, second, broken = read_source(make_database(tmp_path / "t.db")).findings
    assert (first.time_us, first.gain, first.rival.name, first.ratio) == (10.0, 4.0, "cudnn", 1.5)
    assert (second.gain, second.rival, len(second.trials), second.search.seconds) == (4.0, None, 11, 6.0)
    assert (broken.status, broken.time_us, broken.reason) == ("failed", None, HOSTILE)


def test_exported_records_say_the_same(tmp_path):
    path, lines = make_database(tmp_path / "t.db"), tmp_path / "t.jsonl"
    assert run(["db", "export", "--db", path, "--out", str(lines)]) == 0
    known = [replace(each, search=None) for each in read_source(path).findings]
    assert list(read_source(str(lines)).findings) == known
    lines.write_text(lines.read_text().replace('"time_us": 10.0', '"time_us": 1.0'))
    source = read_source(str(lines))
    assert all(each.time_us != 1.0 for each in source.findings)
    assert "damaged" in source.warnings[0]


def test_inputs_are_joined(tmp_path):
    """The trials come from the database; times come from the file that has another library beside them."""
    sources = [
        read_source(make_database(tmp_path / "t.db")),
        read_source(make_results(tmp_path / "b.json", [9.0, 8.0])),
    ]
    for each in (sources, sources[::-1]):
        first, second, _ = gather(each).results
        assert (second.time_us, second.ratio, second.gain, len(second.trials)) == (8.0, 15 / 8, 4.0, 11)
        assert first.lists == ("b",)
    assert [each.problem for each in gather(sources, {"one": {KEYS[1]}}).results] == [KEYS[1]]
    with pytest.raises(FileFormatError, match="no problem on target sm_80"):
        gather(sources, target="sm_80")


def test_lists_measured_in_several_passes(tmp_path):
    """The median of ours and the fastest of theirs count, as in the published tables."""
    command = "gemm -m 64 -n 64 -k 64"
    times = ((9.0, 20.0), (3.0, 12.0), (4.0, 14.0))
    first, *again = ({"time_us": ours, "against": {"cublas": {"time_us": theirs}}} for ours, theirs in times)
    row = {"command": command, "direction": "fwd", "tune": {"speedup": 1.5}, "bench": first, "again": again}
    path = tmp_path / "lists.json"
    path.write_text(json.dumps({"target": TARGET, "machine": {"gpu": "NVIDIA H200"}, "lists": {"small": [row]}}))
    (found,) = read_source(str(path)).findings
    assert (found.time_us, found.ratio, found.gain, found.lists) == (4.0, 3.0, 1.5, ("small",))


def test_a_disturbed_time_is_in_no_mean(tmp_path):
    rows = [10.0, {"time_us": 1.0, "status": "disturbed"}]
    found = gather([read_source(make_results(tmp_path / "b.json", rows))])
    assert found.results[1].ratio is None
    assert "ours is 1.50 times as fast on 1 problem " in " ".join(sentences(found))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"hello", "not a database"),
        (b"SQLite format 3\0" + bytes(100), "cannot be read as a database"),
        (b'{"a": 1}', "missing required field"),
        (b'{"target": "x", "host": {}, "results": [{"key": "k", "time_us": -1}]}', "results"),
        (b'{"target": "x", "host": {}, "results": [{"key": "k", "time_us": 1e999}]}', "results"),
        (b'{"target": "x", "host": {}, "results": []}', "no problem has a record"),
        (b'{"format": "tilesmith trial 1"}', "lacks the field"),
        (b"{" * 100_000, "malformed"),
    ],
)
def test_a_damaged_input_writes_nothing(tmp_path, capsys, data, says):
    path = tmp_path / "in"
    path.write_bytes(data)
    out = tmp_path / "out.html"
    assert run(["report", str(path), "-o", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert says in line
    assert not out.exists()


def test_a_trial_is_placed_in_its_search(tmp_path):
    found = gather([read_source(make_database(tmp_path / "t.db"))])
    (group,) = trial_data(found.results)["problems"][0]
    at = {us: moment for us, moment in zip(group["us"], group["at"], strict=True) if us}
    assert [at[us] for us in TIMES] == [place // 2 for place in range(len(TIMES))]
    assert group["us"][group["untuned"]] == 40.0
    # A database of former times has one date for all; it says nothing of the order.
    same = [
        replace(each, trials=tuple(replace(t, date="2026-11-23T08:00:00Z") for t in each.trials))
        for each in found.results
    ]
    assert trial_data(same)["problems"][0][0]["at"] is None


def test_importance_is_epsilon_squared():
    """Against the definition: the variance between the values of an axis, less what chance explains, of all."""
    rng = random.Random(1)
    rows = [
        (m, n, 1.0 * (m == 64) + 0.2 * n + rng.gauss(0, 0.1)) for m in (32, 64, 128) for n in range(4) for _ in "ab"
    ]
    records = [Record(KEYS[0], TARGET, "another", f"m={m} n={n} one=1", time_us=math.exp(y)) for m, n, y in rows]
    mean = sum(y for *_, y in rows) / len(rows)
    total = sum((y - mean) ** 2 for *_, y in rows)
    expected = {}
    for name, axis in (("m", 0), ("n", 1)):
        levels = [[row[2] for row in rows if row[axis] == value] for value in sorted({row[axis] for row in rows})]
        within = sum((y - sum(level) / len(level)) ** 2 for level in levels for y in level)
        expected[name] = (total - within - (len(levels) - 1) * within / (len(rows) - len(levels))) / total
    assert importance(records) == pytest.approx(expected)
    assert importance(records[:7]) == {}


def test_no_text_is_markup(tmp_path):
    """The data of a page is JSON; what a database says stays inside of it."""
    from tilesmith.report.page import _json

    found = gather([read_source(make_database(tmp_path / "t.db"))])
    trials_ = trial_data(found.results)
    assert trials_["reasons"] == [HOSTILE]
    text = _json(page_data(found, trials_))
    assert "harmed" in text
    assert not set("<>&") & set(text)


def test_records_of_another_program_are_shown_as_they_are():
    records = [replace(each, solver="another", config="no integers here") for each in trials(KEYS[0])[:2]]
    assert importance(records) == {}
