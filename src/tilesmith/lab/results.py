"""Results of tuning and measuring: one file of lines that are only ever added.

A line is the sealed record of one run of one product on one target. A run that is repeated adds a line; the newest one
of a product counts. Several processes may add at the same time; a line that is damaged, or of a newer version, is left
out with a warning.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from tilesmith import env
from tilesmith.errors import DatabaseError, FileFormatError
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_key

_FORMAT = 1
_FILE = "results.jsonl"
_MOST = 1 << 30
_PATIENCE_S = 30.0
_log = logging.getLogger("tilesmith.lab")


@dataclass(frozen=True)
class Theirs:
    """A rival's time.

    Args:
        time_us: Median, in microseconds.
        way: The fastest of the ways that it offers.
        version: Of the library.
        single_us: Median of single calls on a GPU; None elsewhere.
    """

    time_us: float
    way: str
    version: str
    single_us: float | None = None


@dataclass(frozen=True)
class Result:
    """One product on one target.

    Args:
        problem: Its key.
        target: The target's name.
        solver: The kernel family that won.
        config: Its config.
        time_us: Its median, in microseconds; of calls in a row.
        spread_us: The spread of that time.
        roofline: The least time that the machine allows over ``time_us``.
        trials: Configs that the search measured.
        seconds: How long the search took.
        date: When, as ISO 8601 in UTC.
        generator: Digest of the generator of the kernels.
        disturbed: Why the times say little; empty if they do not.
        single_us: Median of single calls on a GPU; None elsewhere.
        rivals: Times of rivals, by name.
        missing: Rivals without a time, with the reason.
    """

    problem: str
    target: str
    solver: str
    config: str
    time_us: float
    spread_us: float
    roofline: float
    trials: int
    seconds: float
    date: str
    generator: str
    disturbed: str = ""
    single_us: float | None = None
    rivals: dict[str, Theirs] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def signature(self) -> GemmSignature:
        found = parse_key(self.problem)
        if not isinstance(found, GemmSignature):
            raise FileFormatError(f"{self.problem} is no product")
        return found


def results_folder() -> Path:
    """The folder of results and jobs: TILESMITH_LAB_DIR, else in the user's data folder."""
    return env.LAB_DIR.get()


def add_result(result: Result) -> None:
    """Add one line, and have it on the disk; ``DatabaseError`` if the file cannot be written."""
    line = _line(result)
    path = results_folder() / _FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=_PATIENCE_S), path.open("a+b") as file:
            # A process that was killed in the middle of its line leaves one without an end.
            torn = file.seek(0, os.SEEK_END) > 0 and _last_byte(file) != b"\n"
            file.write((b"\n" if torn else b"") + line)
            file.flush()
            os.fsync(file.fileno())
    except Timeout:
        raise DatabaseError(f"{path}: another process holds it for more than {_PATIENCE_S:.0f} s") from None
    except OSError as error:
        raise DatabaseError(f"{path}: a result cannot be kept: {error.strerror or error}") from None


def read_results() -> list[Result]:
    """All results, the oldest first."""
    path = results_folder() / _FILE
    try:
        with path.open("rb") as file:
            data = file.read(_MOST)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DatabaseError(f"{path}: cannot be read: {error.strerror or error}") from None
    found, bad = [], 0
    for line in data.split(b"\n"):
        if line:
            result = _read(line)
            if result is None:
                bad += 1
            else:
                found.append(result)
    if bad:
        _log.warning("%s: %d lines are damaged or of another version, and are left out", path, bad)
    return found


def newest(results: list[Result], target: str) -> dict[str, Result]:
    """The newest result of each product on a target, by key, in the order in which products were first measured."""
    found: dict[str, Result] = {}
    for result in results:
        if result.target == target:
            found[result.problem] = result
    return found


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _line(result: Result) -> bytes:
    text = json.dumps({"format": _FORMAT, **asdict(result)}, sort_keys=True, allow_nan=False)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]} {text}\n".encode()


def _read(line: bytes) -> Result | None:
    seal, _, text = line.partition(b" ")
    if hashlib.sha256(text).hexdigest()[:32].encode() != seal:
        return None
    try:
        values: dict[str, Any] = json.loads(text)
        if values.pop("format") != _FORMAT or set(values) != {each.name for each in fields(Result)}:
            return None
        values["rivals"] = {name: Theirs(**theirs) for name, theirs in values["rivals"].items()}
        result = Result(**values)
        _ = result.signature
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return result
