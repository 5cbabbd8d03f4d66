"""How far each list of a result file could go: ``python benchmarks/gpu/bounds.py [RESULT.json ...] [--share 0.85]``.

For each list: the geometric mean of the library's time over ours as measured; if every row of ours that is below the
share of the roofline stood at it; the same with what a kernel takes beside (--start: 2.7 us in rows of calls on an
H100, `few.start` in targets/fits/); and if all stood at the roofline; then our rows below the share, and the least
ratio. The roofline is the greater of the times of memory and of products, without launches or tails: no kernel reaches
it. With --rows N the rows that would gain most, each with the factor by which the list's mean grows by it alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from tables import RESULTS, Rows, merged, ratio, short

DEFAULT = ("gpu_bench_irregular_h100.json", "gpu_bench_nvidia_h200.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="*", default=[RESULTS / name for name in DEFAULT])
    parser.add_argument("--share", type=float, default=0.85, help="of the roofline")
    parser.add_argument("--start", type=float, default=2.7, help="us of a kernel beside its memory and products")
    parser.add_argument("--rows", type=int, default=0, metavar="N", help="print the N rows with the most to gain, too")
    args = parser.parse_args()
    for path in args.results:
        print(f"{path.name}\n{'list':18} rows  measured  at {args.share:.2f}  and start  at 1.00  rows below  least")
        for name, rows in json.loads(path.read_text())["lists"].items():
            good = [row for row in merged(rows) if ratio(row)]
            if not good:
                continue
            of = ((0.0, 0.0), (args.share, 0.0), (args.share, args.start), (1.0, 0.0))
            means = [statistics.geometric_mean(raised(good, share, start)) for share, start in of]
            now, there, started, most = means
            below = sum(row["bench"]["roofline"] < args.share for row in good)
            least = min(ratio(row) or 1.0 for row in good)
            print(
                f"{name:18} {len(good):4} {now:9.3f} {there:8.3f} {started:10.3f} {most:8.3f} {below:11} {least:6.2f}"
            )
            for gain, row in gains(good, args.share)[: args.rows]:
                print(f"  {gain:.4f}  {row['bench']['roofline']:.2f}  {ratio(row):5.2f}  {short(row)}")
    return 0


def raised(rows: Rows, share: float, start: float = 0.0) -> list[float]:
    """The library's time over ours, where ours is at most ``start`` us more than ``share`` of the roofline takes."""
    return [(ratio(row) or 1.0) * faster(row["bench"], share, start) for row in rows]


def faster(bench: dict, share: float, start: float) -> float:
    """How many times as fast a row would be: 1 if it is there, or no share is asked."""
    if not share:
        return 1.0
    return max(1.0, bench["time_us"] / (bench["time_us"] * bench["roofline"] / share + start))


def gains(rows: Rows, share: float) -> list[tuple[float, dict]]:
    """Each row with the factor by which the list's mean grows if it alone is raised; the greatest first."""
    found = [(faster(row["bench"], share, 0.0) ** (1 / len(rows)), row) for row in rows]
    return sorted(found, key=lambda pair: -pair[0])


if __name__ == "__main__":
    sys.exit(main())
