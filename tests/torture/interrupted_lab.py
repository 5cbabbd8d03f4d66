"""The laboratory interrupted at random, two processes at once: nothing that was told is lost, and the table is whole.

python tests/torture/interrupted_lab.py [--sizes few|small|tvm] [--largest N] [--times N] [--longest S] [--seed N]

`tilesmith gemm run` over four or twelve small products, or over the 13 sizes of benchmarks/problems/gemm_tvm.txt (fp32,
nn; of those with no side over --largest) beside oneDNN. Each time two processes work on the same list until they are
interrupted or killed, at most --longest seconds later. Then one ends the list. At last two more go over it at once:
they find nothing to do, and the table is what it was.
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

LIST = Path(__file__).parents[2] / "benchmarks" / "problems" / "gemm_tvm.txt"
SIZES = {
    "few": ["MN=4,12", "K=4", "nn", "nt", "t=1", "s=60"],
    "small": ["MN=4,8,12", "K=4,8", "nn", "nt", "t=1", "s=60"],
}
LONGEST_S = 3000.0  # of one process that nobody interrupts


def words_of(sizes: str, largest: int, home: Path) -> list[str]:
    """What stands behind `tilesmith gemm run`."""
    if sizes in SIZES:
        return [*SIZES[sizes], "--against", "none"]
    lines = [line for line in LIST.read_text().splitlines() if "tf32" not in line and "--transB 0" in line]
    lines = [line for line in lines if all(int(word) <= largest for word in line.split() if word.isdigit())]
    chosen = home / "sizes.txt"
    chosen.write_text("\n".join(lines) + "\n")
    return [str(chosen), "t=1", "s=1200", "--against", "onednn"]


def environment(home: Path) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_")} | {
        "TILESMITH_CACHE_DIR": str(home / "cache"), "TILESMITH_DB_PATH": str(home / "test.db"),
        "TILESMITH_LAB_DIR": str(home / "lab"), "TILESMITH_NUM_THREADS": "1",
    }  # fmt: skip


def begin(home: Path, words: list[str]) -> subprocess.Popen[str]:
    """One process; its results, a line each, go to a file, so that it never waits for a reader."""
    command = [sys.executable, "-m", "tilesmith", "gemm", "run", *words, "--json"]
    with tempfile.NamedTemporaryFile("w", dir=home / "told", delete=False) as told:
        return subprocess.Popen(command, stdout=told, stderr=subprocess.PIPE, text=True, env=environment(home))


def told(home: Path) -> list[dict[str, Any]]:
    """The whole lines that processes have printed."""
    texts = (path.read_text() for path in (home / "told").iterdir())
    return [json.loads(line) for text in texts for line in text.split("\n")[:-1]]


def table(home: Path) -> list[dict[str, Any]]:
    """What `tilesmith gemm perf` shows."""
    command = [sys.executable, "-m", "tilesmith", "gemm", "perf", "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment(home), timeout=300, check=False)
    rows: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
    return rows


def asked(words: list[str]) -> set[str]:
    """The products that the words ask for, by key."""
    from tilesmith.lab.words import read_line

    text = Path(words[0]).read_text().splitlines() if Path(words[0]).is_file() else [" ".join(words[:-2])]
    return {each.canonical.key() for line in text for each in read_line(line.split(), []).problems}


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--sizes", choices=(*SIZES, "tvm"), default="small")
    options.add_argument("--largest", type=int, default=8192, metavar="N")
    options.add_argument("--times", type=int, default=20)
    options.add_argument("--longest", type=float, default=8.0, metavar="S")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    # A shell starts background jobs with SIGINT ignored, and children inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance, damaged, killed, grew = random.Random(given.seed), [], 0, []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "told").mkdir()
        words = words_of(given.sizes, given.largest, home)
        wanted = asked(words)
        for _ in range(given.times):
            running = [begin(home, words), begin(home, words)]
            for process in running:
                time.sleep(chance.uniform(0.0, given.longest))
                if process.poll() is None:
                    process.send_signal(chance.choice([signal.SIGINT, signal.SIGKILL]))
                    killed += 1
            damaged += [text for each in running if "Traceback" in (text := each.communicate(timeout=300)[1])]
            grew.append(len({row["problem"] for row in told(home)}))
        last = begin(home, words)
        text = last.communicate(timeout=LONGEST_S)[1]
        found = table(home)
        again = [begin(home, words), begin(home, words)]
        damaged += [text for each in again if "Traceback" in (text := each.communicate(timeout=LONGEST_S)[1])]
        same = bool(found) and table(home) == found
        os.environ["TILESMITH_LAB_DIR"] = str(home / "lab")
        from tilesmith.lab.results import read_results

        results = read_results()
        kept = {(each.problem, each.date, each.time_us) for each in results}
        lost = [row for row in told(home) if (row["problem"], row["date"], row["time_us"]) not in kept]
    figures = {
        "interrupted": killed, "told and lost": len(lost), "products in the table": len(found), "of": len(wanted),
        "told after each time": grew, "results kept": len(results), "tracebacks": len(damaged),
        "last exit status": last.returncode, "the same table after two more runs at once": same,
    }  # fmt: skip
    print("\n".join([*damaged, text]), file=sys.stderr)
    print(json.dumps(figures))
    whole = {row["problem"] for row in found} == wanted
    return int(bool(lost) or bool(damaged) or not whole or not same or last.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
