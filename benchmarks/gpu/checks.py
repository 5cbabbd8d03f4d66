"""`make gpu-test`: everything that needs a GPU, on every GPU of the machine at once.

    python benchmarks/gpu/checks.py [--time-limit SECONDS] [--again] [--commands FILE...] [--max-gflop G]
        [--count N] [--seed N] [--families NAME ...] [--watched NAME ...] [--result NAME] [--lock FILE] [PART ...]

Parts: ``runtime`` (tensors of other libraries, streams, graphs, threads, devices, host time), a name of
benchmarks/problems (each problem by the kernel that is predicted fastest; none may be left to the reference),
``kernels`` (odd problems through every solver that takes them, in several configs, NaN and Inf planted), ``random``
(``--count`` problems of all families, drawn by ``--seed``: untuned and random configs, NaN and Inf planted, bits of
repeated runs), ``sanitizer`` (compute-sanitizer's four tools: the smallest problem of every template, and of every
template and element type). Without one: all. ``--commands`` checks the problems of other files of driver commands as it
does the lists; alone it stands for no other part. Every kernel is checked once more as the replay of a graph.

The kernels of ``random`` and ``sanitizer`` are compiled first, on all cores; then ``--lock`` is held while devices are
used, for ``--device-limit`` seconds at most. What is done lies in build/gpu-test/ (or ``--state FILE``) as soon as it
is done, so that a run that was stopped goes on. The summary is benchmarks/results/gpu_test_<card>.json (or
``--result``), written every few seconds.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
import tables  # noqa: E402
from ahead import candidates_of, compiled_cases, compiled_row, on_all_cores  # noqa: E402
from gpu_cases import (  # noqa: E402
    TOOLS,
    Case,
    gflop_of,
    kernel_cases,
    list_cases,
    list_names,
    random_rows,
    sanitizer_cases,
    small_problems,
)
from random_problems import FAMILIES  # noqa: E402
from tables import facts, slug  # noqa: E402
from workers import environment  # noqa: E402

from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.solvers.generation import generator_digest  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402
from tilesmith.targets.target import CudaTarget  # noqa: E402

FOLDER = ROOT / "build" / "gpu-test"
SILENCE_S = 120.0  # after that long without a result a worker hangs
WRITE_S = 5.0  # between two writings of the summary
WORKERS = 3  # for each GPU: a case is mostly work of the host
FILES = ("runtime", "kernels", "random", "sanitizer")
COUNT, SEED = 5100, 3000  # random problems: 3,000 convolutions and 2,000 matrix products at least
AT_ONCE = 8  # cases that one process compiles
TOGETHER = 12  # cases that one process runs under the sanitizer
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
    parser.add_argument("--count", type=int, default=COUNT, help=f"random problems (default: {COUNT})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of random problems (default: {SEED})")
    parser.add_argument("--families", nargs="+", default=[], choices=FAMILIES, metavar="NAME", help="random ones")
    parser.add_argument("--watched", nargs="+", default=[], metavar="NAME", help="solvers for the sanitizer")
    parser.add_argument("--result", default="", metavar="NAME", help="the summary's name in benchmarks/results")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="held while devices are used")
    parser.add_argument("--compile-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--device-limit", type=float, default=float("inf"), help="seconds on devices")
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes for each device")
    options = parser.parse_intermixed_args()
    deadline = time.monotonic() + options.time_limit
    names = list_names()
    parts = options.parts or ([] if options.commands else ["runtime", *names, "kernels", "random", "sanitizer"])
    unknown = [part for part in parts if part not in (*FILES, *names)]
    unknown += [file for file in options.commands if not Path(file).is_file()]
    if unknown:
        print(f"{unknown[0]!r} is no part and no file; known: {', '.join((*FILES, *names))}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    words = " ".join(_without_paths(sys.argv[1:]))
    path = tables.RESULTS / (options.result or f"gpu_test_{slug(cuda_devices()[0].name)}.json")
    state = State(options.state, options.again, path, f"make gpu-test ARGS='{words}'" if words else "make gpu-test")
    target = cuda_target_of(0)
    listed = [*list_cases([*(part for part in parts if part in names), *options.commands])]
    cases = [case for case in listed if gflop_of(case) <= options.max_gflop]
    state.too_large = len(listed) - len(cases)
    cases += kernel_cases(target) if "kernels" in parts else ()
    cases = cases[:: options.sample]
    drawn = random_rows(options.seed, options.count, options.families)[:: options.sample] if "random" in parts else []
    state.wanted = {case.name for case in [*cases, *(case for row in drawn for case in row)]}
    todo = [case for case in cases if not state.has(case.name)]
    compiling = min(deadline, time.monotonic() + options.compile_limit)
    solvers = tuple(options.watched)
    watched = compile_watched(options.sample, state, target, compiling, solvers) if "sanitizer" in parts else []
    todo += compile_random(drawn, state, target, compiling)
    count = options.workers * len(cuda_devices())
    with locked(options.lock):
        print(f"{len(todo) + len(watched)} of {len(state.wanted)} cases to do on {len(cuda_devices())} x "
              f"{cuda_devices()[0].name}", flush=True)  # fmt: skip
        deadline = min(deadline, time.monotonic() + options.device_limit)
        if "runtime" in parts and not state.has("runtime: host time of a bound call"):
            run_runtime(state)
        with ThreadPoolExecutor(2) as both:  # a kernel under the sanitizer is work of the host, too
            jobs = [both.submit(run_cases, todo, state, deadline, count)]
            jobs.append(both.submit(run_sanitizer, watched, state, deadline, count))
        for job in jobs:
            job.result()
    summary = state.write()
    if not options.result:
        tables.write_pages()
    print(f"{summary['ok']} ok, {summary['wrong']} wrong, {summary['left']} left, {summary['too_large']} too large, "
          f"{summary['left_to_reference']} left to the reference, {summary['replayed']} of {summary['graphs']} "
          f"replayed as graphs; {path.relative_to(ROOT)}")  # fmt: skip
    for row in summary["failures"][:40]:
        print("WRONG", row["name"], row.get("config", ""), row["message"][:200])
    return 1 if summary["wrong"] else 0


def compile_random(rows: list[list[Case]], state: State, target: CudaTarget, deadline: float) -> list[Case]:
    """The random cases that are to be run, their kernels compiled."""
    missing = [row for row in rows if not all(state.has(case.name) for case in row)]
    found, sources = [], set()
    for made in on_all_cores("rows compiled", compiled_row, missing, target, deadline) if missing else ():
        sources |= made.sources
        if made.error:
            state.add([row_of(made.case, made.error)])
        elif not state.has(made.case.name):
            found.append(made.case)
    if missing:
        print(f"{len(sources)} sources for {sum(map(len, missing))} random problems", flush=True)
    return sorted(found, key=lambda case: case.number)


def compile_watched(
    every: int, state: State, target: CudaTarget, deadline: float, solvers: tuple[str, ...]
) -> list[Case]:
    """The cases of the sanitizer that are to be run, their kernels compiled."""
    keys = [signature.key() for signature in small_problems()]
    found = on_all_cores("problems considered", candidates_of, keys, target, deadline)
    cases = [*sanitizer_cases(each for each in found if not solvers or each[0].solver.startswith(solvers))][::every]
    state.wanted |= {case.name for case in cases}
    missing = [case for case in cases if not state.has(case.name)]
    kernels = list({(case.key, case.pick): replace(case, part="") for case in missing}.values())
    tasks = [kernels[i : i + AT_ONCE] for i in range(0, len(kernels), AT_ONCE)]
    built = set()
    for made in on_all_cores("kernels compiled", compiled_cases, tasks, target, deadline) if tasks else ():
        its = [case for case in missing if (case.key, case.pick) == (made.case.key, made.case.pick)]
        if made.error:
            state.add([row_of(case, made.error) for case in its])
        else:
            built |= {case.name for case in its}
    return [case for case in missing if case.name in built]


def _without_paths(words: list[str]) -> Iterator[str]:
    """The words of a command that another machine can repeat."""
    for before, word in zip(["", *words], words, strict=False):
        if "--state" not in (before, word) and "--lock" not in (before, word):
            yield word


def row_of(case: Case, message: str) -> dict:
    return {"name": case.name, "part": case.part, "family": case.family, "ok": False, "message": message[:400]}


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Holds a lock on a file, where one is named."""
    if path is None:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class State:
    """The rows of all cases that ran, by name; the last counts. Those of other generators are forgotten."""

    def __init__(self, path: Path, again: bool, summary: Path, command: str) -> None:
        self.path, self.rows, self.wanted, self.too_large = path, {}, set(), 0
        self._summary, self._command, self._written = summary, command, time.monotonic()
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
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
            summary = self.write()
            print(f"{summary['ok']} ok, {summary['wrong']} wrong, {summary['left']} left", flush=True)

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
    drawn = [row for row in rows if row["part"] == "random"]
    graphs = [row for row in rows if "replayed" in row]
    wrong = [row for row in rows if not row["ok"]]
    runtime = [{k: v for k, v in row.items() if k not in ("part", "generator", "index")}
               for row in rows if row["part"] == "runtime"]  # fmt: skip
    return {
        "ok": len(rows) - len(wrong), "wrong": len(wrong),
        "left_to_reference": sum(bool(row.get("reference")) for row in listed),
        "graphs": len(graphs), "replayed": sum(bool(row["replayed"]) for row in graphs),
        "parts": {name: dict(counts) for name, counts in sorted(parts.items())},
        "solvers_of_lists": solvers_of(listed), "runtime": runtime,
        "failures": [{"message": "", **row} for row in wrong],
        **({"families": families_of(drawn), "solvers_of_random": solvers_of(drawn)} if drawn else {}),
    }  # fmt: skip


