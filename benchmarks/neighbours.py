"""What looking for tuned neighbours costs: in a database of 10,000 problems, not one of which is what is asked for.

    python benchmarks/neighbours.py [-n 10000]

Prints the least of many times: the look-up alone, where there are neighbours and where there are none; then a whole
choice in `fast` mode in a process that has met the kind of problem before: a neighbour's, and one that an earlier
process has kept, with the database and with an empty one.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tilesmith.db.layers import Layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.db.store import Database
from tilesmith.dispatch import untuned
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.table import candidates
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune.space import neighbours

TARGET = host_target(1)
BATCHES, SIDES, WIDTHS = (1, 2, 4, 8, 16, 32, 64), (7, 8, 14, 16, 20, 28, 32, 56, 64, 112), (16, 32, 48, 64, 96, 128)


def layer(batch: int, side: int, channels: int, filters: int, window: int, mode: str) -> ConvSignature:
    return ConvSignature((batch, side, side, channels), (filters, window, window, channels), padding=window // 2,
                         mode=mode, shared_layout="NHWC")  # fmt: skip


def drawn(count: int) -> Iterator[Signature]:
    rng, found = random.Random(0), set()
    while len(found) < count:
        sizes = (rng.choice(BATCHES), rng.choice(SIDES), rng.choice(WIDTHS), rng.choice(WIDTHS), rng.choice((1, 3, 5)))
        asked = (*sizes, rng.choice(("fwd", "bwd", "wrw")))
        if asked not in found:
            found.add(asked)
            yield layer(*asked)


def tune(database: Database, key: str) -> None:
    """Put records of some configs of c_dense: as many as a search of seconds tries."""
    (candidate,) = candidates(parse_key(key), TARGET, ("c_dense",))
    solver, geometry = candidate.solver, candidate.geometry
    space, default = solver.search_space(geometry, TARGET), solver.default_config(geometry, TARGET)
    records = [
        Record(key, TARGET.name, "c_dense", str(config), solver.revision, 50.0 + number, 0.1, 9)
        for number, config in enumerate(dict.fromkeys([default, *neighbours(space, default)]))
    ]
    database.record_trials(records)
    database.put_result(records[0])


def least_ms(call: Callable[[], object], times: int = 50) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return best * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=10_000, help="problems of the database")
    count = parser.parse_args().n
    near, far = layer(3, 30, 64, 64, 3, "fwd"), layer(3, 30, 65, 64, 3, "fwd")
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(Path(folder) / "tuned.db")
        database.put_results([Record(each.canonical.key(), TARGET.name, "c_dense", "") for each in drawn(count)])
        layers, cache = Layers((database,)), ArtifactCache(Path(folder) / "cache")
        for name, asked in (("with neighbours", near), ("without", far)):
            key = asked.canonical.key()
            found = layers.neighbours(key, TARGET.name)
            took = least_ms(lambda key=key: layers.neighbours(key, TARGET.name))
            print(f"look-up among {count} problems, {name} ({len(found)}): {took:.3f} ms")
        for key in layers.neighbours(near.canonical.key(), TARGET.name):
            tune(database, key)
        request = Request(near, TARGET, "fast", layers, cache)
        print(f"choice in fast mode by {decide(request).basis}: {least_ms(lambda: decide(request)):.3f} ms")
        empty = Layers((open_database(None),))
        for name, asked, held in (("by a neighbour", near, layers), ("without neighbours", far, layers),
                                  ("with an empty database", far, empty)):  # fmt: skip
            asking = Request(asked, TARGET, "fast", held, cache)
            untuned.keep(asking, decide(asking))
            assert untuned.recall(asking) is not None
            print(f"choice that was kept, {name}: {least_ms(lambda asking=asking: untuned.recall(asking)):.3f} ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
