"""The irregular lists in fp16, and how ours and the library's times differ from those in bf16.

    python benchmarks/irregular_fp16.py [--write]
    python benchmarks/irregular_fp16.py --compare FP16.json BF16.json

Prints benchmarks/problems/irregular_fp16.txt (``--write`` writes it). ``--compare`` takes results of
``make gpu-bench``: the times in fp16 over those in bf16, ours, the library's fastest, and its fastest on operands as
given, then how many times as fast ours are in either; geometric means over the problems that both files hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "gpu"), str(HERE.parent / "src")]
from tables import FEW_CHANNELS, as_given, geomean, merged, ratio  # noqa: E402

PROBLEMS = HERE / "problems"
LIST = PROBLEMS / "irregular_fp16.txt"
WHOLE = ("grouped", "deconv", "volumetric", "few_channels")
FEW = ("resnet50", "diffusion")  # of these the layers with few channels on a side
Times = tuple[float, float | None, float | None]  # ours, and the library's over ours: its fastest, and as given


def fp16(command: str) -> str:
    return command.replace("convbfp16 ", "convfp16 ", 1)


def lines() -> Iterator[str]:
    yield f"# {', '.join(WHOLE)}, and of {' and '.join(FEW)} what has fewer than {FEW_CHANNELS} channels on a side;"
    yield "# fp16, channels last; benchmarks/irregular_fp16.py writes it"
    for name in (*WHOLE, *FEW):
        yield f"# {name}"
        for line in (PROBLEMS / f"{name}.txt").read_text().splitlines():
            words = line.split()
            flags = dict(zip(words[1::2], words[2::2], strict=False))
            if words[0] == "convbfp16" and (name in WHOLE or min(int(flags["-c"]), int(flags["-k"])) < FEW_CHANNELS):
                yield fp16(line)


def times(path: Path) -> dict[str, dict[tuple[str, str], Times]]:
    """Of each list: the times of a result file's problems, by command in fp16 and direction."""
    return {
        name: {
            (fp16(row["command"]), row["direction"]): (row["bench"]["time_us"], ratio(row), as_given(row))
            for row in merged(rows)
            if ratio(row)
        }
        for name, rows in json.loads(path.read_text())["lists"].items()
    }


def compared(title: str, pairs: list[tuple[Times, Times]]) -> str:
    """A line of the table, of pairs of times in fp16 and bf16."""
    theirs = [
        [half[0] * (half[i] or 0) / (full[0] * (full[i] or 1)) for half, full in pairs if half[i] and full[i]]
        for i in (1, 2)
    ]
    columns = [
        geomean(half[0] / full[0] for half, full in pairs),
        *map(geomean, theirs),
        *(geomean(both[which][i] for both in pairs) for i in (1, 2) for which in (0, 1)),
    ]
    return f"{title:14} {len(pairs):4}  " + "  ".join(f"{value or 0:6.3f}" for value in columns)


def compare(halves: Path, fulls: Path) -> None:
    known = {problem: each for rows in times(halves).values() for problem, each in rows.items()}
    print("fp16 / bf16:         ours  fastest  given; ours are faster by, fp16, bf16; as given, fp16, bf16")
    every = []
    for name, rows in times(fulls).items():
        pairs = [(known[problem], each) for problem, each in rows.items() if problem in known]
        every += pairs
        if pairs:
            print(compared(name, pairs))
    print(compared("all", every))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {LIST.name}")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("FP16.json", "BF16.json"), help="result files")
    args = parser.parse_args()
    if args.compare:
        compare(*args.compare)
        return 0
    text = "\n".join(lines()) + "\n"
    if args.write:
        LIST.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