def families_of(rows: list[dict]) -> dict[str, dict[str, int]]:
    """What was checked of each family of random problems."""
    found: dict[str, Counter] = {}
    for row in rows:
        counts = {
            "ok": row["ok"], "wrong": not row["ok"], "checks": row.get("checks", 0),
            "replayed as graphs": row.get("replayed", False), "NaN and Inf planted": row.get("planted", False),
            "same bits in 3 runs": row["ok"] and row.get("runs") == 3,
            "same bits in 100 runs": row["ok"] and row.get("runs") == 100,
        }  # fmt: skip
        found.setdefault(row["family"], Counter()).update({name: int(value) for name, value in counts.items()})
    return {name: dict(counts) for name, counts in sorted(found.items())}


def solvers_of(rows: list[dict]) -> dict[str, int]:
    return dict(Counter(row["solver"] for row in rows if "solver" in row).most_common())


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


def run_cases(cases: list[Case], state: State, deadline: float, count: int) -> None:
    """The cases on all devices by ``count`` processes, each of which has a share of the host's cores."""
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
            rows.append(row_of(cases[start], ended))
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


def run_sanitizer(cases: list[Case], state: State, deadline: float, count: int) -> None:
    """Every tool over its cases, in ``count`` processes at a time."""
    if cases and shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not installed: its part is left out")
        return
    shares = [(tool, [case for case in cases if case.part == tool]) for tool in TOOLS]
    shares = [(tool, mine[i : i + TOGETHER]) for tool, mine in shares for i in range(0, len(mine), TOGETHER)]
    order = {case.name: number for number, case in enumerate(cases)}
    shares.sort(key=lambda share: order[share[1][0].name])
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
