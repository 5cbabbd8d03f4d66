"""The resources of a CUDA kernel as the assembler reports them: evidence, and a test of templates."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class KernelResources:
    """``shared_bytes`` is static shared memory; ``stack_bytes`` and the spills are local memory of each thread.

    ``warnings`` are the assembler's, such as that wgmma instructions had to be put in series (C7510).
    """

    symbol: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_WARNING = re.compile(r"\(C7\d+\)|warning", re.IGNORECASE)
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def read_resources(log: str) -> tuple[KernelResources, ...]:
    """The kernels of a log of ``ptxas -v``, in its order."""
    found = []
    symbol, stack = "", ("0", "0", "0")
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            symbol, stack = entry[1], ("0", "0", "0")
        elif frame := _STACK.search(line):
            stack = (frame[1], frame[2], frame[3])
        elif (used := _USED.search(line)) and symbol:
            shared = _SHARED.search(line)
            frame_bytes, stores, loads = map(int, stack)
            shared_bytes = int(shared[1]) if shared else 0
            found.append(KernelResources(symbol, int(used[1]), shared_bytes, frame_bytes, stores, loads))
            symbol = ""
    return tuple(replace(each, warnings=_warnings(log, each.symbol)) for each in found)


def _warnings(log: str, symbol: str) -> tuple[str, ...]:
    """Lines about ``symbol`` that are no mere counts."""
    return tuple(line.strip() for line in log.splitlines() if symbol in line and _WARNING.search(line))
