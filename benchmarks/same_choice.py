"""Fresh processes on one database: do they all choose the same kernel?

    python benchmarks/same_choice.py [-n PROCESSES]

The databases hold answers that tie, answers of two layers, and failed ones; every process asks for several problems,
with another hash seed and order of its environment. Prints, as JSON, what was chosen for each problem how often; exits
with 1 if for any there was more than one choice.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHILD = """
import json, sys
from tilesmith.dispatch.locations import open_cache, open_databases
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.problems.keys import parse_key
from tilesmith.targets.detect import host_target
layers, cache, target = open_databases(readonly=True), open_cache(), host_target(1)
choices = [decide(Request(parse_key(key), target, "fast", layers, cache)) for key in sys.argv[1:]]
print(json.dumps([[c.solver, c.config, c.basis, c.role] for c in choices]))
"""
CONV = (
    "conv1;fwd;x=fp32,NHWC,1x14x14x32;w=fp32,NHWC,32x{t}x{t}x32;y=fp32,NHWC;stride=1x1;pad=0x0;dil=1x1;groups=1;"
    "acc=fp32"
)
GEMM = "gemm1;m={m};n=48;k=32;batch=1;a=fp32,n;b=fp32,n;c=fp32;acc=fp32;alpha=1.0;beta=0.0"
KEYS = (CONV.format(t=1), CONV.format(t=3), GEMM.format(m=8), GEMM.format(m=64))  # the last is in no database


def fill(team: Path, user: Path) -> None:
    """Answers of every solver that fits, with times within each other's spread; some of them in a layer below."""
    from tilesmith.db.opening import open_database
    from tilesmith.db.records import Record
    from tilesmith.dispatch.facts import options_of
    from tilesmith.problems.keys import parse_key
    from tilesmith.targets.detect import host_target

    target = host_target(1)
    for place, key in enumerate(KEYS[:3]):
        options = [option for option in options_of(parse_key(key), target) if option.accepted]
        records = [
            Record(
                key, target.name, option.candidate.name, option.config, option.candidate.solver.revision,
                time_us=50.0 - 0.1 * number, spread_us=2.0, samples=9, error=0.1, bound=1.0,
            )
            for number, option in enumerate(options)
        ]  # fmt: skip
        open_database(team).put_results(records)
        if place:
            open_database(user).put_results([records[-1].failed("wrong numbers"), *records[:place]])


def choices(count: int, environment: dict[str, str]) -> Iterator[list[tuple[str, ...]]]:
    """What each process chose for each problem."""

    def one(number: int) -> list[tuple[str, ...]]:
        mixed = dict(reversed(environment.items())) if number % 2 else environment
        command = [sys.executable, "-c", CHILD, *KEYS]
        text = subprocess.check_output(command, env=mixed | {"PYTHONHASHSEED": str(number)}, text=True)
        return [tuple(choice) for choice in json.loads(text)]

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(one, range(count))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=1000, help="fresh processes")
    count = parser.parse_args(arguments).n
    with tempfile.TemporaryDirectory() as folder:
        team, user = Path(folder) / "team.db", Path(folder) / "user.db"
        fill(team, user)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_")}
        environment |= {"TILESMITH_DB_PATH": f"{team}:{user}", "TILESMITH_CACHE_DIR": str(Path(folder) / "cache")}
        tallies: list[collections.Counter[tuple[str, ...]]] = [collections.Counter() for _ in KEYS]
        for chosen in choices(count, environment):
            for tally, choice in zip(tallies, chosen, strict=True):
                tally[choice] += 1
    chosen = {
        key: {" ".join(choice): times for choice, times in tally.most_common()}
        for key, tally in zip(KEYS, tallies, strict=True)
    }
    print(json.dumps({"processes": count, "chosen": chosen}))
    return 0 if all(len(tally) == 1 for tally in tallies) else 1


if __name__ == "__main__":
    raise SystemExit(main())
