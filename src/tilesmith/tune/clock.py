"""The end of a search's time. At this moment every wait for a compiler or a kernel ends."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


class TimeOverError(Exception):
    """The time of this part of a search is over. Running work was ended; its configs do not count as failed."""


@dataclass
class Clock:
    """``ends`` is a moment of ``time.monotonic``. The session moves it: each part of a search has its own end."""

    ends: float = math.inf

    def left_s(self) -> float:
        return self.ends - time.monotonic()

    @property
    def timeout(self) -> float | None:
        """``left_s`` for a wait of the standard library."""
        return None if math.isinf(self.ends) else max(0.0, self.left_s())

    @property
    def over(self) -> bool:
        return self.left_s() <= 0
