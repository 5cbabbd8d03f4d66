"""Digests of the plans that the installed Tilesmith makes for rows of results (stdin, JSON): see ``carry.py``."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from functools import lru_cache

from gpu_cases import Case, accepted, chosen

from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.errors import TilesmithError
from tilesmith.problems.driver import parse_command
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.signature import parse_key
from tilesmith.solvers.generation import generator_digest
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Config
from tilesmith.solvers.table import Candidate
from tilesmith.targets.cuda import cuda_target
from tilesmith.targets.target import CudaTarget


@lru_cache(maxsize=1)
def signatures_of(command: str) -> dict[str, Signature]:
    return dict(parse_command(command).signatures)


def plans(row: dict, target: CudaTarget) -> str:
    """Everything that a GPU gets for a row: of the measured choice and of the untuned one, or of a case."""
    if "bench" not in row:
        case = Case(row["part"], *row["name"].removeprefix(f"{row['part']}: ").rsplit(" ", 2))
        signature = parse_key(case.key)
        found = chosen(replace(case, number=int(case.number)), signature, target)
        return "" if found is None else plan(*found, target)
    signature = signatures_of(row["command"])[row["direction"]].canonical
    untuned = choose(options_of(signature, target), (), mode="fast")
    assert isinstance(untuned, Choice)
    return "".join(
        plan(candidate, read_config(candidate.name, choice["config"]), target)
        for choice in (row["bench"], {"solver": untuned.solver, "config": untuned.config})
        for candidate in accepted(signature, target)
        if candidate.name == choice["solver"]
    )


def plan(candidate: Candidate, config: Config, target: CudaTarget) -> str:
    return f"{candidate.name} {config} {candidate.solver.draft(candidate.geometry, config, target)!r}"


def main(l2_bytes: int) -> None:
    target, found = replace(cuda_target("sm_90a", 132), l2_bytes=l2_bytes), []
    for row in json.load(sys.stdin):
        try:
            text = plans(row, target)
        except (TilesmithError, ValueError, KeyError, StopIteration):  # there is no such plan in this version
            text = ""
        found.append(hashlib.sha256(text.encode()).hexdigest() if text else "")
    print(json.dumps({"plans": found, "generator": generator_digest("cuda")}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
