"""The least that a thread takes from the pool at once."""

from __future__ import annotations

from tilesmith.targets.target import CpuTarget

TURNS = 32  # a thread; the pool hands out many at first and single ones at last, so that all threads end together


def items_a_turn(items: int, target: CpuTarget) -> int:
    """So many of ``items`` items that each thread finds ``TURNS`` turns; all of them for one thread."""
    return max(1, items // (target.cores * TURNS)) if target.cores > 1 else max(1, items)
