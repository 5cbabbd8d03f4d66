"""How much memory checks take, and whether it is there: a process that runs out of memory is killed without a word."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from tilesmith.errors import LaunchError
from tilesmith.plan.slots import arguments
from tilesmith.problems.rewrite import Signature

# Measured: 15 bytes for the oracle itself (float64 operands, squares, results); its bounds and a residual come on top.
ORACLE_BYTES_PER_ELEMENT: Final = 32.0
# Guarded tensors, the operand that was drawn last, and the parts that are checked.
CHECK_BYTES_PER_BYTE: Final = 1.6
_GROUP = Path("/sys/fs/cgroup")


def oracle_bytes(signature: Signature) -> float:
    """What the oracle of a whole problem takes beside the tensors."""
    return ORACLE_BYTES_PER_ELEMENT * sum(math.prod(slot.shape) for slot in arguments(signature))


def check_bytes(signature: Signature) -> float:
    """What checking a problem in parts takes, its tensors included."""
    return CHECK_BYTES_PER_BYTE * tensor_bytes(signature)


def tensor_bytes(signature: Signature) -> float:
    """All tensors of a call, the gaps between their elements included."""
    return float(sum(slot.nbytes for slot in arguments(signature)))


def available_bytes() -> float:
    """Memory that this process could still take: free or easily freed, and within its control group's limit."""
    free = float("inf")
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free = 1024.0 * int(line.split()[1])
    limit, used = (_lines(_GROUP / name) for name in ("memory.max", "memory.current"))
    if limit and used and limit[0].isdecimal() and used[0].isdecimal():
        free = min(free, float(limit[0]) - float(used[0]))
    return free


def require_memory(wanted: float, purpose: str) -> None:
    """Raise ``LaunchError`` if there is less than ``wanted`` bytes."""
    free = available_bytes()
    if wanted > free:
        raise LaunchError(f"{purpose} takes about {wanted / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
