"""What the estimates choose for every listed problem: of one checkout, of several, and what that takes on a device.

    python benchmarks/choices.py [--target sm_90a:132:h200] [--source DIR] --out FILE.json
    python benchmarks/choices.py FILE.json FILE.json ... [--out CHANGED.json] [--timed TIMINGS.jsonl]

The first writes solver, config and estimate in us of each problem of benchmarks/problems; --source is the ``src`` of
another checkout, whose estimates count. The second compares such FILEs. --out gets the problems whose choices differ,
with all of them: ``benchmarks/gpu/probes/configs.py CHANGED.json`` times these. --timed prints of what that wrote, for
each later FILE: on how many problems it chooses another config than the first, and the geometric mean of the time of
the first one's over its own, with the least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Choices = dict[str, tuple[str, str]]  # solver and config by the problem's key


def choices(target_name: str) -> dict[str, list[Any]]:
    """Solver, config and estimated us of each listed problem that a solver takes."""
    from tilesmith.problems.driver import read_commands
    from tilesmith.problems.keys import parse_key
    from tilesmith.solvers.solver import Accepted
    from tilesmith.solvers.table import candidates
    from tilesmith.targets.names import parse_target

    target = parse_target(target_name)
    found: dict[str, list[Any]] = {}
    lines = [line for path in sorted((HERE / "problems").glob("*.txt")) for line in read_commands(str(path))]
    signatures = [s for line in lines if line.command is not None for _, s in line.command.signatures]
    for key in dict.fromkeys(signature.canonical.key() for signature in signatures):
        able = [c for c in candidates(parse_key(key).canonical, target) if isinstance(c.verdict, Accepted)]
        offers = [(each, each.solver.default_config(each.geometry, target)) for each in able if not each.plain]
        estimates = [each.solver.predict(each.geometry, config, target) for each, config in offers]
        if offers:
            (chosen, config), seconds = min(zip(offers, estimates, strict=True), key=lambda offer: offer[1])
            found[key] = [chosen.name, str(config), round(1e6 * seconds, 3)]
    return found


def read(path: Path) -> Choices:
    return {key: (solver, config) for key, (solver, config, *_) in json.loads(path.read_text()).items()}


def differing(files: list[Choices]) -> dict[str, list[Any]]:
    """The distinct choices of each problem that has more than one."""
    every = {key: list(dict.fromkeys(each[key] for each in files if key in each)) for key in files[0]}
    return {key: found for key, found in every.items() if len(found) > 1}


def timed(first: Choices, later: Choices, path: Path) -> list[float]:
    """The time of the first choice over that of the later one, where they differ and both were timed."""
    times: dict[tuple[str, str, str], float] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        times |= {(line["key"], line["solver"], config): us for config, us in line["all"].items()}
    pairs = [((key, *first[key]), (key, *later[key])) for key in first if key in later and first[key] != later[key]]
    return [times[old] / times[new] for old, new in pairs if old in times and new in times]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.json")
    parser.add_argument("--target", default="sm_90a:132:h200")
    parser.add_argument("--source", type=Path, metavar="DIR", help="the src of another checkout")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--timed", type=Path, metavar="FILE.jsonl")
    args = parser.parse_args()
    if not args.files:
        if args.source is not None:  # before the finder of an editable installation
            sys.meta_path[:] = [
                each for each in sys.meta_path if "editable" not in str(getattr(each, "__module__", ""))
            ]
            sys.path.insert(0, str(args.source.resolve()))
        result: dict[str, list[Any]] = choices(args.target)
        print(f"{len(result)} problems")
    else:
        files = [read(path) for path in args.files]
        result = differing(files)
        print(f"{len(result)} of {len(files[0])} problems have several choices")
        for path, later in zip(args.files[1:], files[1:], strict=True):
            changed = sum(first != later.get(key) for key, first in files[0].items())
            ratios = timed(files[0], later, args.timed) if args.timed else []
            figures = f"{statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}" if ratios else "not timed"
            print(f"{path.name}: {changed} other choices, {len(ratios)} timed: {figures}")
    if args.out is not None:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
