"""When the command began: the seconds that it may take count from there, the loading of the program included."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class _Command:
    began: float | None = None


_command = _Command()


def begin(began: float | None = None) -> None:
    """A command begins: now, or when its process did (of ``time.monotonic``)."""
    _command.began = time.monotonic() if began is None else began


def take() -> float:
    """The moment from which the next budget counts: the command's beginning, once; then now."""
    began, _command.began = _command.began, None
    return time.monotonic() if began is None else began
