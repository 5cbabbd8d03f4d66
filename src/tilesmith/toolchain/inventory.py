"""The files of a cache folder, each with its size, age and meaning; the damaged ones; the ones that may go.

The folders are those of ``cache.py``, ``plans.py``, ``memo.py``, ``files.py``, of sources that were
written (``sources``) and of databases that were fetched (``layers``). Files in other places are no part of the cache:
they are named, and stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tilesmith.errors import PlanError
from tilesmith.plan.records import Plan
from tilesmith.plan.serial import decode
from tilesmith.reading import why_no_file
from tilesmith.toolchain.cache import read_entry
from tilesmith.toolchain.files import LOCKS, STAGING, read, remove_abandoned
from tilesmith.toolchain.plans import plan_in
from tilesmith.toolchain.sealed import unbind_with_record, unseal

KERNEL, KEY, PLAN, HIT, CHOICE, MACHINE, SOURCE, LAYER, PASSING, FOREIGN = (
    "kernel", "key", "plan", "hit", "choice", "machine", "source", "database copy", "passing", "foreign",
)  # fmt: skip
_KINDS = {
    "objects": KERNEL, "keys": KEY, "plans": PLAN, "hits": HIT, "choices": CHOICE, "machine": MACHINE,
    "sources": SOURCE, "layers": LAYER, STAGING: PASSING, LOCKS: PASSING,
}  # fmt: skip
_YOUNG_S = 3600.0  # a kernel is published before what refers to it
_OBJECT = re.compile(r"([0-9a-f]{64})\.(so|cubin)")


@dataclass(frozen=True)
class Entry:
    """One file. ``what`` is its purpose, ``refers`` has the digests of the kernels that it names.

    ``damage`` says why a verified entry cannot be used; it is a miss, and made again when it is wanted.
    """

    path: Path
    kind: str
    nbytes: int
    modified: float
    what: str = ""
    refers: tuple[str, ...] = ()
    damage: str = ""

    @property
    def digest(self) -> str:
        """Of a kernel, by its name."""
        return self.path.name.partition(".")[0]


def inventory(folder: Path, *, verify: bool = False) -> tuple[Entry, ...]:
    """Every file under ``folder``, in the order of names; ``verify`` reads each byte of them."""
    entries = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*names, *(each for each in folders if os.path.islink(os.path.join(root, each)))]):
            path = Path(root) / name
            with contextlib.suppress(OSError):  # it has gone meanwhile
                about = path.stat(follow_symlinks=False)
                kind = _KINDS.get(path.relative_to(folder).parts[0], FOREIGN)
                if len(path.relative_to(folder).parts) == 1:
                    kind = FOREIGN
                entry = Entry(path, kind, about.st_size, about.st_mtime)
                if kind != FOREIGN and why_no_file(path.stat().st_mode if path.exists() else about.st_mode):
                    entry = replace(entry, damage=f"it {why_no_file(about.st_mode)}")
                entries.append(entry if entry.damage else _described(entry, verify))
    return _with_lost_kernels(entries) if verify else tuple(entries)


def prune(
    folder: Path, *, max_bytes: int | None = None, older_than_s: float | None = None, dry_run: bool = False,
    now: float | None = None,
) -> tuple[Entry, ...]:  # fmt: skip
    """Remove what abandoned work has left, kernels that nothing counts, what is older than ``older_than_s`` seconds,
    and then the oldest, until ``max_bytes`` are left. A kernel goes with the last key, plan or hit that counts it.

    Returns what went (with ``dry_run``: what would go).
    """
    now = time.time() if now is None else now
    if not dry_run:
        remove_abandoned(folder)
    entries = [each for each in inventory(folder) if each.kind not in (PASSING, FOREIGN)]
    counts = Counter(digest for each in entries for digest in each.refers)
    kernels = {each.digest: each for each in entries if each.kind == KERNEL}
    left = sum(each.nbytes for each in entries)
    gone: list[Entry] = []

    def drop(entry: Entry) -> None:
        nonlocal left
        gone.append(entry)
        left -= entry.nbytes
        for digest in entry.refers:
            counts[digest] -= 1
            if counts[digest] == 0 and digest in kernels:
                drop(kernels.pop(digest))

    for digest, kernel in list(kernels.items()):
        if counts[digest] == 0 and now - kernel.modified > _YOUNG_S:
            drop(kernels.pop(digest))
    for entry in sorted((each for each in entries if each.kind != KERNEL), key=lambda each: each.modified):
        is_old = older_than_s is not None and now - entry.modified > older_than_s
        if is_old or (max_bytes is not None and left > max_bytes):
            drop(entry)
    return tuple(gone) if dry_run else _remove(folder, gone)


def clear(folder: Path) -> tuple[Entry, ...]:
    """Remove all that is part of the cache, folders too, but what others are making now; returns what went."""
    remove_abandoned(folder)
    return _remove(folder, [each for each in inventory(folder) if each.kind not in (PASSING, FOREIGN)])


def remove_damaged(folder: Path) -> tuple[Entry, ...]:
    """Remove what cannot be used; returns what went."""
    return _remove(folder, [each for each in inventory(folder, verify=True) if each.damage])


# --- entries ----------------------------------------------------------------------------------------------------------


def _described(entry: Entry, verify: bool) -> Entry:
    understand: Callable[[Entry, bytes], Entry] | None = {
        KEY: _key, PLAN: _plan, HIT: _hit, CHOICE: _choice, KERNEL: _kernel, MACHINE: _machine,
    }.get(entry.kind)  # fmt: skip
    if entry.kind == SOURCE:
        return replace(entry, what=entry.path.parent.name)
    if understand is None or (entry.kind == KERNEL and not verify):
        return entry
    try:
        return understand(entry, read(str(entry.path), own=True))
    except OSError as error:
        return replace(entry, damage=f"cannot be read: {error.strerror or error}")


def _key(entry: Entry, data: bytes) -> Entry:
    record = read_entry(data, entry.path.stem)
    if record is None:
        return replace(entry, damage="of another version" if unseal(data) is not None else "its checksum does not hold")
    return replace(entry, what=f"{record['symbol']}, {record['compiler']}", refers=(str(record["digest"]),))


def _plan(entry: Entry, data: bytes) -> Entry:
    try:
        plan = plan_in(entry.path, data)
    except PlanError as error:
        # The purpose of the file, as far as it is known.
        with contextlib.suppress(PlanError):
            entry = replace(entry, what=_plan_words(decode(data[32:])))
        return replace(entry, damage=str(error))
    return replace(entry, what=_plan_words(plan), refers=tuple(dict.fromkeys(plan.artifacts)))


def _hit(entry: Entry, data: bytes) -> Entry:
    try:
        plan = decode(unbind_with_record(f"hits/{entry.path.name}", data)[1])
    except PlanError as error:
        return replace(entry, damage=str(error))
    return replace(entry, what=_plan_words(plan), refers=tuple(dict.fromkeys(plan.artifacts)))


def _choice(entry: Entry, data: bytes) -> Entry:
    try:
        record, _ = unbind_with_record(f"choices/{entry.path.name}", data)
    except PlanError as error:
        return replace(entry, damage=str(error))
    return replace(entry, what=f"{record.get('solver')} {record.get('config')}")


def _plan_words(plan: Plan) -> str:
    return f"{plan.target} {plan.solver} {plan.config} {plan.problem}"


def _machine(entry: Entry, data: bytes) -> Entry:
    return entry if unseal(data) is not None else replace(entry, damage="its checksum does not hold")


def _kernel(entry: Entry, data: bytes) -> Entry:
    name = _OBJECT.fullmatch(entry.path.name)
    if name is None:
        return replace(entry, damage="its name is no digest")
    found = hashlib.sha256(data).hexdigest()
    return entry if found == name[1] else replace(entry, damage=f"its bytes have the sha256 {found}")


def _with_lost_kernels(entries: list[Entry]) -> tuple[Entry, ...]:
    """Mark keys, plans and hits whose kernels are missing or damaged as unusable."""
    whole = {each.digest for each in entries if each.kind == KERNEL and not each.damage}

    def checked(entry: Entry) -> Entry:
        lost = next((digest for digest in entry.refers if digest not in whole), None)
        if lost is None or entry.damage:
            return entry
        return replace(entry, damage=f"its kernel {lost[:16]}... is missing or damaged")

    return tuple(map(checked, entries))


def _remove(folder: Path, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Keys, plans and hits go before the kernels that they count, so that no process meets one without its kernels."""
    gone = []
    for entry in sorted(entries, key=lambda each: each.kind == KERNEL):
        try:
            entry.path.unlink()
        except FileNotFoundError:
            continue
        gone.append(entry)
    for name in _KINDS:
        _remove_empty(folder / name)
    return tuple(gone)


def _remove_empty(folder: Path) -> None:
    """Remove a folder without files, and those in it; a process that publishes a file there makes it again."""
    if folder.is_symlink():  # what lies behind it is not the cache's
        return
    for root, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(root)
