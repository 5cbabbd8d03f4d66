"""Many processes that ask one database for one problem choose the same kernel, each time.

The database holds three solvers whose times differ by less than their spread, which is the case that could be decided
either way. Processes are forked before anything has been opened or decided; a few are interpreters of their own.

    python tests/torture/same.py [--processes 1000] [--interpreters 20]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from homes import SIGNATURE, in_child, place

import tilesmith.runtime.executable  # noqa: F401
from tilesmith import get_launchable
from tilesmith.db.records import Record
from tilesmith.db.store import Database
from tilesmith.dispatch.facts import options_of
from tilesmith.solvers.generation import generator_digest
from tilesmith.targets.detect import host_target

ASK = (
    "from homes import SIGNATURE, place; from pathlib import Path; import sys; from tilesmith import get_launchable; "
    "place(Path(sys.argv[1])); l = get_launchable(SIGNATURE); print(l.solver, l.config, l.choice.basis)"
)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--processes", type=int, default=1000, help="forked")
    options.add_argument("--interpreters", type=int, default=20)
    given = options.parse_args()
    home = Path(tempfile.mkdtemp(prefix="tilesmith-same-"))
    try:
        found = torment(home, given.processes, given.interpreters)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(json.dumps(found))
    return 0 if len(found["chosen"]) == 1 else 1


def torment(home: Path, processes: int, interpreters: int) -> dict[str, Any]:
    place(home)
    target = host_target(1)
    (home / "data").mkdir()
    database = Database.open(home / "data" / "tilesmith.db")
    accepted = [option for option in options_of(SIGNATURE, target) if option.accepted][:3]
    for number, option in enumerate(accepted):
        database.put_result(
            Record(
                SIGNATURE.canonical.key(), target.name, option.candidate.name, option.config,
                revision=option.candidate.solver.revision, time_us=10.0 + 0.01 * number, spread_us=1.0, samples=9,
            )
        )  # fmt: skip
    database.close()
    generator_digest()

    def ask() -> str:
        launch = get_launchable(SIGNATURE)
        return f"{launch.solver} {launch.config} {launch.choice.basis}"

    chosen = Counter[str]()
    for _ in range(processes):
        ended = in_child(ask)
        chosen[ended.value or ended.error] += 1
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    for _ in range(interpreters):
        done = subprocess.run(
            [sys.executable, "-c", ASK, str(home)],
            capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        chosen[done.stdout.strip() or done.stderr] += 1
    return {"processes": processes, "interpreters": interpreters, "answers": len(accepted), "chosen": dict(chosen)}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
