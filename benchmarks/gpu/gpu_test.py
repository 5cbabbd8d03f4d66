"""`make gpu-test`: everything that needs a GPU, on every GPU of the machine at once; about ten minutes on one.

    python benchmarks/gpu/gpu_test.py [--time-limit SECONDS] [--again] [PART ...]

Parts: ``runtime`` (tensors of other libraries, streams, graphs, threads, devices, host time), a name of
benchmarks/problems or another file of driver commands, FILE.txt (each problem by the kernel that is predicted fastest;
none may be left to the reference),
``kernels`` (odd problems through every solver that takes them, in several configs, NaN and Inf planted), ``sanitizer``
(compute-sanitizer over every solver). Without one: all. Every kernel is checked once more as the replay of a graph.

What is done lies in build/gpu-test/ (or ``--state FILE``), so that a run that was stopped goes on. The summary is
benchmarks/results/gpu_test_<card>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
from card import facts, slug  # noqa: E402
from gpu_cases import TOOLS, Case, kernel_cases, list_cases, list_names, sanitizer_cases  # noqa: E402

from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.solvers.generation import generator_digest  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402

FOLDER = ROOT / "build" / "gpu-test"
RESULTS = ROOT / "benchmarks" / "results"
SILENCE_S = 120.0  # after that long without a result a worker hangs
SANITIZER = ("--error-exitcode", "86", "--print-limit", "20")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--state", type=Path, default=FOLDER / "state.jsonl", help="what is done, a JSON line a case")
    parser.add_argument("--again", action="store_true", help="begin anew")
    parser.add_argument("--sample", type=int, default=1, help="every n-th case alone, to try this program")
    options = parser.parse_args()
    deadline = time.monotonic() + options.time_limit
    names = list_names()
    parts = options.parts or ["runtime", *names, "kernels", "sanitizer"]
    names += [part for part in parts if part.endswith(".txt") and Path(part).exists()]
    unknown = [part for part in parts if part not in ("runtime", "kernels", "sanitizer", *names)]
    if unknown:
        print(f"{unknown[0]!r} is no part; known: runtime, kernels, sanitizer, {', '.join(names)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    state = State(options.state, options.again)
    target = cuda_target_of(0)
    cases = [*list_cases(part for part in parts if part in names)]
    cases += kernel_cases(target) if "kernels" in parts else ()
    cases = cases[:: options.sample]
    todo = [case for case in cases if not state.has(case.name)]
    print(f"{len(cases)} cases, {len(todo)} to do, on {len(cuda_devices())} x {cuda_devices()[0].name}", flush=True)
    watched = list(sanitizer_cases(target))[:: options.sample] if "sanitizer" in parts else []
    if "runtime" in parts and not state.has("runtime: host time of a bound call"):
        run_runtime(state)
    run_cases(todo, state, deadline)
    run_sanitizer([case for case in watched if not state.has(case.name)], state, deadline)
    left = sum(case.name not in state.rows for case in [*cases, *watched])
    command = f"make gpu-test{' ARGS=' + repr(' '.join(options.parts)) if options.parts else ''}"
    path = RESULTS / f"gpu_test_{slug(cuda_devices()[0].name)}.json"
    summary = state.write(path, command, left)
    print(f"{summary['ok']} ok, {summary['wrong']} wrong, {left} left; {path.relative_to(ROOT)}")
    for row in summary["failures"][:40]:
        print("WRONG", row["name"], row.get("config", ""), row["message"][:200])
    return 1 if summary["wrong"] else 0


class State:
    """The rows of all cases that ran, by name; the last counts. Those of other generators are forgotten."""

    def __init__(self, path: Path, again: bool) -> None:
        self.path, self.rows = path, {}
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
        with open(self.path, "a") as file:
            for row in rows:
                stamped = row | {"generator": generator_digest()}
                self._take(stamped)
                file.write(json.dumps(stamped) + "\n")

    def _take(self, row: dict) -> None:
        if row.get("generator") == generator_digest():
            self.rows[row["name"]] = row

    def write(self, path: Path, command: str, left: int) -> dict:
        rows = [row for row in self.rows.values() if "left_out" not in row]
        parts: dict[str, Counter] = {}
        for row in rows:
            counts = parts.setdefault(row["part"], Counter())
            counts["ok" if row["ok"] else "wrong"] += 1
            counts["checks"] += row.get("checks", 1)
        by_solver = Counter(row["solver"] for row in rows if row["part"].startswith("list ") and "solver" in row)
        wrong = [row for row in rows if not row["ok"]]
        runtime = [{k: v for k, v in row.items() if k not in ("part", "generator", "index")}
                   for row in rows if row["part"] == "runtime"]  # fmt: skip
        summary = {
            **facts(command), "generator": generator_digest(), "ok": len(rows) - len(wrong), "wrong": len(wrong),
            "left": left, "parts": {name: dict(counts) for name, counts in parts.items()},
            "solvers_of_lists": dict(by_solver.most_common()), "runtime": runtime,
            "failures": [{"message": "", **row} for row in wrong],
        }  # fmt: skip
        path.write_text(json.dumps(summary, indent=1) + "\n")
        return summary


def run_runtime(state: State) -> None:
    rows = FOLDER / "runtime.jsonl"
    rows.unlink(missing_ok=True)
    with open(FOLDER / "runtime.log", "w") as log:
        words = [sys.executable, str(HERE / "gpu_runtime.py"), str(rows)]
        code = subprocess.run(words, stderr=log, check=False).returncode
    found = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    if code:
        found.append({"name": "runtime: the process", "part": "runtime", "ok": False, "message": f"ended with {code}"})
    state.add(found)
    for row in found:
        print(f"{'ok  ' if row['ok'] else 'FAIL'} {row['name']} {row.get('message', '')}", flush=True)


def run_cases(cases: list[Case], state: State, deadline: float) -> None:
    """The cases on all devices; every device has a share of the host's cores."""
    count = len(cuda_devices())
    shares = [cases[i::count] for i in range(count)]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda i: run_share(i, shares[i], state, deadline), range(count)))


