"""Everything that is measured and checked on GPUs: `make gpu-test`, `gpu-bench`, `gpu-search` and `gpu-all`.

    python benchmarks/gpu/run.py test|bench|search [WORDS ...]      the words of checks.py, bench.py and gpu_search.py
    python benchmarks/gpu/run.py all [--time-limit SECONDS] [--commands FILE...] [STEP ...]

``all`` runs its steps one after the other within a time limit. Steps, in the order given (default: all): ``bench``,
``test`` (without its parts random and sanitizer; with the --commands), ``random`` and ``sanitizer`` (these parts),
``search`` (every 9th problem).
Each has all the time that is left and keeps what is done at once, so the same command goes on where it was stopped,
with the files of benchmarks/results/ and build/gpu-test/state.jsonl.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
from bench import DISTURBED  # noqa: E402
from gpu_cases import list_names  # noqa: E402

SCRIPTS = {"test": "checks.py", "bench": "bench.py", "search": "gpu_search.py"}
STEPS = ("bench", "test", "random", "sanitizer", "search")
LEAST_S = 20.0  # a step that has less is left for the next time
END_S = 10.0  # of a step whose time is over, to write what it has


def words_of(step: str, commands: list[str]) -> list[str]:
    """The command of a step of ``all``."""
    if step == "test":
        return ["checks.py", "runtime", *list_names(), "kernels", *(["--commands", *commands] if commands else [])]
    return {
        "bench": ["bench.py"],
        "random": ["checks.py", "random"],
        "sanitizer": ["checks.py", "sanitizer"],
        "search": ["gpu_search.py", "--every", "9"],
    }[step]


def run(words: list[str]) -> int:
    return subprocess.run([sys.executable, str(HERE / words[0]), *words[1:]], check=False).returncode


def run_all(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="run.py all", description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--commands", nargs="+", default=[], metavar="FILE", help="files of driver commands to check")
    options = parser.parse_intermixed_args(words)
    unknown = [step for step in options.steps if step not in STEPS]
    if unknown:
        print(f"{unknown[0]!r} is no step; known: {', '.join(STEPS)}", file=sys.stderr)
        return 2
    deadline, status = time.monotonic() + options.time_limit, 0
    for step in options.steps or STEPS:
        left = deadline - time.monotonic() - END_S
        if left < LEAST_S:
            print(f"{step}: left for the next time", flush=True)
            continue
        limit = [] if left == float("inf") else ["--time-limit", f"{left:.0f}"]
        began = time.monotonic()
        code = run([*words_of(step, options.commands), *limit])
        print(f"{step}: {'done' if code == 0 else f'status {code}'}, {time.monotonic() - began:.0f} s", flush=True)
        # What failed counts for more than times that say little.
        status = code if status in (0, DISTURBED) and code else status
    return status


def main(words: list[str]) -> int:
    if words[:1] == ["all"]:
        return run_all(words[1:])
    if not words or words[0] not in SCRIPTS:
        print(f"{words[0] if words else ''!r} is not one of all, {', '.join(SCRIPTS)}\n{__doc__}", file=sys.stderr)
        return 2
    return run([SCRIPTS[words[0]], *words[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
