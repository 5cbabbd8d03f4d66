"""`make gpu-test`: everything that needs a GPU, on every GPU of the machine at once.

    python benchmarks/gpu/checks.py [--time-limit SECONDS] [--again] [--commands FILE...] [--max-gflop G] [PART ...]

Parts: ``runtime`` (tensors of other libraries, streams, graphs, threads, devices, host time), a name of
benchmarks/problems (each problem by the kernel that is predicted fastest; none may be left to the reference),
``kernels`` (odd problems through every solver that takes them, in several configs, NaN and Inf planted), ``sanitizer``
(compute-sanitizer: a small problem of every solver and element type). Without one: all. ``--commands`` checks the
problems of other files of driver commands as it does the lists; alone it stands for no other part. Every kernel is
checked once more as the replay of a graph.

What is done lies in build/gpu-test/ (or ``--state FILE``) as soon as it is done, so that a run that was stopped goes
on. The summary is benchmarks/results/gpu_test_<card>.json, written every few seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
import tables  # noqa: E402
from gpu_cases import TOOLS, Case, gflop_of, kernel_cases, list_cases, list_names, sanitizer_cases  # noqa: E402
from tables import facts, slug  # noqa: E402
from workers import environment  # noqa: E402

from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.solvers.generation import generator_digest  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402

FOLDER = ROOT / "build" / "gpu-test"
SILENCE_S = 120.0  # after that long without a result a worker hangs
WRITE_S = 5.0  # between two writings of the summary
WORKERS = 3  # for each GPU: a case is mostly work of the host
FILES = ("runtime", "kernels", "sanitizer")
SANITIZER = ("--error-exitcode", "86", "--print-limit", "20")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--state", type=Path, default=FOLDER / "state.jsonl", help="what is done, a JSON line a case")
    parser.add_argument("--again", action="store_true", help="begin anew")
    parser.add_argument("--sample", type=int, default=1, help="every n-th case alone, to try this program")
    parser.add_argument("--commands", nargs="+", default=[], metavar="FILE", help="files of driver commands")
    parser.add_argument("--max-gflop", type=float, default=float("inf"), help="leave larger problems of lists out")
    options = parser.parse_intermixed_args()
    deadline = time.monotonic() + options.time_limit
    names = list_names()
    parts = options.parts or ([] if options.commands else ["runtime", *names, "kernels", "sanitizer"])
    unknown = [part for part in parts if part not in (*FILES, *names)]
    unknown += [file for file in options.commands if not Path(file).is_file()]
    if unknown:
        print(f"{unknown[0]!r} is no part and no file; known: {', '.join((*FILES, *names))}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    words = " ".join(sys.argv[1:])
    path = tables.RESULTS / f"gpu_test_{slug(cuda_devices()[0].name)}.json"
    state = State(options.state, options.again, path, f"make gpu-test ARGS='{words}'" if words else "make gpu-test")
    target = cuda_target_of(0)
    listed = [*list_cases([*(part for part in parts if part in names), *options.commands])]
    cases = [case for case in listed if gflop_of(case) <= options.max_gflop]
    state.too_large = len(listed) - len(cases)
    cases += kernel_cases(target) if "kernels" in parts else ()
    cases = cases[:: options.sample]
    watched = list(sanitizer_cases(target))[:: options.sample] if "sanitizer" in parts else []
    state.wanted = {case.name for case in [*cases, *watched]}
    todo = [case for case in cases if not state.has(case.name)]
    print(f"{len(cases)} cases, {len(todo)} to do, on {len(cuda_devices())} x {cuda_devices()[0].name}", flush=True)
    if "runtime" in parts and not state.has("runtime: host time of a bound call"):
        run_runtime(state)
    run_cases(todo, state, deadline)
    run_sanitizer([case for case in watched if not state.has(case.name)], state, deadline)
    summary = state.write()
    tables.write_page()
    print(f"{summary['ok']} ok, {summary['wrong']} wrong, {summary['left']} left, {summary['too_large']} too large, "
          f"{summary['left_to_reference']} left to the reference, {summary['replayed']} of {summary['graphs']} "
          f"replayed as graphs; {path.relative_to(ROOT)}")  # fmt: skip
    for row in summary["failures"][:40]:
        print("WRONG", row["name"], row.get("config", ""), row["message"][:200])
    return 1 if summary["wrong"] else 0


class State:
    """The rows of all cases that ran, by name; the last counts. Those of other generators are forgotten."""

    def __init__(self, path: Path, again: bool, summary: Path, command: str) -> None:
        self.path, self.rows, self.wanted, self.too_large = path, {}, set(), 0
        self._summary, self._command, self._written = summary, command, time.monotonic()
        self._lock = threading.Lock()
        if path.exists() and not again:
            for line in path.read_text().splitlines():
                try:
                    self._take(json.loads(line))
                except ValueError:  # a line that was cut
                    continue
        elif again:
            path.unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        return name in self.rows and bool(self.rows[name]["ok"])

    def add(self, rows: list[dict]) -> None:
        if not rows:
            return
        with self._lock, open(self.path, "a") as file:
            for row in rows:
                stamped = row | {"generator": generator_digest("cuda")}
                self._take(stamped)
                file.write(json.dumps(stamped) + "\n")
        if time.monotonic() - self._written > WRITE_S:
            self.write()

    def _take(self, row: dict) -> None:
        if row.get("generator") == generator_digest("cuda"):
            self.rows[row["name"]] = row

    def write(self) -> dict:
        with self._lock:
            self._written = time.monotonic()
            summary = summarized(list(self.rows.values())) | {
                "left": len(self.wanted - self.rows.keys()), "too_large": self.too_large,
                "generator": generator_digest("cuda"), **facts(self._command),
            }  # fmt: skip
            tables.write_json(self._summary, summary)
        return summary


def summarized(rows: list[dict]) -> dict:
    """Counts by part and by solver, the checks of the runtime, and every failure."""
    rows = [row for row in rows if "left_out" not in row]
    parts: dict[str, Counter] = {}
    for row in rows:
        counts = parts.setdefault(row["part"], Counter())
        counts["ok" if row["ok"] else "wrong"] += 1
        counts["checks"] += row.get("checks", 1)
    listed = [row for row in rows if row["part"].startswith("list ") and "solver" in row]
    graphs = [row for row in rows if "replayed" in row]
    wrong = [row for row in rows if not row["ok"]]
    runtime = [{k: v for k, v in row.items() if k not in ("part", "generator", "index")}
               for row in rows if row["part"] == "runtime"]  # fmt: skip
    return {
        "ok": len(rows) - len(wrong), "wrong": len(wrong),
        "left_to_reference": sum(bool(row.get("reference")) for row in listed),
        "graphs": len(graphs), "replayed": sum(bool(row["replayed"]) for row in graphs),
        "parts": {name: dict(counts) for name, counts in sorted(parts.items())},
        "solvers_of_lists": dict(Counter(row["solver"] for row in listed).most_common()), "runtime": runtime,
        "failures": [{"message": "", **row} for row in wrong],
    }  # fmt: skip


def run_runtime(state: State) -> None:
    rows = FOLDER / "runtime.jsonl"
    rows.unlink(missing_ok=True)
    with open(FOLDER / "runtime.log", "w") as log:
        words = [sys.executable, str(HERE / "checks_runtime.py"), str(rows)]
        code = subprocess.run(words, stderr=log, check=False).returncode
    found = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    if code:
        found.append({"name": "runtime: the process", "part": "runtime", "ok": False, "message": f"ended with {code}"})
    state.add(found)
    for row in found:
        print(f"{'ok  ' if row['ok'] else 'FAIL'} {row['name']} {row.get('message', '')}", flush=True)


def run_cases(cases: list[Case], state: State, deadline: float) -> None:
    """The cases on all devices; every worker has a share of the host's cores."""
    count = WORKERS * len(cuda_devices())
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda i: run_share(i, cases[i::count], state, deadline), range(count)))


