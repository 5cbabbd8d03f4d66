"""What one axis of a config changes, measured and estimated: where the two differ, an estimate lacks something.

    python benchmarks/axis_effects.py FILE... --target sm_90a:132:h200 [--solver NAME] [--pairs 6] [--apart 0.05]

FILEs are timings of a card (benchmarks/results/*.jsonl). Of each problem, configs that differ in one axis alone are
pairs. A line for a solver, an axis and its two values: how many pairs, and the geometric means of the larger value's
time over the smaller one's, as measured and as estimated, with the least and the most measured; where there are as many
pairs as asked, and one mean over the other is that far from 1.
"""

from __future__ import annotations

import argparse
import statistics
from itertools import combinations, groupby
from pathlib import Path

from timings import timings

from tilesmith.targets.names import parse_target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--target", default="sm_90a:132:h200")
    parser.add_argument("--solver", default="", help="this one alone, in all its forms")
    parser.add_argument("--pairs", type=int, default=6, help="at least")
    parser.add_argument("--apart", type=float, default=0.05, help="at least; 0: all")
    args = parser.parse_args()
    found: dict[tuple[str, str, int, int], list[tuple[float, float]]] = {}
    for path in args.files:  # times of two files are of two days
        rows = sorted(timings([path], parse_target(args.target)), key=lambda row: (row.solver, row.problem))
        for (name, _), several in groupby(rows, key=lambda row: (row.solver, row.problem)):
            if args.solver in ("", name.partition("@")[0]):
                for first, second in combinations(several, 2):
                    if pair := differing(first.config, second.config):
                        axis, one, other = pair
                        small, large = (first, second) if one < other else (second, first)
                        ratios = (large.seconds / small.seconds, large.estimate / small.estimate)
                        found.setdefault((name.partition("@")[0], axis, *sorted((one, other))), []).append(ratios)
    print(f"{'solver':20} {'axis':20} {'values':>10} {'pairs':>5}  measured  estimated  least  most")
    for (name, axis, one, other), ratios in sorted(found.items()):
        measured, estimated = map(statistics.geometric_mean, zip(*ratios, strict=True))
        if len(ratios) >= args.pairs and abs(measured / estimated - 1) >= args.apart:
            least, most = min(ratio for ratio, _ in ratios), max(ratio for ratio, _ in ratios)
            print(f"{name:20} {axis:20} {one:>4} {other:>5} {len(ratios):5}  {measured:8.3f}  {estimated:9.3f}"
                  f"  {least:5.2f} {most:5.2f}")  # fmt: skip
    return 0


def differing(first: str, second: str) -> tuple[str, int, int] | None:
    """The one axis in which two configs differ, with its values; None if there are more."""
    pairs = list(zip(first.split(), second.split(), strict=False))
    apart = [(one, other) for one, other in pairs if one != other]
    if len(apart) != 1 or len(first.split()) != len(second.split()):
        return None
    (axis, _, one), (_, _, other) = (word.partition("=") for word in apart[0])
    return axis, int(one), int(other)


if __name__ == "__main__":
    raise SystemExit(main())
