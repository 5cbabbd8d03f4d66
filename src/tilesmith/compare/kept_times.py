"""Times of other libraries, kept in the cache folder for later processes: a list of microseconds for each name."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path

from tilesmith.toolchain.files import publish, read

_log = logging.getLogger("tilesmith.compare")


def path_of_times(root: Path, folder: str, name: str) -> Path:
    """Where the times of ``name`` lie; ``name`` holds all that they depend on."""
    return root / folder / f"{hashlib.sha256(name.encode()).hexdigest()[:40]}.json"


def keep_times(root: Path, path: Path, times_us: Sequence[float]) -> None:
    """Keep times; where the cache folder ``root`` cannot be written, nothing is kept."""
    try:
        publish(root, path, json.dumps(list(times_us)).encode(), durable=False)
    except OSError as error:
        _log.info("times are not kept: %s", error)


def kept_times(path: Path, count: int) -> tuple[float, ...] | None:
    """``count`` times that an earlier process kept; None where it kept none, or the file is damaged."""
    try:
        found = tuple(float(each) for each in json.loads(read(str(path), own=True)))
    except (OSError, ValueError, TypeError):
        return None
    return found if len(found) == count and all(math.isfinite(each) and each > 0 for each in found) else None
