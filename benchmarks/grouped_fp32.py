"""The list grouped in exact fp32: prints benchmarks/problems/grouped_fp32.txt.

    python benchmarks/grouped_fp32.py [--write]

``--write`` writes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

PROBLEMS = Path(__file__).parent / "problems"
LIST = PROBLEMS / "grouped_fp32.txt"


def text() -> str:
    _, *commands = (PROBLEMS / "grouped.txt").read_text().splitlines()
    head = "# grouped in fp32, without TF32, channels last; benchmarks/grouped_fp32.py writes it"
    return "\n".join([head, *(line.replace("convbfp16 ", "conv ", 1) for line in commands)]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {LIST.name}")
    if parser.parse_args().write:
        LIST.write_text(text())
    else:
        print(text(), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
