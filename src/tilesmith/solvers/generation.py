"""Which generator made a plan: a digest of every file that takes part in making one."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

_FOLDERS = ("problems", "targets", "plan", "codegen", "solvers")


@lru_cache(maxsize=1)
def generator_digest() -> str:
    """16 hex digits over the package's files from problem to plan: equal digests make equal plans and sources."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((package / folder).rglob("*")):
            # PyTorch's side makes no plans.
            if path.is_file() and "__pycache__" not in path.parts and "external" not in path.parts:
                data = path.read_bytes()
                digest.update(f"{path.relative_to(package).as_posix()}\0{len(data)}\0".encode())
                digest.update(data)
    return digest.hexdigest()[:16]
