"""Memory shared with the worker, which outlives it: the kernel that runs, and its last address before it died."""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from pathlib import Path

from tilesmith.measure.guard_pages import GUARD_BYTES
from tilesmith.measure.host_check import Region
from tilesmith.runtime._runtime import watch_faults

# The name, an address, and what lies where.
_NAME, _ADDRESS, _REGIONS, _SIZE = 0, 4096, 4104, 8192


class CrashReport:
    """The worker writes short texts into a file that both processes map; the session reads them after a crash."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)

    def write(self, text: str) -> None:
        """The kernel that runs from now on."""
        self._put(text, _NAME, _ADDRESS)

    def read(self) -> str:
        return self._get(_NAME)

    def watch(self, regions: Sequence[Region]) -> None:
        """Record the memory regions of the next run."""
        self._put(json.dumps(regions), _REGIONS, _SIZE)

    def watch_faults(self) -> None:
        """From now on an access that ends this process is noted."""
        watch_faults(memoryview(self._memory)[_ADDRESS:_REGIONS])

    def fault(self) -> str:
        """Text that names the memory whose access ended the process; empty if it is not known."""
        address = int.from_bytes(self._memory[_ADDRESS:_REGIONS], "little")
        text = self._get(_REGIONS)
        for name, begin, end, sealed in json.loads(text) if address and text else ():
            if begin <= address < end:
                return f"wrote to {name}, which it may only read" if sealed else ""
            if begin - GUARD_BYTES <= address < begin:
                return f"used memory that lies before {name}, {begin - address} from its first byte"
            if end <= address < end + GUARD_BYTES:
                return f"used memory that lies behind {name}, {address - end + 1} from its last byte"
        return ""

    def _put(self, text: str, begin: int, end: int) -> None:
        data = text.encode()[: end - begin - 2]
        self._memory[begin : begin + len(data) + 2] = len(data).to_bytes(2, "little") + data

    def _get(self, begin: int) -> str:
        length = int.from_bytes(self._memory[begin : begin + 2], "little")
        return self._memory[begin + 2 : begin + 2 + length].decode(errors="replace")
