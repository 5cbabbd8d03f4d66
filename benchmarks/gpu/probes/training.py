"""Timings of many problems for the constants of estimates: few configs each, ours alone.

    python benchmarks/gpu/probes/training.py PROBLEMS [--solver NAME ...] [--picks N] [--hopeless N] [--pairs]
        [--compile S] [--limit S] [--seconds S] [--lock FILE] [--out FILE]

Of each problem, and of each solver whose default is estimated at most ``--hopeless`` times the best one's: the
default, the two others of the least estimate, and N of those estimated at most twice as slow, evenly over their
ranking. With ``--pairs``, each two problems in succession get one another's configs as well. Compiling ends after
``--compile`` seconds; what is not compiled by then is not timed. Then, while FILE is locked, what is left is
checked and timed as `configs.py` does it, at most ``--limit`` seconds long. A process that a kernel kills costs its
problem.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from configs import CACHE, HERE, Tried, accepted, cuda_target_of, measured, problems_of, show

from tilesmith.errors import TilesmithError
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.solver import Accepted, Config, parse_config
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.tune.space import SolverSpace

POOL, SLOWEST = 300, 2.0


def picked(signature: Signature, target, args: argparse.Namespace) -> list[Tried]:
    """What is timed of a problem."""
    found = []
    for candidate in accepted(signature, target):
        if "reference" in candidate.name or (args.solver and not candidate.name.startswith(tuple(args.solver))):
            continue
        default = candidate.solver.default_config(candidate.geometry, target)
        found.append((candidate.solver.predict(candidate.geometry, default, target), candidate, default))
    least = min((seconds for seconds, *_ in found), default=0.0)
    return [
        each
        for seconds, candidate, default in found
        if seconds <= args.hopeless * least
        for each in of_solver(candidate, default, args.picks, target)
    ]


def of_solver(candidate: Candidate, default: Config, picks: int, target) -> list[Tried]:
    solver, geometry = candidate.solver, candidate.geometry
    predict = partial(solver.predict, geometry, target=target)
    space = SolverSpace(candidate.name, solver.search_space(geometry, target), default, predict,
                        partial(solver.ranked, geometry, target))  # fmt: skip
    pool = {config: predict(config) for config in (default, *space.promising(random.Random(1), POOL))}
    others = sorted((config for config in pool if config != default), key=pool.__getitem__)
    chosen, rest = [default, *others[:2]], [c for c in others[2:] if pool[c] <= SLOWEST * pool[default]]
    for number in range(picks):
        part = rest[len(rest) * number // picks : len(rest) * (number + 1) // picks]
        chosen += sorted(part, key=lambda config: hashlib.sha256(str(config).encode()).digest())[:1]
    return [(candidate, config, pool[config]) for config in chosen]


def paired(found: dict[str, list[Tried]], problems: dict[str, Signature], target) -> dict[str, list[Tried]]:
    """Each two in succession with one another's configs, as far as they have them."""
    keys, both = list(found), dict(found)
    for one, other in zip(keys[::2], keys[1::2], strict=False):
        for key, theirs in ((one, found[other]), (other, found[one])):
            known = {candidate.name: candidate for candidate in accepted(problems[key], target)}
            held = {(candidate.name, config) for candidate, config, _ in found[key]}
            for name, config in ((candidate.name, config) for candidate, config, _ in theirs):
                mine = known.get(name)
                if mine is None or (name, config) in held:
                    continue
                if mine.solver.search_space(mine.geometry, target).contains(config):
                    both[key] = [*both[key], (mine, config, mine.solver.predict(mine.geometry, config, target))]
    return both


