"""The command that builds the default packages: the rows that it takes, what it makes, and what it leaves alone."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import default_packages as command  # noqa: E402

from tilesmith.package.files import PackageFile  # noqa: E402
from tilesmith.package.records import Kind  # noqa: E402
from tilesmith.plan.serial import decode  # noqa: E402


@pytest.fixture
def searches(monkeypatch, tmp_path):
    """One search that counts, one that failed, one of a config that does not exist, one of an older revision."""
    found = json.loads(command.SEARCHES[0].read_text())
    every = [row for rows in found["lists"].values() for row in rows if row["bench"]["status"] == "ok"]
    dense = [row for row in every if "block_k=" in row["bench"]["config"]]
    thin = next(row for row in every if row["bench"]["solver"].startswith("mma_thin"))
    items = copy.deepcopy([*dense[:3], thin])
    items[1]["bench"]["status"] = "failed"
    items[2]["bench"]["config"] = items[2]["bench"]["config"].replace("block_k=", "block_k=7")
    items[3]["revision"] -= 1
    found["lists"] = {"boo": items}
    path = tmp_path / "searches.json"
    path.write_text(json.dumps(found))
    monkeypatch.setattr(command, "SEARCHES", (path,))
    return items


def test_only_rows_that_still_count(searches):
    (row,) = command.measured_rows()
    date = json.loads(command.SEARCHES[0].read_text())["machine"]["date"]
    bench = searches[0]["bench"]
    assert (row.solver, row.config, row.time_us) == (bench["solver"], bench["config"], bench["time_us"])
    assert (row.samples, row.error, row.ok, row.date) == (bench["samples"], bench["error"], True, date[:10])


def test_the_committed_searches_count():
    """Of each file most rows do, convolutions and products alike."""
    for path in command.SEARCHES:
        found = json.loads(path.read_text())
        rows = sum(len(rows) for rows in found["lists"].values())
        assert rows * 0.9 < len(list(command.rows_of(found))) <= rows


@pytest.mark.needs_nvrtc
def test_packages_are_made_once(searches, monkeypatch, tmp_path, capsys):
    (tmp_path / "few.txt").write_text(searches[0]["command"] + "\n")
    monkeypatch.setattr(command, "LISTS", [tmp_path / "few.txt"])
    monkeypatch.setattr(command, "TARGETS", ("sm_90a:132:h200",))
    monkeypatch.setattr(sys, "argv", ["default_packages.py", "-o", str(tmp_path / "out")])
    assert command.main() == 0
    (path,) = (tmp_path / "out").iterdir()
    package = PackageFile(path)
    (plan,) = [decode(entry.content()) for entry in package.entries() if entry.kind == Kind.PLAN]
    assert (plan.solver, plan.config) == (searches[0]["bench"]["solver"], searches[0]["bench"]["config"])
    (row,) = package.records(Kind.FIND, plan.problem, plan.target)
    assert row.time_us == searches[0]["bench"]["time_us"]
    made = path.stat().st_mtime_ns
    assert command.main() == 0
    assert path.stat().st_mtime_ns == made
    path.write_bytes(path.read_bytes()[:-1])
    assert command.main() == 0
    package = PackageFile(path)
    package.verify()
    assert f"{path.name}: {path.stat().st_size} bytes, under 15 MB" in capsys.readouterr().out
    monkeypatch.setattr(command, "MOST", 5000)
    assert command.main() == 1
