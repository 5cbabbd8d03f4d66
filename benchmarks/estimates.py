"""How good choices without a measurement are: untuned against tuned, and a tuned neighbour's config against tuned.

    python benchmarks/estimates.py [FILE ...] [--target sm_90a:132:h200] [--rows] [--list NAME ...]

FILEs are those of benchmarks/results/ with timings of several configs (default: all of the target's card). For each
list of benchmarks/problems, and for the problems that are in none, of the problems with two timed configs or more in a
file (times of two days or methods are not compared):

- untuned: the config that the estimates choose among those that were timed, over the fastest of them; `asked` counts
  the problems where the choice among all configs was timed as well, so that it is judged as a user gets it;
- neighbour: for each two problems that differ in batch or image size alone, the config that `fast` mode takes if the
  timed configs of the other one are all that a database holds, over the fastest. Of a file of
  `gpu/probes/training.py`, these are the other one's own: those that it was given for its pair do not count. Where the
  config that is taken was not timed, the pair is `left`.

Geometric mean, worst, and the share that is more than 1.12 and 2 times slower. Nothing is measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

from timings import Timing, timings

from tilesmith.db.layers import Layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch.answers import neighbours_of
from tilesmith.dispatch.neighbours import by_neighbour
from tilesmith.dispatch.request import Request
from tilesmith.problems.driver import read_commands
from tilesmith.problems.keys import parse_key
from tilesmith.problems.outline import outline_of
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.names import parse_target
from tilesmith.toolchain.cache import ArtifactCache

HERE = Path(__file__).parent
OWN = 6  # configs of a solver that `gpu/probes/training.py --picks 3` has of a problem, before those of its pair
Ratios = list[tuple[float, str]]
Runs = dict[tuple[str, str], list[Timing]]  # by file and problem


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--target", default="sm_90a:132:h200")
    parser.add_argument("--list", nargs="+", default=[], metavar="NAME", help="these lists alone")
    parser.add_argument("--rows", action="store_true", help="each problem that is more than 1.12 times slower, too")
    args = parser.parse_args()
    target = parse_target(args.target)
    files = args.files or sorted((HERE / "results").glob(f"gpu_*{args.target.rpartition(':')[2]}.json*"))
    lists = listed(args.list)
    known = set().union(*lists.values())
    by_run: Runs = {}
    for file in files:
        for row in timings([file], target):
            if not args.list or row.problem in known:
                by_run.setdefault((file.name, row.problem), []).append(row)
    several = {run: rows for run, rows in by_run.items() if len(rows) > 1}
    print(f"{sum(map(len, several.values()))} timings, of problems with two or more in a file\n")
    print(f"{'untuned over the fastest':26} problems  asked  geomean   worst  >1.12  >2.00")
    for name, keys in lists.items():
        exact, found = untuned({run: rows for run, rows in several.items() if run[1] in keys}, target)
        show(name, found, f"{exact:6}", args.rows)
    if not args.list:
        exact, found = untuned({run: rows for run, rows in several.items() if run[1] not in known}, target)
        show("(in no list)", found, f"{exact:6}", args.rows)
    print(f"\n{'neighbour over the fastest':26}    pairs  left  geomean   worst  >1.12  >2.00")
    found, estimated, left = neighbouring(several, target)
    show("tuned neighbour", found, f"{left:6}", args.rows)
    show("untuned, the same pairs", estimated, " " * 6, False)
    return 0


def listed(names: list[str]) -> dict[str, set[str]]:
    """The keys of each list."""
    found = {}
    for path in sorted((HERE / "problems").glob("*.txt")):
        if not names or path.stem in names:
            lines = [line.command for line in read_commands(str(path)) if line.command is not None]
            found[path.stem] = {s.canonical.key() for command in lines for _, s in command.signatures}
    return found


def untuned(several: Runs, target) -> tuple[int, Ratios]:
    """How many of the choices among all configs were timed, and what the choices among those that were take."""
    exact, found = 0, []
    for (_, problem), rows in several.items():
        fastest, chosen = min(row.seconds for row in rows), min(rows, key=lambda row: row.estimate)
        asked = default_of(problem, target)
        exact += asked == (chosen.solver, chosen.config)
        found.append((chosen.seconds / fastest, f"{problem}: {chosen.solver} {chosen.config}"))
    return exact, found


def default_of(problem: str, target) -> tuple[str, str]:
    """The solver and config that the estimates choose among all."""
    accepted = [c for c in candidates(parse_key(problem).canonical, target) if isinstance(c.verdict, Accepted)]
    found = []
    for candidate in (each for each in accepted if not each.plain):
        config = candidate.solver.default_config(candidate.geometry, target)
        found.append((candidate.solver.predict(candidate.geometry, config, target), candidate.name, str(config)))
    return min(found, key=lambda each: each[0])[1:] if found else ("", "")  # of a tie the first, as for users


def neighbouring(several: Runs, target) -> tuple[Ratios, Ratios, int]:
    """What neighbours choose, what estimates choose for the same problems, and the pairs that are not judged."""
    found, estimated, left = [], [], 0
    outlines = {run: outline for run in several if (outline := outline_of(run[1])) is not None}
    for run, mine in outlines.items():
        for other, theirs in outlines.items():
            if mine.distance(theirs) is None:
                continue
            problem, rows = run[1], several[run]
            request = tuned(problem, other[1], own(several[other]), target)
            choice = by_neighbour(request, neighbours_of(request), ())
            times = {(row.solver, row.config): row.seconds for row in rows}
            seconds = None if choice is None else times.get((choice.solver, choice.config))
            if choice is None or seconds is None:
                left += 1
                continue
            fastest, chosen = min(times.values()), min(rows, key=lambda row: row.estimate)
            found.append((seconds / fastest, f"{problem}: {choice.solver} {choice.config} of {theirs.sizes}"))
            estimated.append((chosen.seconds / fastest, problem))
    return found, estimated, left


def own(rows: list[Timing]) -> list[Timing]:
    """Of each solver, those that a probe picked for this problem: they come before those of its pair."""
    count: dict[str, int] = {}
    found = []
    for row in rows:
        count[row.solver] = count.get(row.solver, 0) + 1
        if count[row.solver] <= OWN:
            found.append(row)
    return found


def tuned(problem: str, other: str, rows: Iterable[Timing], target) -> Request:
    """A request for ``problem`` where the database holds what was timed of ``other``."""
    database, records = open_database(None), []
    revisions = {c.name: c.solver.revision for c in candidates(parse_key(other).canonical, target)}
    for row in sorted(rows, key=lambda row: -row.seconds):  # the fastest result takes the place of the others
        evidence = (revisions[row.solver], row.seconds * 1e6, 0.0, 9)
        records.append(Record(other, target.name, row.solver, row.config, *evidence))
    database.record_trials(records)
    database.put_results(records)
    return Request(parse_key(problem), target, "fast", Layers((database,)), ArtifactCache(HERE / "none"))


def show(name: str, found: Ratios, more: str, rows: bool) -> None:
    if not found:
        return
    ratios = [ratio for ratio, _ in found]
    shares = "".join(f"{sum(ratio > most for ratio in ratios) / len(ratios):7.0%}" for most in (1.12, 2.0))
    print(f"{name:26} {len(found):8} {more} {statistics.geometric_mean(ratios):8.3f} {max(ratios):7.2f}{shares}")
    if rows:
        for ratio, text in sorted(found, reverse=True):
            if ratio > 1.12:
                print(f"    {ratio:5.2f} {text}")


if __name__ == "__main__":
    sys.exit(main())
