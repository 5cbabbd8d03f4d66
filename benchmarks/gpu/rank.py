"""How well the sm_90a cost model ranks configs: what it says of times that `sm90.py time` wrote.

    python benchmarks/gpu/rank.py FILE... [--top 20] [--all]

Per problem: how much slower than the fastest config that was timed are the model's first choice among them and the best
of its first --top, and the error of its times (of their logarithms, over an empty kernel's time). Then the means.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "src")]
from tilesmith.problems.rewrite import rewrites  # noqa: E402
from tilesmith.problems.signature import parse_key  # noqa: E402
from tilesmith.solvers.cuda.gemm_sm90 import GemmSm90Solver  # noqa: E402
from tilesmith.solvers.old_names import read_config  # noqa: E402
from tilesmith.solvers.solver import Accepted  # noqa: E402
from tilesmith.targets.cuda import cuda_target  # noqa: E402

EMPTY_US = 3.7  # what two events measure around a kernel that does nothing
TARGET = cuda_target("sm_90a", 132)
SOLVER = GemmSm90Solver()


def timed(files):
    """``(key, geometry, {config: us})`` of each problem, from the last file that has it."""
    found = {}
    for file in files:
        for line in Path(file).read_text().splitlines():
            row = json.loads(line)
            for rewrite in rewrites(parse_key(row["key"])):
                geometry = rewrite.signature.geometry
                if isinstance(SOLVER.applicable(geometry, TARGET), Accepted):
                    times = {read_config(SOLVER.name, c): us for c, us in row["all"].items() if c != "torch"}
                    found[row["key"]] = (row["key"], geometry, times)
                    break
    return list(found.values())


def judged(geometry, times, top):
    said = {config: SOLVER.predict(geometry, config, TARGET) * 1e6 for config in times}
    order = sorted(times, key=said.get)
    best = min(times.values())
    errors = [math.log((said[c] + EMPTY_US) / times[c]) for c in times]
    return order, said, times[order[0]] / best, min(times[c] for c in order[:top]) / best, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--all", action="store_true", help="each problem's configs, the fastest first")
    args = parser.parse_args()
    firsts, tops, errors = [], [], []
    for key, geometry, times in timed(args.files):
        order, said, first, top, error = judged(geometry, times, args.top)
        firsts.append(first), tops.append(top), errors.extend(error)
        spread = statistics.pstdev(error)
        print(f"{key[:100]} {len(times)} configs: first {first:.3f}, of {args.top} {top:.3f}, error {spread:.2f}")
        for config in sorted(times, key=times.get) if args.all else ():
            rank = order.index(config)
            print(f"   {times[config]:.1f} us, said {said[config] + EMPTY_US:.1f}, rank {rank}: {config}")
    first, top = (statistics.geometric_mean(found) for found in (firsts, tops))
    error = math.sqrt(statistics.mean(e * e for e in errors))
    print(
        f"{len(firsts)} problems: over the fastest time, the first choice {first:.3f} (worst {max(firsts):.2f}), "
        f"the best of {args.top} {top:.3f}; error {error:.3f}"
    )


if __name__ == "__main__":
    main()
