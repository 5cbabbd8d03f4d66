"""`report --compare`: what counts as a change, and the exit status for CI."""

import json
import re
from pathlib import Path

import pytest
from report_samples import make_database, make_results

from tilesmith.cli.main import run

FAILED = {"time_us": None, "status": "failed", "reason": "hung"}


@pytest.mark.parametrize(
    ("before", "after", "verdicts", "status"),
    [
        ([10.0, 20.0], [10.1, 19.9], ["same", "same"], 0),
        ([10.0, 20.0], [9.0, 20.0], ["faster", "same"], 0),
        ([10.0, 20.0], [10.0, 21.0], ["slower", "same"], 1),
        ([10.0, 20.0], [10.0, FAILED], ["broken", "same"], 1),
        ([10.0, FAILED], [10.0, 20.0], ["mended", "same"], 0),
        # Beyond 2 % and within the spreads, one of which is as wide as the change.
        ([10.0, 20.0], [10.0, {"time_us": 24.0, "spread_us": 4.0}], ["same", "same"], 0),
        ([10.0], [{"time_us": 30.0, "status": "disturbed"}], ["disturbed"], 3),
        ([10.0], [10.0, 5.0], ["same", "only after"], 0),
    ],
)
def test_verdicts(tmp_path, capsys, before, after, verdicts, status):
    paths = [make_results(tmp_path / f"{name}.json", rows) for name, rows in (("a", before), ("b", after))]
    assert run(["report", "--compare", *paths, "--json"]) == status
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["verdict"] for row in rows] == verdicts
    assert run(["report", "--compare", *paths]) == status


def test_two_machines_are_compared_problem_by_problem(tmp_path, capsys):
    one = make_results(tmp_path / "a.json", [10.0, 20.0])
    other = make_results(tmp_path / "b.json", [5.0, 30.0], target="sm_100a:148:b200")
    assert run(["report", "--compare", one, other, "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["verdict"], row["change"], row["after_target"]) for row in rows] == [
        ("slower", 1.5, "sm_100a:148:b200"), ("faster", 0.5, "sm_100a:148:b200"),
    ]  # fmt: skip


def test_a_database_and_results(tmp_path, capsys):
    """The smallest change that counts is the user's; what is smaller is none, also without a spread."""
    database, results = make_database(tmp_path / "t.db"), make_results(tmp_path / "b.json", [10.9, 10.9])
    assert run(["report", "--compare", database, results]) == 1
    assert run(["report", "--compare", database, results, "--least", "10"]) == 0
    assert "1 before" in capsys.readouterr().out  # the problem without a kernel


@pytest.mark.parametrize("words", [["a.json"], ["a.json", "a.json"], ["a.json", "b.json", "c.json"]])
def test_usage(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    make_results(tmp_path / "a.json", [1.0])
    assert run(["report", "--compare", *words]) == 2
    assert "--compare takes two inputs" in capsys.readouterr().err


def test_the_example_of_the_page(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs" / "guide" / "reports.md").read_text()
    example = r"^\$ tilesmith (report --compare .*)\n((?:[^$].*\n)*)\$ echo \$\?\n(\d)"
    command, output, status = re.search(example, text, re.M).groups()
    monkeypatch.chdir(tmp_path)
    make_results(tmp_path / "before.json", [10.0, 30.0])
    make_results(tmp_path / "after.json", [20.0, 30.0])
    assert run(command.split()) == int(status)
    assert capsys.readouterr().out == output
