"""Counts the lines and files of `src` and `benchmarks` by kind, today and at other revisions. Needs git.

    python benchmarks/lines.py [REVISION ...]

Without revisions: before and after the rebuild of the house (2026-11-23), in which families of kernels got rooms of
their own, before the family that was added to try it. What came after a revision is told apart: the files that it does
not have, under no name that git can follow. Results of benchmarks and lists of problems are
no code.
"""

from __future__ import annotations

import argparse
import subprocess
from collections import Counter
from collections.abc import Set
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "benchmarks")
KINDS = {".py": "Python", ".pyi": "Python", ".cu": "CUDA", ".cuh": "CUDA", ".c": "C", ".h": "C"}
BEFORE, AFTER = "b02ed628~", "6a83392d~"  # the rebuild's first step; the family that was added after it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revisions", nargs="*", default=[BEFORE, AFTER])
    trees = {each: lines_of(each) for each in parser.parse_args().revisions}
    today = lines_of("HEAD")
    print(f"| revision | folder | {' | '.join(f'{kind}: files, lines' for kind in kinds())} | all: files, lines |")
    print("|---|---|" + "---|" * (len(kinds()) + 1))
    for name, held in {**trees, "HEAD": today}.items():
        for folder in FOLDERS:
            print_row(name, folder, held)
    for name in trees:
        came = added_since(name)
        for folder in FOLDERS:
            print_row(f"HEAD without what came since {name}", folder, without(today, came))
            print_row(f"came since {name}", folder, without(today, today.keys() - came))
    return 0


def print_row(name: str, folder: str, held: dict[str, int]) -> None:
    files, lines = Counter[str](), Counter[str]()
    for path, count in held.items():
        if path.startswith(f"{folder}/"):
            files[KINDS[Path(path).suffix]] += 1
            lines[KINDS[Path(path).suffix]] += count
    cells = [f"{files[kind]}, {lines[kind]:,}" for kind in kinds()]
    print(f"| {name} | {folder} | {' | '.join(cells)} | {files.total()}, {lines.total():,} |")


def without(held: dict[str, int], paths: Set[str]) -> dict[str, int]:
    return {path: lines for path, lines in held.items() if path not in paths}


def kinds() -> list[str]:
    return list(dict.fromkeys(KINDS.values()))


def lines_of(revision: str) -> dict[str, int]:
    """The lines of each source file at a revision."""
    counted = git("grep", "-c", "", revision, "--", *FOLDERS)
    found = (line.removeprefix(f"{revision}:").rpartition(":") for line in counted.splitlines())
    return {path: int(count) for path, _, count in found if Path(path).suffix in KINDS}


def added_since(revision: str) -> set[str]:
    """The files of today that the revision does not have: neither there nor where they were moved from."""
    return set(git("diff", "-M40%", "--diff-filter=A", "--name-only", revision, "HEAD", "--", *FOLDERS).splitlines())


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    raise SystemExit(main())
