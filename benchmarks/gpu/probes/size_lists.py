"""The products of ``sizes.py``, and the configs that earlier runs found the fastest for them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "src")]

from tilesmith.lab.words import read_line, type_of  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402

MOST_FIRST = 4  # configs of a product
GONE = " turned=0"  # an axis of some results
NO_MORE = " turned="  # its other values, whose kernels are no more
First = dict[str, list[tuple[str, str]]]  # by problem: solvers with configs, the fastest first


def problems_of(name: str, types: Sequence[str]) -> list[GemmSignature]:
    """The products of a list (its name, or a file), those of some types alone, the largest last: they take longest."""
    path = Path(name) if name.endswith(".txt") else ROOT / "benchmarks" / "problems" / f"{name}.txt"
    found: dict[str, GemmSignature] = {}
    for text in path.read_text().splitlines():
        if text := text.partition("#")[0].strip():
            for each in read_line(text.split(), []).problems:
                if not types or type_of(each) in types:
                    found.setdefault(each.canonical.key(), each)
    return sorted(found.values(), key=work_of)


def work_of(signature: GemmSignature) -> int:
    """Its multiply-adds."""
    return signature.m * signature.n * signature.k * signature.batch


def first_of(files: Iterable[Path]) -> First:
    """What results of ``sizes.py`` (.json) and of ``configs.py`` (.jsonl) name as the fastest configs.

    They may be of other kernels than today's, or of another card: a search measures them before others, and passes over
    those that do not exist any more. Of a config that several files have, the first file's time counts.
    """
    times: dict[str, dict[tuple[str, str], float]] = {}
    for path in files:
        text = path.read_text()
        rows = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
        for row in rows:
            if "problem" in row:
                found = {row["config"]: row["time_us"]}
            else:
                found = {config.removesuffix(GONE): us for config, us in row["all"].items()}
            mine = times.setdefault(row.get("problem") or row["key"], {})
            for config, us in found.items():
                if NO_MORE not in config:
                    mine.setdefault((row["solver"], config), us)
    return {key: sorted(mine, key=mine.__getitem__)[:MOST_FIRST] for key, mine in times.items()}