def run_share(number: int, cases: list[Case], state: State, deadline: float) -> None:
    """One worker after the other until all cases have a row."""
    listing, results = FOLDER / f"cases_{number}.json", FOLDER / f"rows_{number}.jsonl"
    listing.write_text(json.dumps([asdict(case) for case in cases]))
    start, began = 0, time.monotonic()
    while start < len(cases) and time.monotonic() < deadline:
        rows: list[dict] = []
        ended = watch(start_worker(number, listing, start, results), results, deadline, rows, state.add)
        start += len(rows)
        if ended and start < len(cases) and not (rows and rows[-1].get("dead", False)):
            rows.append({"name": cases[start].name, "part": cases[start].part, "ok": False, "message": ended})
            state.add(rows[-1:])
            start += 1
        wrong = [row for row in rows if not row["ok"]]
        for row in wrong:
            print("WRONG", row["name"], row.get("config", ""), row.get("message", "")[:200], flush=True)
    print(f"worker {number}: {start}/{len(cases)}, {time.monotonic() - began:.0f} s", flush=True)


def start_worker(number: int, listing: Path, start: int, results: Path, tool: str = "") -> subprocess.Popen:
    words = [sys.executable, str(HERE / "checks_worker.py"), str(listing), str(start), str(results)]
    if tool:
        words = ["compute-sanitizer", "--tool", tool, *SANITIZER, *words]
    results.write_text("")
    devices = len(cuda_devices())
    log = FOLDER / f"worker_{number}{tool}.log"
    with open(log, "w" if tool else "a") as said:
        return subprocess.Popen(
            words, stdout=said, stderr=subprocess.STDOUT, env=environment(number % devices, devices)
        )


