"""How good a GPU's search is: untuned against tuned, and tuned against a search three times as long.

    python3 benchmarks/gpu/run.py search [--seconds 12] [--times 3] [--every N] [--time-limit SECONDS] [LIST ...]

LIST is a name in benchmarks/problems (default: all that `make gpu-bench` measures), of which every N-th problem is
searched, on every GPU of the machine at once (``search_worker.py`` says how). Prints a line a problem and the medians,
and writes benchmarks/results/gpu_search_<card>.json after each problem, from which a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
import tables  # noqa: E402
from bench import DISTURBED, LISTS  # noqa: E402
from gpu_cases import listed  # noqa: E402
from tables import facts, slug  # noqa: E402
from workers import Task, WorkerPool  # noqa: E402

from tilesmith.solvers.generation import generator_digest  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices  # noqa: E402

LONGEST_S = 90.0  # of one problem, beyond its searches
MEASURE_S = 8.0


def summary(found: list[dict]) -> dict:
    """Means and medians over the problems that were searched; those whose times say little are left out and counted."""
    rows = [row for row in found if not row.get("disturbed")]
    if not rows:
        return {"problems": 0, "disturbed": len(found)}
    made = {
        "problems": len(rows),
        "disturbed": len(found) - len(rows),
        "untuned_over_tuned": statistics.geometric_mean(r["us"]["fast"] / r["us"]["tuned"] for r in rows),
        "untuned_over_tuned_worst": max(r["us"]["fast"] / r["us"]["tuned"] for r in rows),
        "seconds": statistics.median(r["tuned_seconds"] for r in rows),
        "configs": statistics.median(r["tuned_trials"] for r in rows),
    }
    long = [r for r in rows if "long" in r["us"]]
    if long:
        made["tuned_over_long"] = statistics.geometric_mean(r["us"]["tuned"] / r["us"]["long"] for r in long)
        made["tuned_over_long_worst"] = max(r["us"]["tuned"] / r["us"]["long"] for r in long)
        made["long_configs"] = statistics.median(r["long_trials"] for r in long)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", metavar="LIST")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--times", type=float, default=3.0)
    parser.add_argument("--long-strategy", default="evolutionary")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--again", action="store_true", help="search anew what is there")
    args = parser.parse_args()
    deadline, card = time.monotonic() + args.time_limit, cuda_devices()[0]
    path = tables.RESULTS / f"gpu_search_{slug(card.name)}.json"
    held = json.loads(path.read_text())["results"] if path.exists() and not args.again else []
    good = [row for row in held if row.get("generator") == generator_digest("cuda") and not row.get("disturbed")]
    rows = {row["key"]: row for row in good}
    wanted: dict[str, Task] = {}
    for name in args.lists or LISTS:
        for _, _, signature in listed(name):
            key = signature.canonical.key()
            wanted.setdefault(
                key, {"key": key, "seconds": args.seconds, "times": args.times, "strategy": args.long_strategy}
            )
    chosen = list(wanted)[:: args.every]
    words = " ".join(sys.argv[1:])
    failed: list[str] = []

    def write() -> dict:
        kept = [rows[key] for key in wanted if key in rows]
        data = {
            **facts(f"python3 benchmarks/gpu/run.py search {words}".strip()), "summary": summary(kept), "results": kept,
        }  # fmt: skip
        tables.write_json(path, data)
        return data["summary"]

    lock = threading.Lock()

    def took(ordinal: int, task: Task, answer: dict) -> None:
        with lock:
            note(ordinal, task, answer)

    def note(ordinal: int, task: Task, answer: dict) -> None:
        reason = answer.get("died") or answer.get("failed")
        if reason:
            failed.append(task["key"])
            print(f"FAILED {task['key']}: {reason}", flush=True)
            return
        rows[task["key"]] = {"key": task["key"], "generator": generator_digest("cuda"), **answer}
        times = " ".join(f"{run} {us:.1f}" for run, us in answer["us"].items())
        print(f"GPU {ordinal}: {task['key'][:90]} us: {times}; {answer['tuned_seconds']:.1f} s, "
              f"{answer['tuned_trials']} configs, {answer['config']['tuned'][:60]}", flush=True)  # fmt: skip
        write()

    needed = args.seconds * (1 + args.times) + MEASURE_S
    tasks = [wanted[key] for key in chosen if key not in rows]
    folder = ROOT / "build" / "gpu-search"
    folder.mkdir(parents=True, exist_ok=True)
    pool = WorkerPool(HERE / "search_worker.py", len(cuda_devices()), folder / "log", needed + LONGEST_S)
    left = pool.work(tasks, took, lambda task: time.monotonic() + needed < deadline)
    for name, value in write().items():
        print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")
    disturbed = sum(bool(row.get("disturbed")) for row in rows.values())
    print(f"{len(left)} left, {len(failed)} failed, {disturbed} disturbed; {path.relative_to(ROOT)}")
    tables.write_pages()
    return 1 if failed else DISTURBED if disturbed else 0


if __name__ == "__main__":
    sys.exit(main())