def compiled_in_time(found: dict[str, list[Tried]], target, seconds: float) -> dict[str, list[Tried]]:
    """``found`` without what is not compiled after ``seconds``."""
    until, texts = time.monotonic() + seconds, {}
    sources = {
        (key, number): candidate.solver.draft(candidate.geometry, config, target).sources
        for key, each in found.items()
        for number, (candidate, config, _) in enumerate(each)
    }
    for needed in sources.values():
        texts.update({source.text: source for source in needed})

    def build(source) -> str:
        if time.monotonic() > until:
            return ""
        try:
            CACHE.get_or_build(source, target)
        except TilesmithError as error:
            print(f"  does not compile: {error}"[:300], flush=True)
            return ""
        return source.text

    with ThreadPoolExecutor(16) as pool:
        done = set(pool.map(build, texts.values()))
    took = time.monotonic() - until + seconds
    print(f"{len(done - {''})} of {len(texts)} sources compiled in {took:.1f} s", flush=True)
    return {
        key: [one for number, one in enumerate(each) if all(s.text in done for s in sources[key, number])]
        for key, each in found.items()
    }


def work(args: argparse.Namespace) -> int:
    """The process that uses the device, from problem ``args.start`` on."""
    target = cuda_target_of(0)
    for number, line in enumerate(Path(args.problems).read_text().splitlines()):
        if number < args.start or time.time() > args.until:
            continue
        Path(f"{args.out}.at").write_text(str(number))
        row = json.loads(line)
        signature = parse_key(row["key"]).canonical
        known = {c.name: c for c in candidates(signature, target) if isinstance(c.verdict, Accepted)}
        each = [(known[name], parse_config(config), seconds) for name, config, seconds in row["picks"]]
        print(f"{number + 1} {row['key']}", flush=True)
        try:
            found = measured(signature, each, target, args.seconds, libraries=())
        except TilesmithError as error:
            print(f"  FAILED: {error}"[:600], flush=True)
            continue
        show(found)
        with open(args.out, "a") as out:
            for solver in sorted({name.split()[0] for name in found["ours"]}):
                mine = {n.partition(" ")[2]: us for n, us in found["ours"].items() if n.split()[0] == solver}
                out.write(
                    json.dumps({"key": row["key"], "solver": solver, "all": mine, "wrong": found["wrong"]}) + "\n"
                )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems")
    parser.add_argument("--solver", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--picks", type=int, default=4, metavar="N")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--hopeless", type=float, default=1.5, metavar="N")
    parser.add_argument("--compile", type=float, default=300.0, metavar="S")
    parser.add_argument("--limit", type=float, default=60.0, metavar="S", help="on the device, until none is begun")
    parser.add_argument("--seconds", type=float, default=0.06, metavar="S", help="of timing, for each problem")
    parser.add_argument("--lock", default="/tmp/gpu.lock", help="held while the device is used")
    parser.add_argument("--out", default="training.jsonl")
    parser.add_argument("--start", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.start is not None:
        return work(args)
    target, began = cuda_target_of(0), time.monotonic()
    problems = problems_of(args.problems)
    found = {key: picked(signature, target, args) for key, signature in problems.items()}
    found = paired(found, problems, target) if args.pairs else found
    print(f"{len(found)} problems, {sum(map(len, found.values()))} configs in {time.monotonic() - began:.1f} s",
          flush=True)  # fmt: skip
    left = {key: each for key, each in compiled_in_time(found, target, args.compile).items() if each}
    picks, at = Path(f"{args.out}.picks"), Path(f"{args.out}.at")
    picks.write_text("".join(
        json.dumps({"key": key, "picks": [[c.name, str(config), seconds] for c, config, seconds in each]}) + "\n"
        for key, each in left.items()
    ))  # fmt: skip
    start = 0
    with open(args.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began, until = time.time(), time.time() + args.limit
        while start < len(left) and time.time() < until:
            words = [str(picks), "--out", args.out, "--seconds", str(args.seconds)]
            command = [sys.executable, HERE / "training.py", *words, "--start", str(start), "--until", str(until)]
            if subprocess.run(command, check=False).returncode == 0:
                break
            start = int(at.read_text()) + 1 if at.exists() else len(left)
            print("  the process died: the next problem has another", flush=True)
        print(f"the lock was held for {time.time() - began:.1f} s", flush=True)
    for path in (picks, at):
        path.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
