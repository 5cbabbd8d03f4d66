"""When a search must be over: what it waits for is cut then, whatever compilers and kernels do."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


class TimeOverError(Exception):
    """The time of this part of a search is over; what was under way was ended, and says nothing of any config."""


@dataclass
class Clock:
    """``ends`` is a moment of ``time.monotonic``. Parts of a search end at other times, so it is moved."""

    ends: float = math.inf

    def left_s(self) -> float:
        return self.ends - time.monotonic()

    @property
    def over(self) -> bool:
        return self.left_s() <= 0
