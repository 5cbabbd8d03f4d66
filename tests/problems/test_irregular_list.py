"""The lists that a command draws or copies are what it prints, and every line is a problem."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tilesmith.problems.driver import read_commands

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(("name", "count"), [("irregular_random", 120), ("irregular_fp16", 96), ("grouped_fp32", 21)])
def test_a_list_is_what_its_command_prints(name, count):
    path = BENCHMARKS / "problems" / f"{name}.txt"
    printed = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py"], capture_output=True, text=True, timeout=60, check=True
    )
    assert path.read_text() == printed.stdout
    lines = list(read_commands(str(path)))
    assert len(lines) == count
    assert not [line.error for line in lines if line.command is None]
    assert len({signature.key() for line in lines for _, signature in line.command.signatures}) == count
