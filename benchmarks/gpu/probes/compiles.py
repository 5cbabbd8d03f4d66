"""Random problems of every family: do the kernels that are picked for them compile? Needs no GPU.

    python benchmarks/gpu/probes/compiles.py [--count N] [--seed S] [--families NAME ...] [--target T] [--seconds LIMIT]

The problems and configs are those of ``checks.py random``, which runs them on a GPU. What a compiler refuses is printed
with its problem and config; the exit status is then 1. Kernels that compiled are in the cache, so that the same command
goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "benchmarks" / "gpu"), str(ROOT / "src")]
from ahead import compiled_row, on_all_cores  # noqa: E402
from gpu_cases import random_rows  # noqa: E402
from random_problems import FAMILIES  # noqa: E402

from tilesmith.targets.names import as_target  # noqa: E402
from tilesmith.targets.target import CudaTarget  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", nargs="+", default=[], choices=FAMILIES, metavar="NAME")
    parser.add_argument("--target", default="sm_90a:132:h200")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no row of problems is begun")
    args = parser.parse_args()
    target = as_target(args.target)
    if not isinstance(target, CudaTarget):
        parser.error(f"--target {args.target}: not a GPU")
    rows, done, refused = random_rows(args.seed, args.count, args.families), 0, 0
    for made in on_all_cores("rows compiled", compiled_row, rows, target, time.monotonic() + args.seconds):
        done += 1
        if made.error:
            refused += 1
            print(f"REFUSED {made.case.key} {made.case.pick}: {made.error}", flush=True)
    print(f"{done} of {sum(map(len, rows))} problems for {target.name}, {refused} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
