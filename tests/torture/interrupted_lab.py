"""The laboratory interrupted at random, two processes at once: nothing that was told is lost, and the table is whole.

python tests/torture/interrupted_lab.py [--times 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORDS = ["MN=4,8,12", "K=4,8", "nn", "nt", "t=1", "s=60"]
PRODUCTS = 12
LONGEST_S = 600.0  # of one process that nobody interrupts


def begin(home: Path) -> subprocess.Popen[str]:
    """One process; its results, a line each, go to a file, so that it never waits for a reader."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_")} | {
        "TILESMITH_CACHE_DIR": str(home / "cache"), "TILESMITH_DB_PATH": str(home / "test.db"),
        "TILESMITH_LAB_DIR": str(home / "lab"), "TILESMITH_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "tilesmith", "gemm", "tune", *WORDS, "--json"]
    with tempfile.NamedTemporaryFile("w", dir=home / "told", delete=False) as told:
        return subprocess.Popen(command, stdout=told, stderr=subprocess.PIPE, text=True, env=env)


def told(home: Path) -> list[dict[str, Any]]:
    """The whole lines that processes have printed."""
    texts = (path.read_text() for path in (home / "told").iterdir())
    return [json.loads(line) for text in texts for line in text.split("\n")[:-1]]


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--times", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    # A shell starts background jobs with SIGINT ignored, and children inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance, damaged, killed = random.Random(given.seed), [], 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "told").mkdir()
        for _ in range(given.times):
            running = [begin(home), begin(home)]
            for process in running:
                time.sleep(chance.uniform(0.0, 8.0))
                if process.poll() is None:
                    process.send_signal(chance.choice([signal.SIGINT, signal.SIGKILL]))
                    killed += 1
            damaged += [text for each in running if "Traceback" in (text := each.communicate(timeout=300)[1])]
        last = begin(home)
        text = last.communicate(timeout=LONGEST_S)[1]
        os.environ["TILESMITH_LAB_DIR"] = str(home / "lab")
        from tilesmith.lab.results import newest, read_results

        results = read_results()
        kept = {(each.problem, each.date, each.time_us) for each in results}
        lost = [row for row in told(home) if (row["problem"], row["date"], row["time_us"]) not in kept]
        table = newest(results, results[0].target) if results else {}
    figures = {
        "interrupted": killed, "told and lost": len(lost), "products in the table": len(table), "of": PRODUCTS,
        "results kept": len(results), "tracebacks": len(damaged), "last exit status": last.returncode,
    }  # fmt: skip
    print("\n".join([*damaged, text]), file=sys.stderr)
    print(json.dumps(figures))
    return int(bool(lost) or bool(damaged) or len(table) != PRODUCTS or last.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
