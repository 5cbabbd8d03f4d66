"""Homes of their own (a cache folder and a database) for processes that are tormented, and one small convolution."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith.db.admission

# All that a call may import, once, before the forks of who imports this.
import tilesmith.db.sqlite_store
import tilesmith.dispatch.resolve
import tilesmith.runtime.executable
import tilesmith.tune.session  # noqa: F401
from tilesmith import ConvSignature

_PATIENCE_S = 60  # for one child
SIGNATURE = ConvSignature((1, 4, 6, 5), (8, 4, 3, 3), padding=1)


def place(home: Path) -> None:
    """Make ``home`` this process's cache folder and database."""
    for name in [name for name in os.environ if name.startswith("TILESMITH_")]:
        del os.environ[name]
    os.environ["TILESMITH_CACHE_DIR"] = str(home / "cache")
    os.environ["TILESMITH_DB_PATH"] = str(home / "data" / "tilesmith.db")
    os.environ["TILESMITH_FIND_MODE"] = "fast"
    os.environ["TILESMITH_NUM_THREADS"] = "1"


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return tuple(rng.standard_normal(shape, np.float32) for shape in ((1, 4, 6, 5), (8, 4, 3, 3)))  # type: ignore[return-value]


def is_right(y: np.ndarray) -> bool:
    """Against the definition, in float64."""
    x, w = (array.astype(np.float64) for array in arrays())
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    truth = np.einsum("nchwij,kcij->nkhw", windows, w)
    return y.shape == truth.shape and bool(np.abs(y - truth).max() < 1e-4)


@contextmanager
def captured_warnings():
    """The warnings of the package, as ``logger: text``."""
    lines: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name}: {record.getMessage()}")

    ear = Ear(logging.WARNING)
    log = logging.getLogger("tilesmith")
    log.addHandler(ear)
    propagates, log.propagate = log.propagate, False
    try:
        yield lines
    finally:
        log.removeHandler(ear)
        log.propagate = propagates


@dataclass(frozen=True)
class Ended:
    """How a child ended: what it returned, or the error that it died of."""

    value: Any
    error: str


def in_child(work: Callable[[], Any]) -> Ended:
    """``work`` in a forked process; its value comes back as JSON."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_PATIENCE_S)
        status = 1
        try:
            os.close(reader)
            try:
                said = json.dumps({"value": work(), "error": ""})
            except BaseException:
                said = json.dumps({"value": None, "error": traceback.format_exc()})
            with os.fdopen(writer, "w") as pipe:
                pipe.write(said)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not said:
        return Ended(None, f"the process ended with status {status}")
    return Ended(**json.loads(said))
