"""Estimates the memory of a check, and tests if it is free: the system kills a process without memory silently."""

from __future__ import annotations

import ctypes
import math
import sys
from pathlib import Path
from typing import Final

from tilesmith.errors import LaunchError
from tilesmith.plan.slots import arguments
from tilesmith.problems.rewrite import Signature

# Measured: 15 bytes for the oracle itself (float64 operands, squares, results); its bounds and a residual come on top.
ORACLE_BYTES_PER_ELEMENT: Final = 32.0
# Tensors as they were drawn, laid between pages, and with NaN and Inf; a right result; the parts that are checked.
CHECK_BYTES_PER_BYTE: Final = 3.5
_GROUP = Path("/sys/fs/cgroup")


def oracle_bytes(signature: Signature) -> float:
    """The oracle's memory for a whole problem, without the tensors."""
    return ORACLE_BYTES_PER_ELEMENT * sum(math.prod(slot.shape) for slot in arguments(signature))


def check_bytes(signature: Signature) -> float:
    """The memory for checking a problem in parts, its tensors included."""
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


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


def keep_freed_memory() -> None:
    """Let the C allocator of this process keep what is freed, in place of returning large blocks to the system.

    A call then gets memory that an earlier call has used. Otherwise a large result may be new pages at each call, and
    the page faults can take longer than the kernel (measured: 23 of 35 ms for 67 MB). Does nothing if the allocator is
    not glibc's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
