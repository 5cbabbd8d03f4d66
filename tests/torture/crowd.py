"""Many processes on one cold cache and database, killed at random: nothing wrong is loaded, nothing kept is lost.

Each worker compiles and loads kernels that answer with their own number, keeps and finds their plans, records results
and reads them back, and runs a convolution. Workers look for the same new kernels at the same time. The parent kills
one at random times (SIGKILL) and starts another in its place. At the end it counts, from workers' logs and the store:

- wrong: a kernel, plan, record or convolution that is not the one asked for;
- lost: records that the database had acknowledged and does not hold;
- errors and warnings of any kind;
- recompiled: compilations of a kernel beyond the first, but for those of processes that were killed before their end;
- orphans: what the killed left behind and the next process that compiles has not removed.

    python tests/torture/crowd.py [--processes 8] [--seconds 60] [--seed 0]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from homes import arrays, captured_warnings, is_right, place

from plan_samples import SMALL
from tilesmith import conv
from tilesmith.db.files import records_folder
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch.kept_calls import forget
from tilesmith.plan.records import Plan, Source
from tilesmith.solvers.generation import generator_digest
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import build as build_module
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.toolchain.plans import find_plan, keep_plan

TARGET = host_target(1)
NEW_EACH_S, AT_ONCE = 0.5, 3  # new kernels come in groups
PROBLEMS = 40
KILL_EACH_S, LEAST = 0.15, 4  # kills, however slow the machine is
LAST = 10**6  # the kernel of the process that comes after all


@dataclass(frozen=True)
class Outcome:
    """What a crowd did: counts of work, and of what must not be."""

    processes: int
    seconds: float
    seed: int
    kills: int
    kernels: int
    loads: int
    records: int
    convolutions: int
    wrong: int
    lost: int
    errors: int
    warnings: int
    recompiled: int
    orphans: int
    said: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not (self.wrong or self.lost or self.errors or self.warnings or self.recompiled or self.orphans)


def source_of(number: int) -> Source:
    return Source("c", f"ts_n{number}", "", f"int ts_n{number}(void) {{ return {number}; }}")


def plan_of(number: int, digest: str) -> Plan:
    return replace(SMALL, problem=f"p{number}", target=TARGET.name, artifacts=(digest,))


class Worker:
    """One process. Its log has one line an event, written at once."""

    def __init__(self, home: Path, name: str, begun: float, seed: str) -> None:
        place(home)
        os.environ["TILESMITH_DB_TIMEOUT"] = "60"  # a crowd waits for its turn
        self.cache = ArtifactCache(home / "cache")
        self.database = open_database(home / "data" / "tilesmith.db")
        self.name, self.begun, self.random = name, begun, random.Random(seed)
        self.log = os.open(home / "log" / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.count = 0
        self.acknowledged: dict[str, int] = {}
        build = build_module.build_unit

        def watched(sources: Any, *rest: Any) -> Any:
            self.say("begin", sources[0].symbol)
            made = build(sources, *rest)
            self.say("end", sources[0].symbol)
            return made

        build_module.build_unit = watched

    def say(self, *words: object) -> None:
        os.write(self.log, (" ".join(map(str, words)).replace("\n", "\\n") + "\n").encode())

    def run(self, stop: Path, warnings: list[str]) -> None:
        while not stop.exists():
            try:
                self.random.choice((self.kernel, self.kernel, self.record, self.record, self.convolve))()
            except Exception:
                self.say("error", traceback.format_exc())
            while warnings:
                self.say("warning", warnings.pop())

    def kernel(self) -> None:
        newest = int((time.monotonic() - self.begun) / NEW_EACH_S) * AT_ONCE
        number = max(0, newest + self.random.randrange(AT_ONCE) - self.random.choice((0, 0, 0, AT_ONCE, 10 * AT_ONCE)))
        artifact = self.cache.get_or_build(source_of(number), TARGET)
        self.say("built", f"ts_n{number}")
        self.loads(number, artifact.path)
        plan = plan_of(number, artifact.digest)
        held = find_plan(self.cache, plan.problem, plan.solver, 1, plan.config, TARGET)
        if held is None:
            keep_plan(self.cache, plan, 1, TARGET)
        elif held.plan != plan or held.stale:
            self.say("wrong", f"plan {number}")
        else:
            self.loads(number, held.artifacts[0].path)

    def loads(self, number: int, path: Path) -> None:
        if ctypes.CDLL(str(path))[f"ts_n{number}"]() != number:
            self.say("wrong", f"kernel {number}")
        self.say("loaded")

    def record(self) -> None:
        problem = f"p{self.random.randrange(PROBLEMS)}"
        self.count += 1
        record = Record(problem, "t:1", f"s-{self.name}", "mr=1", time_us=1.0 + self.count, samples=self.count)
        self.database.put_result(record)
        if self.database.persistent:
            self.say("kept", problem, self.count)
            self.acknowledged[problem] = self.count
        self.database.record_trials([replace(record, config=f"mr={i}") for i in range(3)])
        mine = [r for r in self.database.ranking(problem, "t:1") if r.solver == record.solver]
        if mine != [record]:
            self.say("wrong", f"record {record} is {mine}")

    def convolve(self) -> None:
        forget()
        if not is_right(conv(*arrays(), padding=1)):
            self.say("wrong", "convolution")
        self.say("convolved")


def start(home: Path, name: str, begun: float, seed: str) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with captured_warnings() as warnings:  # those of its beginning too
                Worker(home, name, begun, seed).run(home / "stop", warnings)
            status = 0
        except BaseException:
            (home / "log" / f"{name}.died").write_text("error " + traceback.format_exc().replace("\n", "\\n"))
        finally:
            os._exit(status)
    return child


def torment(processes: int, seconds: float, seed: int, home: Path) -> Outcome:
    rng, begun = random.Random(seed), time.monotonic()
    (home / "log").mkdir()
    (home / "temporary").mkdir()
    tempfile.tempdir = str(home / "temporary")
    find_compiler(), generator_digest("cpu")
    names = (f"{i}" for i in range(10**9))
    alive = {start(home, name, begun, f"{seed} {name}"): name for name, _ in zip(names, range(processes), strict=False)}
    killed: set[str] = set()
    while time.monotonic() < begun + seconds or len(killed) < LEAST:
        time.sleep(rng.expovariate(1 / KILL_EACH_S))
        child = rng.choice(list(alive))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed.add(alive.pop(child))
        name = next(names)
        alive[start(home, name, begun, f"{seed} {name}")] = name
    (home / "stop").touch()
    for child in alive:
        os.waitpid(child, 0)
    took = time.monotonic() - begun
    time.sleep(1.5)  # what is younger may belong to somebody
    (home / "stop").unlink()
    child = os.fork()
    if child == 0:
        try:
            last = Worker(home, "last", begun, "")
            last.cache.get_or_build(source_of(LAST), TARGET)
            last.record()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return judge(home, processes, took, seed, killed)


def judge(home: Path, processes: int, seconds: float, seed: int, killed: set[str]) -> Outcome:
    counts, said = Counter[str](), list[str]()
    compiled: dict[str, int] = defaultdict(int)
    kept: dict[tuple[str, str], int] = {}
    for path in (home / "log").iterdir():
        open_: Counter[str] = Counter()
        for line in path.read_text().splitlines():
            word, _, rest = line.partition(" ")
            counts[word] += 1
            if word in ("wrong", "error", "warning"):
                said.append(f"{word} ... {line[-240:]}")
            elif word == "kept":
                problem, number = rest.split()
                kept[problem, f"s-{path.name}"] = max(int(number), kept.get((problem, f"s-{path.name}"), 0))
            elif word == "begin":
                compiled[rest] += 1
                open_[rest] += 1
            elif word == "built":
                open_[rest] = 0
        if path.name in killed:  # it died before anybody could use what it compiled
            for symbol, number in open_.items():
                compiled[symbol] -= min(number, 1)
    database = open_database(home / "data" / "tilesmith.db")
    lost = 0
    for (problem, solver), number in kept.items():
        found = next((r.samples for r in database.ranking(problem, "t:1") if r.solver == solver), 0)
        if found < number:
            lost += 1
            said.append(f"lost: {problem} {solver} at {number}, the database holds {found}")
    database.close()
    orphans = [str(path.relative_to(home)) for path in left_behind(home)]
    again = [symbol for symbol, number in compiled.items() if number > 1]
    said += [f"orphan: {path}" for path in orphans] + [f"recompiled: {symbol}" for symbol in again]
    return Outcome(
        processes, round(seconds, 1), seed, len(killed), len(compiled), counts["loaded"], counts["kept"],
        counts["convolved"], counts["wrong"], lost, counts["error"], counts["warning"], len(again), len(orphans),
        tuple(dict.fromkeys(said))[:10],
    )  # fmt: skip


def left_behind(home: Path) -> list[Path]:
    """Files that are no part of the store."""
    found = [*(home / "temporary").rglob("*")]
    for folder in ("staging", "locks"):
        found += (home / "cache" / folder).rglob("*")
    records = records_folder(home / "data" / "tilesmith.db")
    found += (records / "staging").rglob("*")
    return found + [path for path in (home / "data").iterdir() if path not in (records, home / "data" / "tilesmith.db")]


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--processes", type=int, default=8)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--files", action="store_true", help="a database of one file a record")
    given = options.parse_args()
    home = Path(tempfile.mkdtemp(prefix="tilesmith-crowd-"))
    try:
        if given.files:
            records_folder(home / "data" / "tilesmith.db").mkdir(parents=True)
        outcome = torment(given.processes, given.seconds, given.seed, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(json.dumps({**vars(outcome), "ok": outcome.ok}))
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
