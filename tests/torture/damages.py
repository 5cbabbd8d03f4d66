"""A store damaged at random in every way that a file system allows: calls are right, and none waits.

A store is a cache with the kernels, keys, plans and the kept hit of one convolution, and two databases, SQLite files
or folders of records. Each case damages a fresh copy of one (before a process begins, or between two of its calls), and
a process of its own then runs the convolution twice, records a result, and reads every byte of the cache. A tenth of
the cases puts FIFOs, links, sockets and devices there, a tenth files and folders of other users (that takes root).

- wrong: numbers that are not the convolution's;
- crashed: a process that a signal ended;
- raised: any exception, but those of ``strict`` mode that name what is missing, and (counted as ``misnamed``) the one
  that says that TILESMITH_CACHE_DIR names no folder, where something else has taken the place of the whole cache;
- blocked: a call that took longer than the deadline.

    python tests/torture/damages.py [--cases 1000] [--seed 0] [--deadline 5]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from homes import SIGNATURE, arrays, captured_warnings, in_child, is_right, place

from tilesmith import conv
from tilesmith.db.files import records_folder
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch.kept_calls import forget
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import EnvironmentValueError, TilesmithError
from tilesmith.solvers.generation import generator_digest
from tilesmith.solvers.table import candidates
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.toolchain.inventory import inventory

STRANGER = 54321
Damage = Callable[[Path, random.Random], None]
# What is not there in a whole store, and may be put there.
MORE = (
    "cache/locks/{key}.lock", "cache/staging/tmpabc", "cache/staging", "cache/locks", "data/tilesmith.db-journal",
    "data/tilesmith.db-wal", "data/tilesmith.db-shm", "data/team.db-journal", "data/tilesmith.db.lock",
    "data/.tilesmith-trial", "cache/objects/{key}.so", "cache/sources",
)  # fmt: skip


# --- damages ----------------------------------------------------------------------------------------------------------


def gone(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def instead(make: Callable[[Path], None]) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        gone(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)

    return damage


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            one.bind(f"/proc/self/fd/{here}/{path.name[:40]}")
        finally:
            os.close(here)


def device(major: int, minor: int) -> Callable[[Path], None]:
    return lambda path: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(major, minor))


def link_to(text: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(text)


STRANGE: dict[str, Damage] = {
    "FIFO": instead(os.mkfifo), "socket": instead(bind_socket), "link to /dev/zero": instead(link_to("/dev/zero")),
    "link to /dev/stdin": instead(link_to("/dev/stdin")), "link to nowhere": instead(link_to("nowhere")),
    "link to itself": instead(lambda path: path.symlink_to(path.name)), "link to a folder": instead(link_to("/proc")),
    "link to memory": instead(link_to("/proc/self/mem")), "device zero": instead(device(1, 5)),
    "device full": instead(device(1, 7)), "device random": instead(device(1, 8)), "device tty": instead(device(5, 0)),
}  # fmt: skip


def given_away(path: Path, rng: random.Random) -> None:
    os.chown(path, rng.choice((1, STRANGER, 65534)), rng.choice((-1, STRANGER)), follow_symlinks=False)


def given_away_with_all_in_it(path: Path, rng: random.Random) -> None:
    for each in (path, *path.rglob("*")):
        given_away(each, rng)


def planted(path: Path, rng: random.Random) -> None:
    """Another user's bytes in a file's place, or a folder of theirs that all may write."""
    if path.is_dir():
        path.chmod(0o777)
    elif path.exists():
        path.write_bytes(rng.randbytes(200))
    given_away(path, rng)


FOREIGN: dict[str, Damage] = {
    "another owner": given_away, "another owner of all": given_away_with_all_in_it, "planted": planted,
}  # fmt: skip


def changed(change: Callable[[bytes, random.Random], bytes]) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        if path.is_file():
            path.write_bytes(change(path.read_bytes(), rng))
        else:
            gone(path)

    return damage


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 40)) if data else 0):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def exchanged(path: Path, rng: random.Random) -> None:
    """Another file of the same folder has its place."""
    others = [each for each in path.parent.iterdir() if each != path and each.is_file()] if path.is_file() else []
    if others:
        path.write_bytes(rng.choice(others).read_bytes())
    else:
        gone(path)


def many_links(path: Path, rng: random.Random) -> None:
    if path.is_file():
        os.link(path, path.with_name(f"{path.name}.too"))
        path.write_bytes(flipped(path.read_bytes(), rng))


def large(path: Path, rng: random.Random) -> None:
    if path.is_file():
        os.truncate(path, rng.choice((1 << 20, 1 << 33, 1 << 40)))


def written_by_all(path: Path, rng: random.Random) -> None:
    path.chmod(rng.choice((0o666, 0o777, 0o1777, 0o2775)))


def not_for_us(path: Path, rng: random.Random) -> None:
    path.chmod(rng.choice((0o000, 0o200, 0o400, 0o500)))


PLAIN: dict[str, Damage] = {
    "flipped": changed(flipped), "cut": changed(lambda data, rng: data[: rng.randrange(len(data) + 1)]),
    "empty": changed(lambda data, rng: b""), "longer": changed(lambda data, rng: data + rng.randbytes(9)),
    "noise": changed(lambda data, rng: rng.randbytes(len(data))), "zeros": changed(lambda data, rng: bytes(len(data))),
    "moved by a byte": changed(lambda data, rng: b"\0" + data), "exchanged": exchanged, "large": large,
    "removed": lambda path, rng: gone(path), "a folder": instead(lambda path: path.mkdir()),
    "a file": instead(lambda path: path.write_bytes(b"?")), "linked twice": many_links,
    "written by all": written_by_all, "not for us": not_for_us,
    "of tomorrow": lambda path, rng: os.utime(path, (2e9, 2e9)),
}  # fmt: skip


# --- stores -----------------------------------------------------------------------------------------------------------


def environment(home: Path, mode: str = "fast") -> None:
    place(home)
    os.environ["TILESMITH_DB_PATH"] = f"{home / 'data' / 'team.db'}:{home / 'data' / 'tilesmith.db'}"
    os.environ["TILESMITH_FIND_MODE"] = mode


def make_store(home: Path, of_files: bool) -> None:
    environment(home)
    (home / "data").mkdir(parents=True)
    target = host_target(1)
    candidate = next(each for each in candidates(SIGNATURE, target) if each.name == "c_reference")
    answer = Record(
        SIGNATURE.canonical.key(), target.name, candidate.name,
        str(candidate.solver.default_config(candidate.geometry, target)), revision=candidate.solver.revision,
        time_us=1.0, spread_us=0.1, samples=9, error=0.1, bound=1.0,
    )  # fmt: skip
    for name in ("team.db", "tilesmith.db"):
        if of_files:
            records_folder(home / "data" / name).mkdir(mode=0o700)
        database = open_database(home / "data" / name)
        database.put_result(answer)
        database.record_trials([answer])
        database.close()
    in_child(run_once)


def run_once() -> bool:
    forget()
    return is_right(conv(*arrays(), padding=1))


def targets(home: Path, rng: random.Random) -> list[Path]:
    """What may be damaged: mostly files, often of the cache, now and then a folder or what is not there."""
    everything = sorted(home.rglob("*"))
    chosen = rng.random()
    if chosen < 0.7:
        return [path for path in everything if path.is_file()]
    if chosen < 0.85:
        return [path for path in everything if path.is_dir()]
    return [home / name.format(key="0123456789abcdef" * 4) for name in MORE]


def damage_once(home: Path, damages: dict[str, Damage], rng: random.Random) -> str:
    """Damage something, and say what; what this system or user may not do is tried otherwise."""
    while True:
        name, path = rng.choice(sorted(damages)), rng.choice(targets(home, rng))
        if damages is FOREIGN and not path.exists():
            continue
        try:
            damages[name](path, rng)
        except OSError:
            continue
        return f"{name}: {path.relative_to(home)}"


# --- cases ------------------------------------------------------------------------------------------------------------


def work(home: Path, mode: str, harm: Callable[[], str] | None) -> dict[str, Any]:
    """What one process does; ``harm`` comes between its calls."""
    environment(home, mode)
    took: list[float] = []
    wrong, raised, misnamed, said = 0, [], [], ""

    def timed(call: Callable[[], Any]) -> None:
        nonlocal wrong
        began = time.monotonic()
        try:
            wrong += call() is False
        except TilesmithError as error:
            if isinstance(error, EnvironmentValueError) and not (home / "cache").is_dir():
                misnamed.append(str(error))
            elif mode != "strict":
                raised.append(f"{type(error).__name__}: {error}")
        except Exception as error:
            raised.append(f"{type(error).__name__}: {error}")
        took.append(time.monotonic() - began)

    with captured_warnings() as warnings:
        if harm is not None:
            launch = get_launchable(SIGNATURE)
            timed(run_once)
            said = harm()
            timed(lambda: is_right(launch(*arrays())))
        timed(run_once)
        timed(run_once)
        if mode != "strict":
            answer = Record("another", "t:1", "s", "", time_us=1.0, samples=9)
            timed(lambda: open_databases().writable.put_result(answer))
            timed(lambda: open_databases().writable.ranking("another", "t:1") == (answer,))
        timed(lambda: inventory(home / "cache", verify=True))
    return {
        "wrong": wrong, "raised": raised, "misnamed": misnamed, "took": max(took), "said": said,
        "warned": len(warnings),
    }  # fmt: skip


def one_case(number: int, seed: int, kind: str, whole: Path, home: Path) -> tuple[str, str, Any]:
    """A damage, the mode, and how the process ended."""
    rng = random.Random(f"{seed} {number}")
    damages = {"strange": STRANGE, "foreign": FOREIGN}.get(kind, PLAIN)
    gone(home)
    shutil.copytree(whole, home, symlinks=True)
    environment(home)
    in_child(run_once)  # keeps a hit for these very databases
    count = rng.choice((1, 1, 1, 2))

    def harm() -> str:
        return "; ".join(damage_once(home, damages, rng) for _ in range(count))

    mode = rng.choice(("fast", "fast", "strict"))
    if rng.random() < 0.25:
        ended = in_child(lambda: work(home, mode, harm))
        return (ended.value or {}).get("said", ""), mode, ended
    said = harm()
    return said, mode, in_child(lambda: work(home, mode, None))


def torment(cases: int, seed: int, deadline: float, folder: Path) -> dict[str, Any]:
    find_compiler(), generator_digest("cpu")
    tempfile.tempdir = str(folder / "temporary")
    (folder / "temporary").mkdir()
    stores = [folder / "of files", folder / "of sqlite"]
    for store in stores:
        make_store(store, of_files=store is stores[0])
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    kinds = Counter[str]()
    wrong, crashed, raised, blocked, misnamed, warned, slowest = [], [], [], [], 0, 0, 0.0
    for number in range(cases):
        kind = {0: "strange", 1: "foreign"}.get(number % 10, "plain")
        if kind == "foreign" and not is_root:
            kinds["foreign, which takes root"] += 1
            continue
        kinds[kind] += 1
        said, mode, ended = one_case(number, seed, kind, stores[number // 10 % 2], folder / "home")
        case = f"{number} {mode}: {said}"
        if ended.error:
            (blocked if "status 14" in ended.error else crashed).append(f"{case}: {ended.error}")
            continue
        found = ended.value
        slowest = max(slowest, found["took"])
        warned += found["warned"] > 0
        misnamed += len(found["misnamed"]) > 0
        wrong += [case] * bool(found["wrong"])
        raised += [f"{case}: {text}" for text in found["raised"]]
        blocked += [f"{case}: {found['took']:.1f} s"] * (found["took"] > deadline)
    return {
        "cases": cases, "seed": seed, "kinds": dict(kinds), "deadline_s": deadline, "slowest_call_s": round(slowest, 2),
        "warned": warned, "misnamed": misnamed,
        "wrong": wrong, "crashed": crashed, "raised": raised, "blocked": blocked,
    }  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument(
        "--deadline", type=float, default=5.0, help="seconds that one call may take: TILESMITH_DB_TIMEOUT"
    )
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tilesmith-damages-"))
    try:
        found = torment(given.cases, given.seed, given.deadline, folder)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
    print(json.dumps(found))
    return 1 if found["wrong"] or found["crashed"] or found["raised"] or found["blocked"] else 0


if __name__ == "__main__":
    sys.exit(main())
