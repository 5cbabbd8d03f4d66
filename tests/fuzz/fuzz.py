"""Fuzzes each ``NAME_target.c`` (libFuzzer with sanitizers) and every reader of ``readers.py`` (atheris).

Both engines are libFuzzer: they start from the seeds and ``corpus/``, mutate towards code that nothing has reached yet,
and stop at the first finding of a target, which is written down and fails the run. ``--grow`` keeps the inputs that
reach something new in the corpus, which ``make test`` replays.

    python tests/fuzz/fuzz.py [--seconds 600] [--seed N] [--only NAME ...] [--jobs N] [--findings FOLDER] [--grow]
        [--json FILE]
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
# The targets in C, with the longest input of each; ``c-plan`` is plan_target.c, and begins with corpus/plan.
IN_C = {"c-plan": 4096, "c-problem": 640, "c-package": 16384}
PATIENCE_S = 60  # for one input, on a machine with other work
MOST_MIB = 4096
GROWN_BYTES = 2000  # larger inputs stay out of the corpus
MISSING = {
    "clang": "apt-get install clang libclang-rt-14-dev (clang with its libFuzzer, in the distribution's version)",
    "atheris": "pip install -e '.[fuzz]'",
}


@dataclass(frozen=True)
class Told:
    """What fuzzing one target gave; ``coverage`` counts edges, ``found`` the inputs that reached more of them.

    ``cpu_s`` is less than ``seconds`` on a machine with other work.
    """

    engine: str
    seconds: float
    cpu_s: float
    seed: int
    inputs: int
    runs: int
    found: int
    coverage: int
    findings: tuple[str, ...]


def main() -> int:
    names = [*IN_C, *names_of_readers()]
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=int, default=600, help="for each target")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    options.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="targets at a time")
    options.add_argument("--findings", type=Path, default=Path("build/fuzz"), help="where inputs that fail are kept")
    options.add_argument("--grow", action="store_true", help="keep new inputs in the corpus")
    options.add_argument("--json", type=Path, help="add the figures to this file")
    given = options.parse_args()
    wanted = given.only or names
    for missing in missing_for(wanted):
        print(f"{missing} is missing: {MISSING[missing]}", file=sys.stderr)
        return 2
    failed = False
    with ThreadPoolExecutor(given.jobs) as pool:
        work = {
            pool.submit(fuzz, name, given.seconds, given.seed, given.findings.absolute(), given.grow): name
            for name in wanted
        }
        for done in as_completed(work):
            told = done.result()
            failed |= bool(told.findings)
            print(json.dumps({"target": work[done], **vars(told)}), flush=True)
            if given.json:
                keep(given.json, work[done], told)
    return int(failed)


def names_of_readers() -> list[str]:
    from readers import readers

    return [reader.name for reader in readers()]


def missing_for(names: list[str]) -> list[str]:
    missing = ["clang"] if IN_C.keys() & set(names) and not shutil.which("clang") else []
    return missing + ["atheris"] * (not IN_C.keys() >= set(names) and importlib.util.find_spec("atheris") is None)


def fuzz(name: str, seconds: int, seed: int, findings: Path, grow: bool = False) -> Told:
    """One target, in a process of its own."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # some readers write files
    with tempfile.TemporaryDirectory(prefix="tilesmith-fuzz-", dir=memory) as place:
        folder = Path(place)
        pool, scratch, found = folder / "pool", folder / "scratch", findings / name
        for each in (pool, scratch, found):
            each.mkdir(parents=True, exist_ok=True)
        command, seeds = target_in_c(name) if name in IN_C else reader(name, scratch)
        for data in seeds:
            (pool / name_of(data)).write_bytes(data)
        old = {path.name for path in found.iterdir()}
        options = [
            f"-max_total_time={seconds}", f"-seed={seed}", f"-timeout={PATIENCE_S}", f"-rss_limit_mb={MOST_MIB}",
            f"-report_slow_units={PATIENCE_S}", f"-artifact_prefix={found}/", f"-dict={HERE / 'tokens.dict'}",
            "-print_final_stats=1", str(pool),
        ]  # fmt: skip
        with (folder / "said").open("wb") as told:
            child = subprocess.Popen([*command, *options], cwd=scratch, stdout=told, stderr=told, env=environment())
            _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said = (folder / "said").read_text("utf-8", "replace")
        wrong = [f"{complaint_of(said)} ({path})" for path in sorted(found.iterdir()) if path.name not in old]
        if child.returncode and not wrong:
            wrong.append(f"it ended with {child.returncode}: {said[-2000:]}")
        if grow:
            keep_new(command, folder, pool, seeds, CORPUS / name.removeprefix("c-"))
    return Told(
        "libFuzzer, address and undefined-behaviour sanitizers" if name in IN_C else "atheris",
        last(r"in (\d+) second", said), round(used.ru_utime + used.ru_stime, 1), seed, len(seeds),
        last(r"number_of_executed_units: (\d+)", said),
        last(r"new_units_added: +(\d+)", said), last(r" cov: (\d+)", said), tuple(wrong),
    )  # fmt: skip


def target_in_c(name: str) -> tuple[list[str], tuple[bytes, ...]]:
    own = name.removeprefix("c-")
    with _one_build:
        folder = _built().name
    seeds = tuple(path.read_bytes() for path in (CORPUS / own).iterdir())
    return [f"{folder}/{own}", f"-max_len={IN_C[name]}"], seeds


_one_build = threading.Lock()


@cache
def _built() -> tempfile.TemporaryDirectory[str]:
    """All targets in C, as long as this process lives."""
    folder = tempfile.TemporaryDirectory(prefix="tilesmith-fuzz-")
    subprocess.run([HERE / "build.sh", folder.name, "clang"], check=True)
    return folder


def reader(name: str, scratch: Path) -> tuple[list[str], tuple[bytes, ...]]:
    from readers import readers, seeds_of

    (it,) = [each for each in readers() if each.name == name]
    return [sys.executable, str(HERE / "reader_target.py"), name, str(scratch)], seeds_of(it, CORPUS)


def keep_new(command: list[str], folder: Path, pool: Path, seeds: tuple[bytes, ...], corpus: Path) -> None:
    """Of what was found, the few inputs that reach code that the seeds do not: not all that reach it more often."""
    enough = folder / "enough"
    enough.mkdir()
    for data in seeds:
        (enough / name_of(data)).write_bytes(data)
    options = ["-merge=1", "-use_counters=0", f"-timeout={PATIENCE_S}", str(enough), str(pool)]
    subprocess.run([*command, *options], cwd=folder, env=environment(), capture_output=True, check=True)
    corpus.mkdir(exist_ok=True)
    for data in {path.read_bytes() for path in enough.iterdir()} - set(seeds):
        if len(data) < GROWN_BYTES:
            (corpus / name_of(data)).write_bytes(data)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))}


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def last(pattern: str, text: str) -> int:
    """The last number that libFuzzer has said so; 0 if it has not come to say it."""
    return int((re.findall(pattern, text) or ["0"])[-1])


def complaint_of(said: str) -> str:
    """Of all that an engine prints when it stops, the lines that tell why."""
    marks = [said.find(mark) for mark in ("Uncaught Python exception", "runtime error: ", "ERROR: ")]
    begin = min((at for at in marks if at >= 0), default=0)
    return said[begin : begin + 2000]


def keep(path: Path, name: str, told: Told) -> None:
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    document["machine"] = (
        f"{cpu}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document[name] = {"date": now, "load": round(os.getloadavg()[0], 1), **vars(told)}
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    sys.exit(main())
