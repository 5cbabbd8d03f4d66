"""How long databases are waited for: those that other processes hold, and those that lie at a URL.

One call waits ``TILESMITH_DB_TIMEOUT`` seconds in all, however many databases it opens, reads and writes; then it works
without those that it has not reached. Work on databases that a user has asked for (``tilesmith db``, a search) waits
longer, each time that it reads or writes: ``PATIENT_S``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tilesmith import env

PATIENT_S: Final = 60.0
_LEAST_S = 0.1  # so that a call which has waited for one database can still take turns at another


class _Waiting(threading.local):
    """Of a thread: the seconds that are left to its call (None outside of one), and when its operation must end."""

    left: float | None = None
    patient: bool = False
    until: float | None = None


_waiting = _Waiting()


@contextmanager
def one_call() -> Iterator[None]:
    """All databases that the block waits for share one deadline; inside another such block, that one's."""
    if _waiting.left is not None or _waiting.patient:
        yield
        return
    _waiting.left = env.DB_TIMEOUT.get()
    try:
        yield
    finally:
        _waiting.left = None


@contextmanager
def patiently() -> Iterator[None]:
    """Each operation of the block may wait for long; inside a call, not longer than that may."""
    if _waiting.left is not None or _waiting.patient:
        yield
        return
    _waiting.patient = True
    try:
        yield
    finally:
        _waiting.patient = False


@contextmanager
def operation() -> Iterator[None]:
    """One thing that is done with a database: the time that it takes is taken from the call's."""
    if _waiting.until is not None:
        yield
        return
    begun = time.monotonic()
    _waiting.until = begun + _may_wait_s()
    try:
        yield
    finally:
        _waiting.until = None
        if _waiting.left is not None:
            _waiting.left = max(0.0, _waiting.left - (time.monotonic() - begun))


def left_s() -> float:
    """Seconds that may still be waited now."""
    if _waiting.until is None:
        return _may_wait_s()
    return max(0.0, _waiting.until - time.monotonic())


def must_stop() -> bool:
    """A statement runs for longer than its call may wait; one that no call waits for may take its time."""
    return _waiting.left is not None and left_s() == 0.0


def _may_wait_s() -> float:
    if _waiting.patient:
        return max(PATIENT_S, env.DB_TIMEOUT.get())
    return env.DB_TIMEOUT.get() if _waiting.left is None else max(_LEAST_S, _waiting.left)
