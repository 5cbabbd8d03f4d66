"""Whether `tilesmith tune --seconds` ends in time: each command as a process of its own, from start to end.

    python benchmarks/budgets.py [--device cuda] [--seconds 12] [--at-once 2] [--every 4] [--json FILE] [LIST ...]

Runs `tilesmith tune --seconds S` on every Nth problem of the lists (default: all of benchmarks/problems), some at a
time, each with an empty cache and database. A command is late when it takes more than S + max(2, S / 5) seconds, the
start of Python and everything else included; on a GPU those of its searches count, from when their measuring process
was up. Prints the late ones and the distribution; exits with 1 if any is late.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from tilesmith.measure.host import host_facts
from tilesmith.targets.detect_cuda import cuda_devices

ROOT = Path(__file__).parents[1]
PROBLEMS = ROOT / "benchmarks" / "problems"


def commands(names: list[str], every: int) -> list[str]:
    """Every Nth command of the lists."""
    found = []
    for name in names or sorted(path.stem for path in PROBLEMS.glob("*.txt")):
        lines = (line.partition("#")[0].strip() for line in (PROBLEMS / f"{name}.txt").read_text().splitlines())
        found += [line for line in lines if line]
    return found[::every]


def took(command: str, seconds: float, device: str) -> dict:
    """One `tilesmith tune` in a process of its own: seconds from its start to its end, and how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_")}
        environment = kept | {"TILESMITH_CACHE_DIR": f"{folder}/cache", "TILESMITH_DB_PATH": f"{folder}/tuned.db"}
        words = ["tune", *shlex.split(command), "--seconds", f"{seconds:g}", "--device", device, "--json"]
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tilesmith", *words], capture_output=True, text=True, check=False, env=environment
        )
        wall_s = time.monotonic() - began
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {
        "command": command, "problems": len(rows), "wall_s": round(wall_s, 2), "status": done.returncode,
        "searches_s": round(sum(row["seconds"] for row in rows), 2),
        "ended": [row["ended"] for row in rows], "trials": [row["trials"] for row in rows],
        "error": done.stderr[-300:] if done.returncode else "",
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", metavar="LIST")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    deadline = time.monotonic() + options.time_limit
    allowed = options.seconds + max(2.0, options.seconds / 5)

    def one(command: str) -> dict | None:
        left = deadline - time.monotonic()
        return took(command, options.seconds, options.device) if left > 2 * allowed else None

    with ThreadPoolExecutor(options.at_once) as pool:
        rows = [row for row in pool.map(one, commands(options.lists, options.every)) if row is not None]
    # A command may name several directions: each is a problem with a budget of its own.
    counts = "wall_s" if options.device == "cpu" else "searches_s"
    late = [row for row in rows if row[counts] > allowed * max(1, row["problems"])]
    for row in late:
        print(f"{row[counts]:.1f} s: {row['command']}")
    walls = sorted(row[counts] / max(1, row["problems"]) for row in rows)
    failed = [row for row in rows if row["status"]]
    summary = {
        "commands": len(rows), "late": len(late), "failed": len(failed), "median_s": statistics.median(walls),
        "longest_s": walls[-1], "allowed_s": allowed,
    }  # fmt: skip
    print(json.dumps(summary))
    for row in failed:
        print(f"status {row['status']}: {row['command']}: {row['error']}")
    if options.json is not None:
        head = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "command": " ".join(sys.argv[1:]),
            "machine": host_facts("", cuda_devices()[0] if options.device != "cpu" else None).name,
        }  # fmt: skip
        options.json.write_text(json.dumps({**head, "cores": os.cpu_count(), **summary, "rows": rows}, indent=1) + "\n")
    return 1 if late or failed else 0


if __name__ == "__main__":
    sys.exit(main())
