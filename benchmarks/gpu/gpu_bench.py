"""`make gpu-bench`: tunes the problem lists on a GPU, measures them beside cuDNN and cuBLAS, writes the docs' tables.

    python benchmarks/gpu/gpu_bench.py [--time-limit SECONDS] [--tune-seconds S] [--again] [--generated-only]
        [LIST ...]

All lists of benchmarks/problems that are for GPUs, on every GPU of the machine at once, each problem with
``tilesmith tune`` and ``tilesmith bench --generated-only``. Where that is not clearly faster than the library,
``tilesmith tune --external`` lets PyTorch's own kernel race too, and ``tilesmith bench --external`` measures what a
PyTorch program gets then. The user database of the run is build/gpu-bench/.
benchmarks/results/gpu_bench_<card>.json holds what is done after every few problems, so that a run that was stopped
goes on; results of another generator are measured anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
import tables  # noqa: E402
from card import facts, slug  # noqa: E402
from gpu_cases import listed  # noqa: E402

from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.solvers.generation import generator_digest  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402

LISTS = ("resnet50", "boo", "diffusion", "gemm_square", "gemm_llm", "volumetric", "deconv", "grouped")
FOLDER = ROOT / "build" / "gpu-bench"
LIBRARIES = "cudnn,cublas"
CHUNKS = 4  # for each device: what a run that is stopped can lose
CLEARLY = 1.03
EXTERNAL_S = 3.0  # of a search whose configs are known already
START_S = 12.0  # of three processes
LONGEST_S = 60.0  # of one problem: then something hangs
MEASURE_S = 4.0  # of one problem: data, checks, cuDNN's own trials, and the race


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", metavar="LIST", help=f"of {', '.join(LISTS)}")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--tune-seconds", type=float, default=12.0, help="of a problem")
    parser.add_argument("--seconds", type=float, default=1.5, help="measuring time of a problem")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--sample", type=int, default=1, help="every n-th problem alone")
    parser.add_argument("--chunk", type=int, default=0, help="problems at a time on a device: what a stop can lose")
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
    book = Book(tables.RESULTS / f"gpu_bench_{slug(cuda_devices()[0].name)}.json", command)
    todo = [
        (name, text, direction)
        for name in options.lists or LISTS
        for text, direction, _ in listed(name)[:: options.sample]
        if options.again or not book.has(name, text, direction)
    ]
    print(f"{len(todo)} problems on {len(cuda_devices())} x {cuda_devices()[0].name}", flush=True)
    count = len(cuda_devices())
    size = options.chunk or max(3, min(12, -(-len(todo) // (CHUNKS * count))))
    chunks = deque(todo[i : i + size] for i in range(0, len(todo), size))
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda ordinal: work(ordinal, chunks, book, options, deadline), range(count)))
    book.write()
    for line in tables.summary(book.lists()):
        print(line)
    left = sum(len(chunk) for chunk in chunks)
    failed = [row for rows in book.lists().values() for row in rows if (row.get("bench") or {}).get("status") != "ok"]
    print(f"{left} left, {len(failed)} failed; {book.path.relative_to(ROOT)}")
    for row in failed[:20]:
        print("FAILED", row["command"], row["direction"], (row.get("bench") or {}).get("reason", "")[:200])
    if tables.PAGE.exists() and tables.BEGIN in tables.PAGE.read_text():
        tables.PAGE.write_text(tables.rendered())
    return 1 if failed else 0


class Book:
    """The result file: rows by list and problem."""

    def __init__(self, path: Path, command: str) -> None:
        self.path, self._command = path, command
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str, str], dict] = {}
        self._about: dict[str, str] = {}
        if path.exists():
            held = json.loads(path.read_text())
            self._about = {name: held.get(name, "") for name in ("method", "cudnn", "cublas")}
            for name, rows in held["lists"].items():
                for row in rows:
                    self._rows[name, row["command"], row["direction"]] = row

    def has(self, *problem: str) -> bool:
        row = self._rows.get(problem, {})  # type: ignore[call-overload]
        good = (row.get("bench") or {}).get("status") == "ok"
        return good and row.get("generator") == generator_digest()

    def add(self, name: str, row: dict, about: dict[str, str]) -> None:
        with self._lock:
            self._rows[name, row["command"], row["direction"]] = row | {"generator": generator_digest()}
            self._about |= {key: value for key, value in about.items() if value}

    def lists(self) -> dict[str, list[dict]]:
        """Rows in the order of the lists."""
        found = {}
        for name in LISTS:
            rows = [self._rows.get((name, text, direction)) for text, direction, _ in listed(name)]
            if any(rows):
                found[name] = [row for row in rows if row]
        return found

    def write(self) -> None:
        with self._lock:
            lists = self.lists()
            data = {
                "machine": facts(self._command), "target": cuda_target_of(0).name, **self._about,
                "summary": {name: tables.figures(rows) for name, rows in lists.items()}, "lists": lists,
            }  # fmt: skip
            staged = self.path.with_suffix(".part")
            staged.write_text(json.dumps(data, indent=1) + "\n")
            staged.replace(self.path)


def work(ordinal: int, chunks: deque, book: Book, options: argparse.Namespace, deadline: float) -> None:
    """Chunks on one device until there are none or the time is over."""
    while chunks:
        needed = START_S + len(chunks[0]) * (options.tune_seconds + options.seconds + MEASURE_S)
        if time.monotonic() + needed > deadline:
            return
        try:
            chunk = chunks.popleft()
        except IndexError:  # another device took it
            return
        began = time.monotonic()
        try:
            rows, about = measured(ordinal, chunk, options)
        except (OSError, ValueError, KeyError) as error:
            print(f"GPU {ordinal}: {error}", flush=True)
            continue
        for (name, _, _), row in zip(chunk, rows, strict=True):
            book.add(name, row, about)
        book.write()
        ratios = " ".join(f"{tables.ratio(row) or 0:.2f}" for row in rows)
        print(f"GPU {ordinal}: {chunk[0][0]} {ratios} ({time.monotonic() - began:.0f} s, {len(chunks)} chunks left)",
              flush=True)  # fmt: skip


def measured(ordinal: int, chunk: list, options: argparse.Namespace) -> tuple[list[dict], dict[str, str]]:
    """Tune and bench some problems on one device; a row each, and what was measured against."""
    problems = [(text, direction) for _, text, direction in chunk]
    by_name = tuned(ordinal, problems, options.tune_seconds, "--generated-only")
    ours, host = benched(ordinal, problems, options.seconds, "--generated-only")
    near = [name for name in problems if (tables.ratio({"bench": ours[name]}) or CLEARLY) < CLEARLY]
    near = [] if options.generated_only else near
    raced = tuned(ordinal, near, EXTERNAL_S, "--external") if near else {}
    theirs = [name for name in near if raced.get(name, {}).get("solver", "").startswith("torch_")]
    portfolio = benched(ordinal, theirs, options.seconds, "--external")[0] if theirs else {}
    rows = [
        {
            "command": name[0], "direction": name[1], "tune": evidence(by_name.get(name)), "bench": ours.get(name),
            "external": portfolio.get(name), "raced": not options.generated_only,
        }
        for name in problems
    ]  # fmt: skip
    return rows, {key: str(host.get(key, "")) for key in ("method", "cudnn", "cublas")}


def tuned(ordinal: int, problems: list[tuple[str, str]], seconds: float, side: str) -> dict[tuple[str, str], dict]:
    """Rows of ``tilesmith tune``."""
    printed = tilesmith(ordinal, "tune", problems, side, "--seconds", str(seconds), "--json")
    return {(row["command"], row["direction"]): row for row in map(json.loads, printed.splitlines())}


def evidence(row: dict | None) -> dict | None:
    kept = ("solver", "config", "time_us", "speedup", "trials", "new_trials", "failed", "seconds", "ended")
    return None if row is None else {key: row[key] for key in kept}


def benched(
    ordinal: int, problems: list[tuple[str, str]], seconds: float, side: str
) -> tuple[dict[tuple[str, str], dict], dict]:
    """Rows of ``tilesmith bench``, and its host. What kills the process costs its own problem alone."""
    path = FOLDER / f"bench_{ordinal}.json"
    path.unlink(missing_ok=True)
    flags = ("--against", LIBRARIES, side, "--seconds", str(seconds), "--json", str(path), "--resume")
    found: dict[tuple[str, str], dict] = {}
    host: dict = {}
    for mine in [problems, *([problem] for problem in problems)]:
        if all(problem in found for problem in mine):
            continue
        path.unlink(missing_ok=True)
        tilesmith(ordinal, "bench", mine, *flags)
        if path.exists():
            held = json.loads(path.read_text())
            host = held["host"] or host
            for row in held["results"]:
                found[row.pop("command"), row.pop("direction")] = row
    for problem in problems:
        found.setdefault(problem, {"status": "failed", "reason": "the process died", "ratio": {}})
    return found, host


def tilesmith(ordinal: int, verb: str, problems: list[tuple[str, str]], *flags: str) -> str:
    """One command on one device, with its share of the host's cores and the database of this run; returns stdout."""
    listing = FOLDER / f"problems_{ordinal}.txt"
    listing.write_text("".join(f"{text}\n" for text in dict.fromkeys(text for text, _ in problems)))
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[ordinal :: len(cuda_devices())] or cores
    home = {
        "TILESMITH_DB_PATH": str(FOLDER / f"tilesmith_{ordinal}.db"), "TILESMITH_CACHE_DIR": str(FOLDER / "cache"),
        "CUDA_VISIBLE_DEVICES": str(ordinal),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))),
    }  # fmt: skip
    pinned = ["taskset", "-c", ",".join(map(str, mine))] if shutil.which("taskset") else []
    words = [*pinned, sys.executable, "-m", "tilesmith", verb, str(listing), "--device", "cuda", *flags]
    with open(FOLDER / f"log_{ordinal}.txt", "a") as log:
        try:
            done = subprocess.run(
                words, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **home}, check=False,
                timeout=START_S + LONGEST_S * len(problems),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return (error.stdout or b"").decode() if isinstance(error.stdout, bytes) else error.stdout or ""
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TilesmithError as error:
        print(f"tilesmith: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
