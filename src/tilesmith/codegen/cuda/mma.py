"""The text that every source of the portable tensor-core family begins with."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def mma_prelude() -> str:
    """Wrappers of what sm_80 and later have (``mma.cuh``)."""
    return Path(__file__).with_name("mma.cuh").read_text()


def divisor(value: int) -> tuple[int, int]:
    """``(m, s)`` such that ``n // value == n * m >> s`` for 0 <= n < 2^31, with ``m`` below 2^32."""
    shift = 31 + (value - 1).bit_length()
    return -(-(1 << shift) // value), shift
