"""Receives data of another machine piece by piece, never later than its deadlines."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
_AHEAD = 16  # pieces that may lie between both threads
_POLL_S = 0.2


@dataclass(frozen=True)
class Patience:
    """How long a caller waits: for a connection, for the next piece, and for everything together, in seconds."""

    connect_s: float = 10.0
    silence_s: float = 30.0
    total_s: float = 3600.0

    def until(self, deadline: float) -> Patience:
        """The same, but never longer than up to ``deadline`` (of ``time.monotonic``)."""
        left_s = max(0.001, deadline - time.monotonic())
        return Patience(min(self.connect_s, left_s), min(self.silence_s, left_s), min(self.total_s, left_s))


PATIENCE = Patience()


class _Failure(Generic[T]):
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def arriving(
    pieces: Callable[[], Iterable[T]], patience: Patience, give_up: Callable[[], None] = lambda: None
) -> Iterator[T]:
    """The pieces, as they come.

    NOTE: looking up a host's name has no deadline, and a socket's is that of each single read. So a thread of its own
    fetches the pieces. It is left alone when the time is over, after ``give_up``, which shall make it end soon.

    Raises ``TimeoutError``, and what ``pieces`` raises.
    """
    ahead: queue.Queue[T | _Failure[T]] = queue.Queue(_AHEAD)
    over = threading.Event()

    def put(item: T | _Failure[T]) -> bool:
        while not over.is_set():
            with suppress(queue.Full):
                ahead.put(item, timeout=_POLL_S)
                return True
        return False

    def fetch() -> None:
        try:
            for piece in pieces():
                if not put(piece):
                    return
            put(_Failure(None))
        except BaseException as error:
            put(_Failure(error))

    deadline = time.monotonic() + patience.total_s
    threading.Thread(target=fetch, name="tilesmith-fetch", daemon=True).start()
    try:
        while True:
            left_s = deadline - time.monotonic()
            try:
                item = ahead.get(timeout=max(0.0, min(patience.silence_s, left_s)))
            except queue.Empty:
                if left_s <= patience.silence_s:
                    raise TimeoutError(f"it did not come within {patience.total_s:.1f} s") from None
                raise TimeoutError(f"nothing came for {patience.silence_s:.1f} s") from None
            if isinstance(item, _Failure):
                if item.error is not None:
                    raise item.error
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not come within {patience.total_s:.1f} s")
            yield item
    finally:
        over.set()
        give_up()
