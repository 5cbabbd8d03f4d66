"""Keeps facts of this machine and this package for later processes: a small file in the cache.

It holds the generator's digests, which take the reading of all of its files, and what CPU this is. Its name says for
which files of the package, and for which boot of which machine: neither can have changed since.
"""

from __future__ import annotations

from pathlib import Path

from tilesmith.solvers import generation
from tilesmith.targets import detect
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.files import read
from tilesmith.toolchain.sealed import seal, unseal

_BYTES = 1 << 20
_done: set[str] = set()  # caches of which the memo was read, or written


def recall(cache: ArtifactCache) -> bool:
    """Read facts that an earlier process stored, if they are valid for this process; False if there are none."""
    place = str(cache.directory)
    if place in _done:
        return True
    for folder in cache.folders():
        found = kept_in(folder)
        if found is not None:
            digests, cpu = found
            generation.recall_digests(digests)
            if detect.boot_id():
                detect.recall_host_cpu(cpu)
            _done.add(place)
            return True
    return False


def kept_in(folder: Path) -> tuple[dict[str, str], detect.HostCpu] | None:
    """The generator's digests and the CPU, as a process has kept them; None if any byte of it is another."""
    try:
        record = unseal(read(f"{folder}/{_name()}", _BYTES, own=True)) or {}
        digests = {family: str(record["digests"][family]) for family in generation.FAMILIES}
        return digests, detect.HostCpu(str(record["arch"]), str(record["card"]), *map(int, record["caches"]))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def remember(cache: ArtifactCache) -> None:
    """Keep it for the next process; one that cannot finds out for itself."""
    place = str(cache.directory)
    if place in _done or generation.file_stamp() != generation.STAMP:
        return
    _done.add(place)
    cpu = detect.found_cpu()
    digests = {family: generation.generator_digest(family) for family in generation.FAMILIES}
    record = {"digests": digests, "arch": cpu.arch, "card": cpu.card, "caches": cpu.caches}
    cache.offer(_name(), seal(record))


def _name() -> str:
    return f"machine/{generation.STAMP}-{detect.boot_id()}.json"
