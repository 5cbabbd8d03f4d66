"""`make gpu-bench`: tunes the problem lists on a GPU, measures them beside cuDNN and cuBLAS, writes the docs' tables.

    python benchmarks/gpu/bench.py [--time-limit SECONDS] [--tune-seconds S] [--passes N]
        [--again | --keep-searches] [--fewer N] [--generated-only] [--result NAME] [LIST ...]

All lists of benchmarks/problems that are for GPUs, on every GPU of the machine at once, a process each
(``bench_worker.py`` says what is done with a problem). The user database of the run is build/gpu-bench/.
benchmarks/results/gpu_bench_<card>.json holds what is done after every few problems, so that a run that was stopped
goes on (``--result NAME``: gpu_bench_NAME.json, of lists whose tables have a page of their own). Results of another
generator are measured anew, and a search begins with what another's found, or another card's.

Each of the N passes measures every problem in fresh processes, because a library's own choice differs between
processes. The tables show the median of our times, and the library's fastest.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
import tables  # noqa: E402
from gpu_cases import listed  # noqa: E402
from tables import facts, slug  # noqa: E402
from workers import Task, WorkerPool  # noqa: E402

from tilesmith.db.upkeep import revision_of  # noqa: E402
from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.solvers.generation import generator_digest  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402

LISTS = (
    "resnet50", "boo", "diffusion", "gemm_square", "gemm_llm", "gemm_tvm", "gemm_fp8", "gemm_int8", "gemm_odd",
    "gemm_grouped",
    "volumetric", "deconv", "grouped", "few_channels", "channels_first", "networks", "irregular_random",
    "irregular_fp16", "grouped_fp32", "network_layers", "grouped_volumes", "fused",
)  # fmt: skip
FOLDER = ROOT / "build" / "gpu-bench"
ABOUT = ("method", "cudnn", "cublas", "wall")
LONGEST_S = 90.0  # of one problem, beyond its tuning: then something hangs
DISTURBED = 3  # exit status: all is right, and some times say little; another run takes them again
MEASURE_S = 6.0  # of one problem: data, checks, cuDNN's own trials, and the races
WRITE_S = 5.0  # between two writings of the result file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", metavar="LIST", help=f"of {', '.join(LISTS)}")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--tune-seconds", type=float, default=12.0, help="of a problem")
    parser.add_argument("--seconds", type=float, default=1.5, help="measuring time of a problem")
    parser.add_argument("--again", action="store_true", help="search and measure anew what is there")
    parser.add_argument(
        "--keep-searches", action="store_true",
        help="take configs that another version's search found, if it had time enough and today's untuned choice is of "
        "the same solver",
    )  # fmt: skip
    parser.add_argument(
        "--fewer", type=int, default=0, metavar="N",
        help="search and measure anew what is there if fewer configs were measured",
    )  # fmt: skip
    parser.add_argument("--passes", type=int, default=1, help="fresh processes that measure each problem")
    parser.add_argument("--sample", type=int, default=1, help="every n-th problem alone")
    parser.add_argument("--result", default="", metavar="NAME", help="of the result file: gpu_bench_NAME.json")
    parser.add_argument("--generated-only", action="store_true", help="leave PyTorch's kernels out of every race")
    options = parser.parse_args()
    unknown = [name for name in options.lists if name not in LISTS]
    if unknown:
        print(f"{unknown[0]!r} is no list; known: {', '.join(LISTS)}", file=sys.stderr)
        return 2
    deadline = time.monotonic() + options.time_limit
    FOLDER.mkdir(parents=True, exist_ok=True)
    words = " ".join(sys.argv[1:])
    command = f"make gpu-bench ARGS='{words}'" if words else "make gpu-bench"
    path = tables.RESULTS / f"gpu_bench_{options.result or slug(cuda_devices()[0].name)}.json"
    results = Results(path, command, options.fewer)
    asked = [
        (name, text, direction)
        for name in options.lists or LISTS
        for text, direction, _ in listed(name)[:: options.sample]
    ]
    todo = [
        task_of(problem, options, None if options.again else results.search(*problem),
                external=not options.generated_only, earlier=results.search(*problem, any_version=True),
                keep=options.keep_searches and not results.lacked_time(*problem))
        for problem in asked if options.again or not results.has(*problem)
    ]  # fmt: skip
    count = len(cuda_devices())
    print(f"{len(todo)} problems on {count} x {cuda_devices()[0].name}", flush=True)
    os.environ |= {
        "TILESMITH_DB_PATH": str(FOLDER / "tilesmith"), "TILESMITH_CACHE_DIR": str(FOLDER / "cache"),
    }  # fmt: skip
    began = time.monotonic()

    def took(ordinal: int, task: Task, answer: dict) -> None:
        row = answer if "died" not in answer else {"bench": {"status": "failed", "reason": answer["died"], "ratio": {}}}
        results.add(task["list"], task, row)
        spent = "+".join(f"{seconds:.1f}" for seconds in row.get("seconds", {}).values())
        trials = (row.get("tune") or {}).get("trials", 0)
        print(f"{time.monotonic() - began:.0f} s GPU {ordinal} {task['list']} {tables.short(task)}: "
              f"{tables.ratio(row) or 0:.2f} {tables.portfolio(row) or 0:.2f}, {trials} configs, {spent} s",
              flush=True)  # fmt: skip

    def starts(task: Task) -> bool:
        needed = (0.0 if task["tune"] else options.tune_seconds) + options.seconds + MEASURE_S
        return time.monotonic() + needed < deadline

    def pool() -> WorkerPool:
        return WorkerPool(HERE / "bench_worker.py", count, FOLDER / "log", options.tune_seconds + LONGEST_S)

    left = len(pool().work(todo, took, starts))
    results.spent(time.monotonic() - began, len(todo) - left, count)

    again_bad: Counter[str] = Counter()

    def again(ordinal: int, task: Task, answer: dict) -> None:
        bench = answer.get("bench") or {"status": "failed", "reason": answer.get("died", "")}
        results.add_again(task["list"], task, bench)
        words = f"{tables.ratio(answer) or 0:.2f}"
        if bench["status"] != "ok":
            again_bad[bench["status"]] += 1
            words = f"{bench['status']}: {bench['reason'][:200]}"
        print(f"{time.monotonic() - began:.0f} s GPU {ordinal} again: {tables.short(task)}: {words}", flush=True)

    for number in range(2, options.passes + 1):
        tasks = [
            task_of(problem, options, results.search(*problem))
            for problem in asked
            if results.has(*problem) and results.passes(*problem) < number
        ]
        left += len(pool().work(tasks, again, starts))
    results.write()
    for line in tables.summary({name: tables.merged(rows) for name, rows in results.lists().items()}):
        print(line)
    bad = [row for rows in results.lists().values() for row in rows if (row.get("bench") or {}).get("status") != "ok"]
    failed = [row for row in bad if (row.get("bench") or {}).get("status") != "disturbed"]
    place = os.path.relpath(results.path, ROOT)
    print(f"{left} left, {len(failed)} failed, {len(bad) - len(failed)} disturbed; {place}")
    if again_bad:
        print("of further passes: " + ", ".join(f"{count} {status}" for status, count in again_bad.items()))
    for row in (*failed, *(row for row in bad if row not in failed))[:20]:
        found = row.get("bench") or {}
        print(found.get("status", "failed").upper(), row["command"], row["direction"], found.get("reason", "")[:200])
    tables.write_pages()
    return 1 if failed or again_bad["failed"] else DISTURBED if bad or again_bad else 0


def task_of(
    problem: tuple[str, str, str], options: argparse.Namespace, tune: dict | None, *, external: bool = False,
    earlier: dict | None = None, keep: bool = False,
) -> Task:  # fmt: skip
    """All that ``bench_worker`` asks of a task."""
    name, text, direction = problem
    return {
        "list": name, "command": text, "direction": direction, "tune": tune, "earlier": earlier, "keep": keep,
        "tune_seconds": options.tune_seconds, "seconds": options.seconds, "external": external,
    }  # fmt: skip


def searches_of(paths: Iterable[Path]) -> dict[tuple[str, str, str], dict]:
    """What searches found for the problems of result files."""
    found = {}
    for held in (json.loads(path.read_text()) for path in paths):
        for name, rows in (*held.get("searches", {}).items(), *held["lists"].items()):
            found |= {(name, row["command"], row["direction"]): row["tune"] for row in rows if row.get("tune")}
    return found


class Results:
    """The result file: rows by list and problem."""

    def __init__(self, path: Path, command: str, least_trials: int = 0) -> None:
        self.path, self._command, self._least_trials = path, command, least_trials
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str, str], dict] = {}
        self._searches: dict[tuple[str, str, str], dict] = {}
        self._cut_short: set[tuple[str, str, str]] = set()
        self._about: dict[str, object] = {}
        self._written = 0.0
        if path.exists():
            held = json.loads(path.read_text())
            self._searches = searches_of([path])
            for name, rows in held["lists"].items():
                for row in rows:
                    if tables.is_cut_short(row):
                        self._cut_short.add((name, row["command"], row["direction"]))
                    if row.get("generator") == generator_digest("cuda"):  # others say nothing of today's kernels
                        self._rows[name, row["command"], row["direction"]] = row
            self._about = {name: held.get(name, "") for name in ABOUT} if self._rows else {}
        self._elsewhere = searches_of(other for other in sorted(tables.results()) if other != path)

    def has(self, *problem: str) -> bool:
        """Whether a problem is measured, and its search, if it found less than the untuned choice, had time enough,
        and measured as many configs as were asked for, if there are so many."""
        row = self._rows.get(problem, {})  # type: ignore[call-overload]
        tune = row.get("tune") or {}
        short = tune.get("ended") == "budget" and tune["trials"] < self._least_trials
        return bool((row.get("bench") or {}).get("status") == "ok" and not short and not tables.is_cut_short(row))

    def lacked_time(self, *problem: str) -> bool:
        """Whether the last search of a problem, of any version, ended with less than its untuned choice."""
        return problem in self._cut_short

    def search(self, *problem: str, any_version: bool = False) -> dict | None:
        """What the search found for a problem that is there; of ``any_version`` of the generator, or else of another
        card, or of this version and card."""
        if any_version:
            return self._searches.get(problem) or self._elsewhere.get(problem)  # type: ignore[call-overload]
        return self._rows[problem]["tune"] if self.has(*problem) else None  # type: ignore[index]

    def passes(self, *problem: str) -> int:
        """How often a problem that is there has been measured."""
        return 1 + len(self._rows[problem].get("again", ()))  # type: ignore[index]

    def add_again(self, name: str, task: Task, bench: dict) -> None:
        """One more measurement, if it says something."""
        if bench.get("status") == "ok":
            with self._lock:
                row = self._rows[name, task["command"], task["direction"]]
                row["again"] = [*row.get("again", ()), {key: bench[key] for key in ("time_us", "single_us", "against")}]
            self._write_sometimes()

    def add(self, name: str, task: Task, row: dict) -> None:
        with self._lock:
            self._about |= {key: value for key, value in row.pop("about", {}).items() if value}
            kept = {"command": task["command"], "direction": task["direction"], "tune": None, "external": None} | row
            problem = (name, task["command"], task["direction"])
            works = (row.get("bench") or {}).get("status") == "ok"
            if works or (self._rows.get(problem, {}).get("bench") or {}).get("status") != "ok":
                solver = (row.get("bench") or {}).get("solver") or ""
                self._rows[problem] = kept | {"generator": generator_digest("cuda"), "revision": revision_of(solver)}
        self._write_sometimes()

    def _write_sometimes(self) -> None:
        if time.monotonic() - self._written > WRITE_S:
            self.write()

    def spent(self, seconds: float, problems: int, devices: int) -> None:
        """What a run took, everything included."""
        if problems:
            run = {"seconds": round(seconds, 1), "problems": problems, "devices": devices}
            self._about["wall"] = [*(self._about.get("wall") or []), run]

    def lists(self) -> dict[str, list[dict]]:
        """Rows in the order of the lists."""
        found = {}
        for name in LISTS:
            rows = [self._rows.get((name, text, direction)) for text, direction, _ in listed(name)]
            if any(rows):
                found[name] = [row for row in rows if row]
        return found

    def _other_searches(self) -> dict[str, list[dict]]:
        """What earlier versions' searches found for problems that are not measured yet."""
        found: dict[str, list[dict]] = {}
        for (name, command, direction), tune in self._searches.items():
            if (name, command, direction) not in self._rows:
                found.setdefault(name, []).append({"command": command, "direction": direction, "tune": tune})
        return found

    def write(self) -> None:
        with self._lock:
            self._written = time.monotonic()
            lists = self.lists()
            data = {
                "machine": facts(self._command), "target": cuda_target_of(0).name, **self._about,
                "summary": {name: tables.figures(tables.merged(rows)) for name, rows in lists.items()}, "lists": lists,
                "searches": self._other_searches(),
            }  # fmt: skip
            tables.write_json(self.path, data)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TilesmithError as error:
        print(f"tilesmith: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
