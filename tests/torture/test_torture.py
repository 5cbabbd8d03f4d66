"""The torture of the store in small: each part runs in processes of its own, for seconds in place of minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(script: str, *arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, HERE / script, *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("more", [[], ["--files"]], ids=["sqlite", "files"])
def test_a_crowd_that_is_killed_at_random(more):
    found = run("crowd.py", "--processes", "5", "--seconds", "1.5", "--seed", "1", *more)
    assert found["ok"], found
    assert found["kills"] >= 4
    assert found["records"] > 3


def test_every_kind_of_file_is_damaged():
    for kind, found in run("flips.py", "--every", "113").items():
        assert not found["wrong"], (kind, found)
        assert found["tried"] > 80


def test_a_store_that_is_damaged_in_every_way():
    found = run("damages.py", "--cases", "20", "--deadline", "40")
    assert not any(found[name] for name in ("wrong", "crashed", "raised", "blocked")), found
    assert found["kinds"]["strange"] == 2


def test_packages_of_an_attacker():
    """Unsigned, of a wrong or revoked key, changed, mixed, renamed, rolled back, absurd: none is accepted."""
    found = run("packages.py", "--every", "17")
    del found["took_s"]
    assert len(found) == 10
    for kind, each in found.items():
        assert each == {"tried": each["tried"], "accepted": 0, "crashed": 0, "wrong": []}, kind
        assert each["tried"] >= 4, kind


def test_file_operations_fail():
    found = run("faults.py", "--seconds", "2", "--jobs", "1")
    assert not found["wrong"], found["wrong"]
    assert found["operations"] > 100
    assert found["runs"] > 5


def test_installations_that_are_killed_and_robbed():
    found = run("installs.py", "--times", "12", "--seed", "3")
    assert not any(found[name] for name in ("half", "lost", "blocked", "failed", "left")), found
    assert found["kills"] > 2
    assert found["removals"] > 2
    assert found["new"] > 0


def test_no_home(tmp_path):
    """The convolution runs; the cache and the database say once each that they forget."""
    script = (
        "from homes import arrays, captured_warnings, is_right; from tilesmith import conv; import json\n"
        "with captured_warnings() as warnings:\n"
        "    right = [is_right(conv(*arrays(), padding=1)) for _ in range(2)]\n"
        "print(json.dumps([right, warnings]))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TILESMITH_", "XDG_"))}
    environment |= {"HOME": "/proc/none", "TILESMITH_FIND_MODE": "fast", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env={**environment, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    right, warnings = json.loads(done.stdout)
    assert right == [True, True]
    assert sorted(line.partition(":")[0] for line in warnings) == ["tilesmith.cache", "tilesmith.db"]
    assert list(tmp_path.iterdir()) == []


def test_the_laboratory_interrupted():
    found = run("interrupted_lab.py", "--sizes", "few", "--times", "1", "--longest", "3")
    assert found["interrupted"] > 0
    assert found["told and lost"] == found["tracebacks"] == found["last exit status"] == 0, found
    assert found["products in the table"] == found["of"] == 4
    assert found["the same table after two more runs at once"]
