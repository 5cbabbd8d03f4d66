"""Build the default kernel packages: all lists of benchmarks/problems/, for CPUs and for an H200.

python benchmarks/default_packages.py [-o dist/packages] [-j JOBS] [--target TARGET ...] [--plans N] [--again]

Kernels go to the cache, so a build that was interrupted goes on where it stopped; a package that today's generator made
is left as it is (``--again`` makes it anew). Nothing is measured. The package for the H200 takes what searches found
there (gpu_bench_*h200.json of benchmarks/results/), and has these rows in its find-db; all else is estimated.
The CPU packages are for any processor of their level: they run where there are as many cores, or more.

Exit status 1 if a package is larger than 15 MB, or lacks a problem.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilesmith import __version__
from tilesmith.cli.main import run
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.db.upkeep import revision_of
from tilesmith.errors import PackageError
from tilesmith.package.files import PackageFile
from tilesmith.package.records import Manifest
from tilesmith.plan.assemble import workspace_bytes
from tilesmith.problems.driver import parse_problem
from tilesmith.solvers.generation import generator_digest
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.names import parse_target

ROOT = Path(__file__).parents[1]
LISTS = sorted((ROOT / "benchmarks" / "problems").glob("*.txt"))
SEARCHES = tuple(
    ROOT / "benchmarks" / "results" / f"gpu_bench_{name}h200.json"
    for name in ("nvidia_", "gemms_nvidia_", "irregular_")
)
NAME = "default"
CPUS = tuple(f"{level}:{cores}:generic" for level in ("x86_64-v3", "x86_64-v4") for cores in (1, 4, 16))
TARGETS = ("sm_90a:132:h200", *CPUS)
MOST = 15_000_000  # bytes


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("-o", "--out", type=Path, default=ROOT / "dist" / "packages", help="folder of the packages")
    options.add_argument("-j", "--jobs", type=int, help="compilers at a time (default: one a core)")
    options.add_argument("--target", action="append", metavar="TARGET", help=f"default: {' '.join(TARGETS)}")
    options.add_argument("--plans", type=int, default=1, help="of each problem at most (default 1)")
    options.add_argument("--counter", type=int, default=0, help="of the release (default 0)")
    options.add_argument("--again", action="store_true", help="make packages that are there anew")
    given = options.parse_args()
    status = 0
    with tempfile.TemporaryDirectory(prefix="tilesmith-packages-") as folder:
        database = str(Path(folder) / "measured.db")
        count = store_measured(database)
        print(f"{count} measured rows of {' and '.join(path.name for path in SEARCHES)} still count", file=sys.stderr)
        os.environ["TILESMITH_DB_PATH"] = database  # not what this machine happens to have measured
        for target in map(parse_target, given.target or TARGETS):
            manifest = Manifest(
                NAME, target.name, f"tilesmith {__version__}", generator_digest(target.family), given.counter
            )
            path, began = given.out / manifest.file_name, time.monotonic()
            if given.again or not is_made(path, manifest):
                jobs = ["-j", str(given.jobs)] if given.jobs else []
                status |= run(["package", "build", *map(str, LISTS), "--name", NAME, "--target", target.name,
                               "--plans", str(given.plans), "--counter", str(given.counter), *jobs,
                               "-o", str(given.out)])  # fmt: skip
            if path.exists():  # else no problem had a plan, and the command has said so
                PackageFile(path).verify()
                nbytes = path.stat().st_size
                size = f"{nbytes} bytes, {'under' if nbytes < MOST else 'OVER'} 15 MB"
                print(f"{path.name}: {size}, {time.monotonic() - began:.0f} s", flush=True)
                status |= nbytes >= MOST
    return int(bool(status))


def is_made(path: Path, manifest: Manifest) -> bool:
    """Whether a whole package of this manifest lies there."""
    try:
        held = PackageFile(path)
        held.verify()
    except PackageError:
        return False
    return held.manifest == manifest


def store_measured(database: str) -> int:
    """Store the rows of the committed searches whose solvers still make the same kernels; returns how many."""
    rows = list(measured_rows())
    open_database(database).put_results(rows)
    return len(rows)


def measured_rows() -> Iterator[Record]:
    """The best kernel of each problem as it was measured after its search.

    A row counts as long as its solver has the revision of that time, accepts the problem, and has the config.
    """
    for path in SEARCHES:
        yield from rows_of(json.loads(path.read_text()))


def rows_of(found: dict[str, Any]) -> Iterator[Record]:
    """``measured_rows`` of one result file."""
    target = parse_target(found["target"])
    machine = found["machine"]
    for item in (item for items in found["lists"].values() for item in items):
        signature = dict(parse_problem(item["command"]).signatures).get(item["direction"])
        bench = item["bench"]
        if signature is None or bench.get("status") != "ok":
            continue
        name, revision = bench["solver"], item.get("revision")
        if revision is None or revision != revision_of(name):
            continue
        (candidate,) = candidates(signature, target, (name,)) or (None,)
        if candidate is None or not isinstance(candidate.verdict, Accepted):
            continue
        config = read_config(name, bench["config"])
        if not candidate.solver.search_space(candidate.geometry, target).contains(config):
            continue
        draft = candidate.solver.draft(candidate.geometry, config, target)
        yield Record(
            signature.canonical.key(), target.name, name, str(config), revision, bench["time_us"],
            bench["spread_us"], bench["samples"], bench["prepare_us"],
            workspace_bytes(draft, target) + draft.packed_bytes, bench["error"], bench["bound"],
            method=found["method"], compiler=machine["nvrtc"], generator=item.get("generator", ""),
            host=f"{machine['gpu']}, driver {machine['driver_version']}", date=machine["date"][:10], origin="import",
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
