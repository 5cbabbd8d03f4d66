"""benchmarks/problems/irregular_random.txt is what its command draws, and every line is a problem."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tilesmith.problems.driver import read_commands

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LIST = BENCHMARKS / "problems" / "irregular_random.txt"


def test_the_list_is_what_its_command_draws():
    drawn = subprocess.run(
        [sys.executable, BENCHMARKS / "irregular_random.py"], capture_output=True, text=True, timeout=60, check=True
    )
    assert LIST.read_text() == drawn.stdout
    lines = list(read_commands(str(LIST)))
    assert len(lines) == 120
    assert not [line.error for line in lines if line.command is None]
    assert len({signature.key() for line in lines for _, signature in line.command.signatures}) == 120
