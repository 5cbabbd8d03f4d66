"""Where rivals keep what they have compiled and tuned."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tilesmith import env


def rivals_folder() -> Path:
    """A folder beside the laboratory's results."""
    return env.LAB_DIR.get() / "rivals"


def kept_path(rival: str, *parts: str) -> Path:
    """The file in which a rival keeps what belongs to ``parts``: the problem, the target, its version."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return rivals_folder() / rival / f"{digest[:32]}.json"


def read_kept(path: Path) -> Any:
    """Reads what ``keep`` wrote; None if nothing is there, or it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def keep(path: Path, value: object) -> None:
    """Write a value as JSON, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, staged = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        json.dump(value, file)
    os.replace(staged, path)
