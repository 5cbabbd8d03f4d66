"""Every file operation of a publish fails in turn: the convolution still runs, one warning, the store stays readable.

A publish is that of a compiled kernel, its plan, a find-db record and trials, from nothing: no folder exists. The
operations are counted first, then each fails in a process of its own (``faults.c``, loaded with LD_PRELOAD, so that
SQLite's operations fail too): once, and from there to the end of the process. After each, a healthy process must find
the store readable and publish into it. An operation that moves no bytes cannot be short, so that is no case.

    python tests/torture/faults.py [--seconds S] [--seed N] [--jobs N]
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


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    options.add_argument("--seed", type=int, default=0, help="of the order in which cases are tried")
    options.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="who share the cases")
    options.add_argument("--loud", action="store_true", help="tell what is wrong as it is found, and how far it is")
    given = options.parse_args()
    if "TS_FAULTS" in os.environ:
        part = int(os.environ["TS_FAULTS_PART"])
        print(json.dumps(torment(given.seconds, given.seed, part, given.jobs, given.loud)))
        return 0
    with ThreadPoolExecutor(given.jobs) as pool:
        found = merged(list(pool.map(again_with_the_shim, range(given.jobs))))
    print(json.dumps(found))
    return 1 if found["wrong"] else 0


def again_with_the_shim(part: int) -> dict[str, Any]:
    """This script with the same arguments, in a process whose file operations can be made to fail."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of fsyncs
    with tempfile.TemporaryDirectory(prefix="tilesmith-faults-", dir=memory) as folder:
        library = Path(folder) / "faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "faults.c", "-ldl"], check=True)
        (Path(folder) / "temporary").mkdir()
        (Path(folder) / "recalled").mkdir()
        environment = {
            **os.environ, "LD_PRELOAD": str(library), "TS_FAULTS": folder, "TS_FAULTS_PART": str(part),
            "CC": str(HERE / "recall_cc.sh"), "RECALL_DIR": f"{folder}/recalled", "TMPDIR": f"{folder}/temporary",
        }  # fmt: skip
        done = subprocess.run([sys.executable, *sys.argv], env=environment, stdout=subprocess.PIPE, check=True)
        return dict(json.loads(done.stdout))


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of processes that shared the cases."""
    assert len({(part["operations"], part["cases"]) for part in parts}) == 1, "they did not share the same cases"
    names = ("by_kind", "by_operation")
    sums = {name: sum((Counter(part[name]) for part in parts), Counter[str]()) for name in names}
    return {
        "operations": parts[0]["operations"], "cases": parts[0]["cases"], "runs": sum(part["runs"] for part in parts),
        "not_reached": sum(part["not_reached"] for part in parts),
        **{name: dict(sums[name].most_common()) for name in names},
        "wrong": [text for part in parts for text in part["wrong"]],
    }  # fmt: skip


def torment(seconds: float, seed: int, part: int, parts: int, loud: bool) -> dict[str, Any]:
    """The ``part``-th of ``parts`` equal shares of the cases."""
    from homes import arrays, heard, in_child, is_right, place

    import tilesmith.runtime.executable  # noqa: F401  # what a call imports is imported once, before the forks
    from tilesmith import conv
    from tilesmith.db.records import Record
    from tilesmith.dispatch.facts import open_databases
    from tilesmith.solvers.generation import generator_digest
    from tilesmith.toolchain.compilers import find_compiler

    find_compiler()
    generator_digest()
    shim = ctypes.CDLL(None)
    shim.ts_fault_name.restype = ctypes.c_char_p
    home = Path(os.environ["TS_FAULTS"]) / "home"
    x, w = arrays()
    answer = Record(PROBLEM, "t:1", "solver", "mr=1", time_us=3.5, samples=9)
    trials = [Record(PROBLEM, "t:1", "solver", f"mr={i}", time_us=3.0 + i, samples=9) for i in range(3)]

    def publish(at: int, error: int, lasting: bool) -> dict[str, Any]:
        place(home)
        shim.ts_fault_arm(str(home).encode(), ctypes.c_long(at), error, lasting)
        with heard() as warnings:
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
        with heard() as warnings:
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
    movable = list(first.value)
    cases = [
        (kind, lasting, at)
        for kind in KINDS
        for lasting in (False, True)
        for at, moves in enumerate(movable)
        if not (lasting and kind in ONCE_ONLY) and (moves or kind != "short")
    ]
    random.Random(seed).shuffle(cases)
    by_kind, by_operation, wrong = Counter[str](), Counter[str](), list[str]()
    runs = not_reached = 0
    begun = time.monotonic()
    for kind, lasting, at in cases[part::parts]:
        if time.monotonic() - begun > seconds:
            break
        fresh()
        told = in_child(lambda at=at, error=KINDS[kind], lasting=lasting: publish(at, error, lasting))
        after = in_child(healthy)
        operation = (told.value or {"operation": "?"})["operation"]
        runs += 1
        if operation:
            by_kind[kind] += 1
            by_operation[operation] += 1
        else:  # a publish is not quite the same each time
            not_reached += 1
        found = [
            f"{kind} {'from' if lasting else 'at'} {at} ({operation}): {text}"
            for text in faults_of(told, after, lasting)
        ]
        wrong += found
        for text in found if loud else ():
            print(text, file=sys.stderr, flush=True)
        if loud and runs % 100 == 0:
            print(f"{runs} of {len(cases[part::parts])}", file=sys.stderr, flush=True)
    return {
        "operations": len(movable), "cases": len(cases), "runs": runs, "not_reached": not_reached,
        "by_kind": dict(by_kind), "by_operation": dict(by_operation), "wrong": wrong,
    }  # fmt: skip


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
