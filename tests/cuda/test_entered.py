"""How many files a call enters on its way to the first launch of a kernel."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "entered.py"
# A little above today's: a call that enters more has a new step, or a family that it does not need.
MOST_FILES, MOST_LINES = 73, 10_650


def test_a_call_enters_no_databases_without_answers_and_few_files():
    done = subprocess.run([sys.executable, str(SCRIPT), "--list"], capture_output=True, text=True, check=True)
    *listed, last = done.stdout.splitlines()
    files, lines = map(int, re.fullmatch(r"(\d+) files, (\d+) lines", last).groups())
    assert len(listed) == files
    assert files <= MOST_FILES
    assert lines <= MOST_LINES
    entered = {line.split()[1] for line in listed}
    assert "solvers/cuda/wgmma/draft.py" in entered
    assert not entered & {"db/sqlite_store.py", "db/connect.py", "dispatch/neighbours.py", "solvers/relayout.py"}
