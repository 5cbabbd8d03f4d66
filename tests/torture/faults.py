"""Every file operation of a publish fails in turn: the convolution still runs, one warning, the store stays readable.

A publish is that of a compiled kernel, its plan, a find-db record and trials, from nothing: no folder exists. The
operations are counted first, then each fails in a process of its own (``faults.c``, loaded with LD_PRELOAD, so that
SQLite's operations fail too): once, and from there to the end of the process. After each, a healthy process must find
the store readable and publish into it. An operation that moves no bytes cannot be short, so that is no case.

What has been tried is written down case by case in ``--state FOLDER``, if given: a run that was stopped goes on there.
(Remove it when the code has changed. A publish has an operation more or less each time, so it is counted but once.)

    python tests/torture/faults.py [--seconds S] [--seed N] [--jobs N] [--state FOLDER]
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHORT = -1
KINDS = {
    "ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS, "EMFILE": errno.EMFILE,
    "EINTR": errno.EINTR, "short": SHORT,
}  # fmt: skip
# What may be retried for ever must succeed in the end: these fail once.
ONCE_ONLY = ("EINTR",)
PROBLEM = "torture"
OPERATIONS = "operations"  # the file of the state that says, by operation, whether it can be short
LEAST = 6  # cases of each share, however slow the machine is
COUNT = -1  # the part of whoever writes it


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=float("inf"), help=f"stop after this time and {LEAST} cases")
    options.add_argument("--seed", type=int, default=0, help="of the order in which cases are tried")
    options.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="who share the cases")
    options.add_argument("--state", type=Path, help="where cases that have been tried are kept")
    given = options.parse_args()
    if "TS_FAULTS" in os.environ:
        part = int(os.environ["TS_FAULTS_PART"])
        torment(given.seconds, given.seed, part, given.jobs, Path(os.environ["TS_FAULTS_STATE"]))
        return 0
    with tempfile.TemporaryDirectory() as passing, ThreadPoolExecutor(given.jobs) as pool:
        state = given.state or Path(passing)
        state.mkdir(parents=True, exist_ok=True)
        if not (state / OPERATIONS).exists():
            again_with_the_shim(COUNT, state.absolute())
        list(pool.map(lambda part: again_with_the_shim(part, state.absolute()), range(given.jobs)))
        found = figures_of(state)
    print(json.dumps(found))
    return 1 if found["wrong"] else 0


def again_with_the_shim(part: int, state: Path) -> None:
    """This script with the same arguments, in a process whose file operations can be made to fail."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of fsyncs
    with tempfile.TemporaryDirectory(prefix="tilesmith-faults-", dir=memory) as folder:
        library = Path(folder) / "faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "faults.c", "-ldl"], check=True)
        (Path(folder) / "temporary").mkdir()
        (Path(folder) / "recalled").mkdir()
        environment = {
            **os.environ, "LD_PRELOAD": str(library), "TS_FAULTS": folder, "TS_FAULTS_PART": str(part),
            "TS_FAULTS_STATE": str(state), "CC": str(HERE / "recall_cc.sh"), "RECALL_DIR": f"{folder}/recalled",
            "TMPDIR": f"{folder}/temporary",
        }  # fmt: skip
        subprocess.run([sys.executable, *sys.argv], env=environment, check=True)


def cases_of(state: Path) -> list[tuple[str, bool, int]]:
    """Each operation with each fault, by name, whether it lasts, and place."""
    return [
        (kind, lasting, at)
        for kind in KINDS
        for lasting in (False, True)
        for at, moves in enumerate((state / OPERATIONS).read_text())
        if not (lasting and kind in ONCE_ONLY) and (moves == "1" or kind != "short")
    ]


def tried_in(state: Path) -> dict[tuple[str, bool, int], dict[str, Any]]:
    """What came of each case, as every process has written it down."""
    whole = [path.read_text().rpartition("\n")[0] for path in sorted(state.glob("*.jsonl"))]
    lines = [json.loads(line) for text in whole for line in text.splitlines()]
    return {tuple(line["case"]): line for line in lines}


def figures_of(state: Path) -> dict[str, Any]:
    tried = tried_in(state)
    reached = [line for line in tried.values() if line["operation"]]
    return {
        "operations": len((state / OPERATIONS).read_text()), "cases": len(cases_of(state)), "runs": len(tried),
        "not_reached": len(tried) - len(reached),
        "by_kind": dict(Counter(line["case"][0] for line in reached).most_common()),
        "by_operation": dict(Counter(line["operation"] for line in reached).most_common()),
        "wrong": [text for line in tried.values() for text in line["wrong"]],
    }  # fmt: skip


