"""Prints the processor time of untuned choices: of every verdict, default config and estimate of a problem.

    python benchmarks/choice_time.py [LIST ...] [--target sm_90a:132:h200] [--every N] [--solvers]

Each problem of the lists of benchmarks/problems (or each Nth of a list) is asked about once, as a process that has met
it never before asks. Prints the mean and the longest time of each list; with --solvers also what each solver took of
all, a solver and its twin around layout copies apart. Nothing is compiled or measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tilesmith.problems.driver import read_commands
from tilesmith.problems.features import features_of
from tilesmith.problems.rewrite import Signature, rewrites
from tilesmith.solvers.solver import Accepted, refusal
from tilesmith.solvers.table import solvers_for
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import Target

LISTS = Path(__file__).parent / "problems"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", help="names of lists (default: all)")
    parser.add_argument("--target", default="sm_90a:132:h200")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth problem of a list")
    parser.add_argument("--solvers", action="store_true", help="the time of each solver, too")
    args = parser.parse_args()
    target, known = parse_target(args.target), set()
    of_solvers: dict[str, list[float]] = {}
    everything: list[float] = []
    print(f"{'list':18} problems   ms each   longest")
    for path in sorted(LISTS.glob("*.txt")):
        if args.lists and path.stem not in args.lists:
            continue
        problems = [problem for problem in dict.fromkeys(problems_of(path)) if problem not in known][:: args.every]
        known.update(problems)
        times = [asked(problem, target, of_solvers) * 1e3 for problem in problems]
        everything += times
        show(path.stem, times)
    show("all", everything)
    if args.solvers:
        print(f"\n{'solver':24} asked   seconds   longest (ms)")
        for name, each in sorted(of_solvers.items(), key=lambda item: -sum(item[1])):
            print(f"{name:24} {len(each):5} {sum(each):9.2f} {max(each) * 1e3:14.0f}")
    return 0


def problems_of(path: Path) -> Iterator[Signature]:
    for line in read_commands(str(path)):
        if line.command is not None:
            yield from (signature.canonical for _, signature in line.command.signatures)


def asked(problem: Signature, target: Target, of_solvers: dict[str, list[float]]) -> float:
    """Seconds of processor time for every solver's answers about every form of ``problem``, and for the forms."""
    first = time.process_time()
    geometries = [rewrite.signature.geometry for rewrite in rewrites(problem)]
    forms = [(geometry, features_of(geometry)) for geometry in geometries]
    began = time.process_time()
    for solver in solvers_for(target):
        for geometry, features in forms:
            verdict = refusal(solver.features, features) or solver.applicable(geometry, target)
            if isinstance(verdict, Accepted):
                solver.predict(geometry, solver.default_config(geometry, target), target)
        before, began = began, time.process_time()
        of_solvers.setdefault(solver.name, []).append(began - before)
    return began - first


def show(name: str, times: list[float]) -> None:
    if times:
        print(f"{name:18} {len(times):8} {sum(times) / len(times):9.1f} {max(times):9.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
