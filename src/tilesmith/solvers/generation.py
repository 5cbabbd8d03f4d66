"""Which generator made a plan: a digest of every file that takes part in making one for a family of targets."""

from __future__ import annotations

import hashlib
import os
from operator import itemgetter
from pathlib import Path

_FOLDERS = ("problems", "targets", "plan", "codegen", "solvers")
_PACKAGE = str(Path(__file__).parents[1])
FAMILIES = {"cpu": "c", "cuda": "cuda"}  # each family's own folders, in codegen/ and in solvers/
_known: dict[str, str] = {}


def generator_digest(family: str) -> str:
    """16 hex digits over the package's files from problem to plan: equal digests make equal plans and sources.

    Files that make the kernels of another family alone take no part: a new CUDA kernel leaves the plans of CPUs be.
    """
    if family not in _known:
        digest = hashlib.sha256()
        for path, _ in _files():
            name = os.path.relpath(path, _PACKAGE)
            if _family_of(name) in (family, ""):
                data = Path(path).read_bytes()
                digest.update(f"{name}\0{len(data)}\0".encode())
                digest.update(data)
        _known[family] = digest.hexdigest()[:16]
    return _known[family]


def provenance_of(solver: str, revision: int, family: str) -> str:
    """What makes a plan today: the solver, by the name of its candidate, and the generator."""
    from tilesmith.plan.withdrawn import MENDED  # a process that makes no plan needs none of them

    return f"{solver}/{revision} generator {generator_digest(family)}{MENDED}"


def _family_of(name: str) -> str:
    """The family whose kernels a file makes; empty for a file of them all."""
    folder = name.split(os.sep)[1]
    return next((family for family, own in FAMILIES.items() if own == folder), "")


def recall_digests(digests: dict[str, str]) -> None:
    """Digests that another process computed for files of the same ``file_stamp()``, by family."""
    _known.update(digests)


def file_stamp() -> str:
    """32 hex digits over names, sizes and times of the files, from which Python, too, tells whether one has changed."""
    lines = []
    for path, entry in _files():
        about = entry.stat()
        lines.append(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\0")
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _files() -> list[tuple[str, os.DirEntry[str]]]:
    """With their paths, sorted; without notes, and without what PyTorch's side has: neither makes plans."""
    found = []
    folders = [os.path.join(_PACKAGE, name) for name in _FOLDERS]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    if entry.name not in ("__pycache__", "external"):
                        folders.append(entry.path)
                elif entry.is_file() and not entry.name.endswith(".md"):
                    found.append((entry.path, entry))
    return sorted(found, key=itemgetter(0))


# Taken with the import, like the times of Python's own files: it says what this process runs, whatever is edited later.
STAMP = file_stamp()