def watch(
    worker: subprocess.Popen, results: Path, deadline: float, rows: list[dict], took: Callable[[list[dict]], None],
    silence_s: float = SILENCE_S,
) -> str:  # fmt: skip
    """Wait for a worker, whose ``rows`` are handed on as they come; ends one that is silent or late.

    Says why it ended too early, else nothing.
    """
    last_output_s, read, ended = time.monotonic(), 0, False
    while not ended:
        time.sleep(0.2)
        ended = worker.poll() is not None
        fresh = results.read_bytes()[read:]
        fresh = fresh[: fresh.rfind(b"\n") + 1]
        if fresh:
            read, last_output_s = read + len(fresh), time.monotonic()
            found = [json.loads(line) for line in fresh.splitlines()]
            for row in found:
                row.pop("index", None)
            rows += found
            took(found)
        late = time.monotonic() > deadline
        if not ended and (late or time.monotonic() - last_output_s > silence_s):
            worker.kill()
            worker.wait()
            return "" if late else f"gave no result within {silence_s:.0f} s"
    return "" if worker.returncode == 0 else f"the process ended with {worker.returncode}"


def run_sanitizer(cases: list[Case], state: State, deadline: float) -> None:
    """Every tool over its cases, each tool's in as many processes as there are shares of devices and cores."""
    if cases and shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not installed: its part is left out")
        return
    count = WORKERS * len(cuda_devices())
    shares = []
    for tool in TOOLS:
        mine = [case for case in cases if case.part == tool]
        pieces = max(1, min(count, len(mine) // 3))
        shares += [(tool, mine[i::pieces]) for i in range(pieces) if mine]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda job: run_tool(job[0], *job[1], state, deadline), enumerate(shares)))


def run_tool(number: int, tool: str, cases: list[Case], state: State, deadline: float) -> None:
    """One tool over its cases; where it complains, over halves of them to find which."""
    if time.monotonic() > deadline:
        return
    rows, complaint = watched_rows(number, tool, cases, deadline)
    if complaint and len(cases) > 1:
        middle = len(cases) // 2
        for half in (cases[:middle], cases[middle:]):
            run_tool(number, tool, half, state, deadline)
        return
    state.add([row | ({"ok": False, "message": complaint} if complaint else {}) for row in rows])
    print(f"{tool}: {len(rows)} kernels, {'complaint: ' + complaint[:300] if complaint else 'clean'}", flush=True)


def watched_rows(number: int, tool: str, cases: list[Case], deadline: float) -> tuple[list[dict], str]:
    """Rows of the cases that ran, and what the tool said (or why the process ended)."""
    listing, results = FOLDER / f"cases_{number}{tool}.json", FOLDER / f"rows_{number}{tool}.jsonl"
    listing.write_text(json.dumps([asdict(case) for case in cases]))
    rows: list[dict] = []
    worker = start_worker(number, listing, 0, results, tool)
    ended = watch(worker, results, deadline, rows, lambda found: None)
    for row in rows:
        row.pop("dead", None)
    if not ended:
        return rows, ""
    log = FOLDER / f"worker_{number}{tool}.log"
    said = [line for line in log.read_text(errors="replace").splitlines() if "=========" in line]
    words = " ".join(line.replace("=========", "").strip() for line in said[1:6])
    missing = (
        [{"name": case.name, "part": case.part, "ok": False} for case in cases[len(rows) :]] if len(cases) == 1 else []
    )
    return rows + missing, f"{ended}: {words}"[:600]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TilesmithError as error:
        print(f"tilesmith: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
