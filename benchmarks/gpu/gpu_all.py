"""`make gpu-all`: every measurement and every check of the GPU page, one after the other, within a time limit.

    python benchmarks/gpu/gpu_all.py [--time-limit SECONDS] [--commands FILE...] [STEP ...]

Steps, in the order given (default: all): ``bench`` (gpu_bench.py), ``test`` (gpu_test.py without its sanitizer part;
with the --commands), ``sanitizer`` (that part), ``search`` (search.py, every 9th problem). Each has all the time that
is left and keeps what is done at once, so the same command goes on where it was stopped, with the files of
benchmarks/results/ and build/gpu-test/state.jsonl.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
from gpu_bench import DISTURBED  # noqa: E402
from gpu_cases import list_names  # noqa: E402

STEPS = ("bench", "test", "sanitizer", "search")
LEAST_S = 20.0  # a step that has less is left for the next time
END_S = 10.0  # of a step whose time is over, to write what it has


def words_of(step: str, commands: list[str]) -> list[list[str]]:
    """The commands of a step."""
    if step == "bench":
        return [["gpu_bench.py"]]
    if step == "test":
        more = ["--commands", *commands] if commands else []
        return [["gpu_test.py", "runtime", *list_names(), "kernels", *more]]
    return [["gpu_test.py", "sanitizer"]] if step == "sanitizer" else [["search.py", "--every", "9"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--commands", nargs="+", default=[], metavar="FILE", help="files of driver commands to check")
    options = parser.parse_intermixed_args()
    unknown = [step for step in options.steps if step not in STEPS]
    if unknown:
        print(f"{unknown[0]!r} is no step; known: {', '.join(STEPS)}", file=sys.stderr)
        return 2
    deadline, status = time.monotonic() + options.time_limit, 0
    for step in options.steps or STEPS:
        for words in words_of(step, options.commands):
            left = deadline - time.monotonic() - END_S
            if left < LEAST_S:
                print(f"{step}: left for the next time", flush=True)
                continue
            limit = [] if left == float("inf") else ["--time-limit", f"{left:.0f}"]
            began = time.monotonic()
            code = subprocess.run([sys.executable, str(HERE / words[0]), *words[1:], *limit], check=False).returncode
            print(f"{step}: {'done' if code == 0 else f'status {code}'}, {time.monotonic() - began:.0f} s", flush=True)
            # What failed counts for more than times that say little.
            status = code if status in (0, DISTURBED) and code else status
    return status


if __name__ == "__main__":
    sys.exit(main())