def torment(seconds: float, seed: int, part: int, parts: int, state: Path) -> None:
    """The ``part``-th of ``parts`` equal shares of the cases that have not been tried."""
    from homes import arrays, captured_warnings, in_child, is_right, place

    from tilesmith import conv
    from tilesmith.db.records import Record
    from tilesmith.dispatch.locations import open_databases
    from tilesmith.solvers.generation import generator_digest
    from tilesmith.toolchain.compilers import find_compiler

    find_compiler()
    generator_digest("cpu")
    shim = ctypes.CDLL(None)
    shim.ts_fault_name.restype = ctypes.c_char_p
    home = Path(os.environ["TS_FAULTS"]) / "home"
    x, w = arrays()
    answer = Record(PROBLEM, "t:1", "solver", "mr=1", time_us=3.5, samples=9)
    trials = [Record(PROBLEM, "t:1", "solver", f"mr={i}", time_us=3.0 + i, samples=9) for i in range(3)]

    def publish(at: int, error: int, lasting: bool) -> dict[str, Any]:
        place(home)
        shim.ts_fault_arm(str(home).encode(), ctypes.c_long(at), error, lasting)
        with captured_warnings() as warnings:
            right = is_right(conv(x, w, padding=1))
            database = open_databases().writable
            database.put_result(answer)
            database.record_trials(trials)
            seen = [r.config for r in database.ranking(PROBLEM, "t:1")], len(database.trials(PROBLEM, "t:1"))
            persistent = database.persistent
            database.close()
        operation = shim.ts_fault_name().decode()
        shim.ts_fault_arm(b"", ctypes.c_long(-1), 0, False)
        return {
            "right": right, "seen": seen == (["mr=1"], 3), "persistent": persistent, "warnings": warnings,
            "operation": operation,
        }  # fmt: skip

    def counted() -> list[bool]:
        """By operation: can it be short?"""
        place(home)
        shim.ts_fault_arm(str(home).encode(), ctypes.c_long(-1), 0, False)
        conv(x, w, padding=1)
        database = open_databases().writable
        database.put_result(answer)
        database.record_trials(trials)
        database.ranking(PROBLEM, "t:1"), database.trials(PROBLEM, "t:1")
        database.close()
        return [bool(shim.ts_fault_movable(ctypes.c_long(at))) for at in range(shim.ts_fault_count())]

    def healthy() -> dict[str, Any]:
        place(home)
        with captured_warnings() as warnings:
            right = is_right(conv(x, w, padding=1))
            database = open_databases().writable
            found = [r.config for r in database.ranking(PROBLEM, "t:1")], len(database.trials(PROBLEM, "t:1"))
            database.put_result(answer)
            kept = database.persistent and [r.config for r in database.ranking(PROBLEM, "t:1")] == ["mr=1"]
            database.close()
        return {"right": right, "found": found == (["mr=1"], 3), "kept": kept, "warnings": warnings}

    def fresh() -> None:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()

    fresh()
    in_child(counted)
    fresh()  # the compiler remembers its source now
    first = in_child(counted)
    assert not first.error, first.error
    if part == COUNT:
        (state / OPERATIONS).write_text("".join("01"[moves] for moves in first.value))
        return
    cases, tried = cases_of(state), tried_in(state)
    random.Random(seed).shuffle(cases)
    begun, done = time.monotonic(), 0
    with (state / f"{part}-of-{parts}.jsonl").open("a") as log:
        for kind, lasting, at in [case for case in cases[part::parts] if case not in tried]:
            if time.monotonic() - begun > seconds and done >= LEAST:
                break
            done += 1
            fresh()
            told = in_child(lambda at=at, error=KINDS[kind], lasting=lasting: publish(at, error, lasting))
            after = in_child(healthy)
            operation = (told.value or {"operation": "?"})["operation"]
            wrong = [
                f"{kind} {'from' if lasting else 'at'} {at} ({operation}): {text}"
                for text in faults_of(told, after, lasting)
            ]
            line = {"case": (kind, lasting, at), "operation": operation, "wrong": wrong}
            print(json.dumps(line), file=log, flush=True)


def faults_of(told: Any, after: Any, lasting: bool) -> list[str]:
    """What a tormented process and the healthy one after it did that they must not do."""
    if told.error or after.error:
        return [f"tormented: {told.error}" for _ in "1" if told.error] + [
            f"after: {after.error}" for _ in "1" if after.error
        ]
    found = []
    if not told.value["right"]:
        found.append("wrong numbers")
    if not told.value["seen"] and not lasting:  # who cannot read the disk any more sees nothing on it
        found.append("the process does not see what it recorded")
    loud = Counter(line.partition(":")[0] for line in told.value["warnings"])
    if any(number > 1 for number in loud.values()):
        found.append(f"more than one warning: {told.value['warnings']}")
    if not told.value["persistent"] and not loud.get("tilesmith.db"):
        found.append("the database forgets without a word")
    if not after.value["right"] or not after.value["kept"]:
        found.append(f"the store is not usable afterwards: {after.value}")
    if told.value["persistent"] and not after.value["found"]:
        found.append("an acknowledged record is lost")
    if after.value["warnings"]:
        found.append(f"the store is damaged afterwards: {after.value['warnings']}")
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())
