"""Every byte of what is kept, flipped in turn, and every length that it may be cut to: nothing wrong is used.

A compiled kernel, its key file and its plan: a damaged one is refused, so each read gives what was kept or nothing.
A database: what is read is a record that was written, or nothing; opening it never raises, and a damaged file that is
opened for writing takes records again.

    python tests/torture/flips.py [--every N]
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from plan_samples import SMALL
from tilesmith.db.files import records_folder
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch import hits
from tilesmith.dispatch.locations import DatabasePaths
from tilesmith.dispatch.request import Request
from tilesmith.plan.records import Source
from tilesmith.plan.serial import encode
from tilesmith.problems.conv import ConvSignature
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.memo import kept_in
from tilesmith.toolchain.plans import find_plan, keep_plan
from tilesmith.toolchain.sealed import bind_with_record

SOURCE = Source("c", "ts_answer", "", "int ts_answer(void) { return 42; }")
TARGET = host_target(1)
SIGNATURE = ConvSignature((1, 4, 6, 5), (8, 4, 3, 3))
RECORD = Record(
    "conv1;fwd", "x86_64-v4:2:zen4", "c_dense", "mr=6,nr=2", revision=3, time_us=12.5, spread_us=0.25, samples=31,
    prepare_us=2.0, workspace=4096, error=0.5, bound=1.0, method="median", compiler="gcc 12", generator="0.1",
    host="a host", date="2026-01-01T00:00:00Z",
)  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--every", type=int, default=1, help="damage each N-th byte only")
    given = options.parse_args()
    logging.getLogger("tilesmith").addHandler(logging.NullHandler())
    logging.getLogger("tilesmith").propagate = False
    folder = Path(tempfile.mkdtemp(prefix="tilesmith-flips-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        found = torment(folder, given.every)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(found))
    return 1 if any(each["wrong"] for each in found.values()) else 0


def torment(folder: Path, every: int) -> dict[str, Any]:
    """By kind of file: how many damages were tried, and what was wrong."""
    return {**cache_files(folder, every), **databases(folder, every)}


def damages(whole: bytes, every: int) -> Iterator[tuple[str, bytes]]:
    """One bit of a byte flipped, all of its bits flipped, or all cut from there on."""
    rng = random.Random(len(whole))
    for at in range(rng.randrange(every), len(whole), every):
        for name, mask in (("bit", 1 << rng.randrange(8)), ("byte", 255)):
            yield f"{name} {at}", whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :]
        yield f"cut at {at}", whole[:at]
    yield "longer", whole + b"\0"


def cache_files(folder: Path, every: int) -> dict[str, Any]:
    cache = ArtifactCache(folder / "cache")
    kernel = cache.get_or_build(SOURCE, TARGET)
    plan = replace(SMALL, target=TARGET.name, artifacts=(kernel.digest,))
    keep_plan(cache, plan, 1, TARGET)
    (key,) = (cache.directory / "keys").iterdir()
    (kept,) = (cache.directory / "plans").rglob("*.plan")
    (machine,) = (cache.directory / "machine").iterdir()

    request, named = Request(SIGNATURE, TARGET, "hybrid", DatabasePaths(()), cache), DatabasePaths(())
    name = hits._name(request, named)
    cache.offer(name, bind_with_record(name, {"choice": "one"}, encode(plan)))
    (hit,) = (cache.directory / "hits").iterdir()

    def recalled() -> Any:
        return hits._find(request, named)

    def look() -> Any:
        return cache.lookup(SOURCE, TARGET)

    def find() -> Any:
        return find_plan(cache, plan.problem, plan.solver, 1, plan.config, TARGET)

    assert look() == kernel
    assert recalled() is not None
    assert find().plan == plan
    often = max(1, every // 9)  # these are small
    return {
        "kernel": spoiled(kernel.path, often, lambda: [look(), find(), cache.find(kernel.digest)]),
        "key file": spoiled(key, often, lambda: [look()]),
        "plan": spoiled(kept, often, lambda: [find()]),
        "hit": spoiled(hit, often, lambda: [recalled()]),
        "machine": spoiled(machine, max(1, often // 2), lambda: [kept_in(cache.directory)]),
    }


def spoiled(path: Path, every: int, reads: Callable[[], list[Any]]) -> dict[str, Any]:
    whole, tried, wrong = path.read_bytes(), 0, []
    for name, data in damages(whole, every):
        path.write_bytes(data)
        tried += 1
        try:
            if any(value is not None for value in reads()):
                wrong.append(f"{name}: it was used")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    path.write_bytes(whole)
    if any(value is None for value in reads()):
        wrong.append("whole again, and it is not used")
    return {"bytes": len(whole), "tried": tried, "wrong": wrong[:20]}


def databases(folder: Path, every: int) -> dict[str, Any]:
    records = [replace(RECORD, solver=f"s{i}", config=f"mr={i}", time_us=1.5 + i) for i in range(4)]
    found = {}
    for kind in ("database", "file of a record"):
        place = folder / kind.replace(" ", "-")
        path = place / "tilesmith.db"
        place.mkdir()
        if kind != "database":
            records_folder(path).mkdir()
        database = open_database(path)
        database.put_results(records)
        database.record_trials(records)
        database.close()
        file = path if kind == "database" else next(records_folder(path).rglob("results/**/*.json"))
        found[kind] = spoiled_database(path, file, every if kind == "database" else max(1, every // 28), records)
    return found


def spoiled_database(path: Path, file: Path, every: int, records: list[Record]) -> dict[str, Any]:
    whole, tried, wrong = file.read_bytes(), 0, []
    for number, (name, data) in enumerate(damages(whole, every)):
        for readonly in (True,) if number % 4 else (True, False):
            file.write_bytes(data)
            tried += 1
            try:
                wrong += [f"{name}: {text}" for text in strange(path, readonly, records)]
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}: {error}")
            if not readonly:
                for aside in [*path.parent.glob("*.damaged-*"), *path.parent.glob("*.lock")]:
                    aside.unlink()
    file.write_bytes(whole)
    return {"bytes": len(whole), "tried": tried, "wrong": wrong[:20]}


def strange(path: Path, readonly: bool, records: list[Record]) -> Iterator[str]:
    """What a database gives that nobody wrote."""
    database = open_database(path, readonly=readonly)
    read = [*database.ranking(RECORD.problem, RECORD.target), *database.trials(RECORD.problem, RECORD.target)]
    late = replace(RECORD, solver="late")
    yield from (f"{record} was never written" for record in read if record not in (*records, late))
    if not readonly:
        database.put_result(late)
        if late not in database.ranking(RECORD.problem, RECORD.target):
            yield "it takes no records any more"
    database.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
