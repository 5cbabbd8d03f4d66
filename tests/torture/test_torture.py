"""The torture of the store in small: each part runs in processes of its own, for seconds in place of minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run(script: str, *arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, HERE / script, *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_crowd_that_is_killed_at_random():
    found = run("crowd.py", "--processes", "8", "--seconds", "4", "--seed", "1")
    assert found["ok"], found
    assert found["kills"] > 3
    assert found["records"] > 3


def test_every_kind_of_file_is_damaged():
    for kind, found in run("flips.py", "--every", "41").items():
        assert not found["wrong"], (kind, found)
        assert found["tried"] > 200


def test_file_operations_fail():
    found = run("faults.py", "--seconds", "6")
    assert not found["wrong"], found["wrong"]
    assert found["operations"] > 100
    assert found["runs"] > 5


def test_every_process_chooses_the_same():
    found = run("same.py", "--processes", "12", "--interpreters", "1")
    assert list(found["chosen"].values()) == [13], found
    assert found["answers"] > 1