def run_share(ordinal: int, cases: list[Case], state: State, deadline: float) -> None:
    """One worker after the other until all cases have a row."""
    listing, results = FOLDER / f"cases_{ordinal}.json", FOLDER / f"rows_{ordinal}.jsonl"
    listing.write_text(json.dumps([asdict(case) for case in cases]))
    start = 0
    while start < len(cases) and time.monotonic() < deadline:
        results.write_text("")
        began = time.monotonic()
        ended = watch(start_worker(ordinal, listing, start, results), results, deadline)
        rows = [json.loads(line) for line in results.read_text().splitlines()]
        start += len(rows)
        for row in rows:
            row.pop("index", None)
        if ended and start < len(cases) and not (rows and rows[-1].pop("dead", False)):
            rows.append({"name": cases[start].name, "part": cases[start].part, "ok": False, "message": ended})
            start += 1
        state.add(rows)
        wrong = [row for row in rows if not row["ok"]]
        print(f"GPU {ordinal}: {start}/{len(cases)}, {len(wrong)} wrong, {time.monotonic() - began:.0f} s", flush=True)
        for row in wrong:
            print("WRONG", row["name"], row.get("config", ""), row.get("message", "")[:200], flush=True)


def start_worker(ordinal: int, listing: Path, start: int, results: Path, tool: str = "") -> subprocess.Popen:
    words = [sys.executable, str(HERE / "gpu_worker.py"), str(listing), str(start), str(results)]
    if tool:
        words = ["compute-sanitizer", "--tool", tool, *SANITIZER, *words]
    cores = sorted(os.sched_getaffinity(0))
    count = len(cuda_devices())
    mine = cores[ordinal::count] or cores
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": str(ordinal), "WORKER_CORES": ",".join(map(str, mine))}
    with open(FOLDER / f"worker_{ordinal}{tool}.log", "a") as log:
        return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=env)


def watch(worker: subprocess.Popen, results: Path, deadline: float, silence_s: float = SILENCE_S) -> str:
    """Wait for a worker; ends one that is silent or late. Says why it ended too early, else nothing."""
    size, heard = -1, time.monotonic()
    while worker.poll() is None:
        time.sleep(0.2)
        now = results.stat().st_size
        if now != size:
            size, heard = now, time.monotonic()
        late = time.monotonic() > deadline
        if late or time.monotonic() - heard > silence_s:
            worker.kill()
            worker.wait()
            return "" if late else f"gave no result within {silence_s:.0f} s"
    return "" if worker.returncode == 0 else f"the process ended with {worker.returncode}"


def run_sanitizer(cases: list[Case], state: State, deadline: float) -> None:
    """Every tool over its cases, a device each."""
    if cases and shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not installed: its part is left out")
        return
    by_tool = {tool: [case for case in cases if case.part == tool] for tool in TOOLS}
    with ThreadPoolExecutor(len(cuda_devices())) as pool:
        jobs = enumerate((tool, mine) for tool, mine in by_tool.items() if mine)
        list(pool.map(lambda job: run_tool(job[0] % len(cuda_devices()), *job[1], state, deadline), jobs))


def run_tool(ordinal: int, tool: str, cases: list[Case], state: State, deadline: float) -> None:
    """One tool over all of its cases; where it complains, over each alone to find which."""
    if time.monotonic() > deadline:
        return
    rows, complaint = watched_rows(ordinal, tool, cases, deadline)
    if complaint and len(cases) > 1:
        middle = len(cases) // 2
        for half in (cases[:middle], cases[middle:]):
            run_tool(ordinal, tool, half, state, deadline)
        return
    state.add([row | ({"ok": False, "message": complaint} if complaint else {}) for row in rows])
    print(f"{tool}: {len(rows)} kernels, {'complaint: ' + complaint[:300] if complaint else 'clean'}", flush=True)


def watched_rows(ordinal: int, tool: str, cases: list[Case], deadline: float) -> tuple[list[dict], str]:
    """Rows of the cases that ran, and what the tool said (or why the process ended)."""
    listing, results = FOLDER / f"cases_{tool}.json", FOLDER / f"rows_{tool}.jsonl"
    listing.write_text(json.dumps([asdict(case) for case in cases]))
    results.write_text("")
    log = FOLDER / f"worker_{ordinal}{tool}.log"
    log.unlink(missing_ok=True)
    ended = watch(start_worker(ordinal, listing, 0, results, tool), results, deadline)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    for row in rows:
        row.pop("index", None)
        row.pop("dead", None)
    if not ended:
        return rows, ""
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
