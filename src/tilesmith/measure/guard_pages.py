"""Memory with inaccessible pages on both sides: a kernel that reads or writes beyond its ends faults.

The fault ends the process, so use this only in processes that may end (``tune.worker``). If the system has no such
pages, bands of ``BAND_BYTES`` replace them; a write to a band is found afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.arrays import BAND_BYTES, FILL

GUARD_BYTES: Final = 1 << 20  # on each side; an address range costs nothing
_FAILED: Final = ctypes.c_void_p(-1).value


class GuardedPages:
    """``size`` bytes (at least those asked for, up to the end of a page) that hold the fill byte.

    ``memory`` is all that may be read: the bytes from ``first``, and the bands where there are no guard pages.
    """

    def __init__(self, nbytes: int) -> None:
        self.size = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._pages = _reserved(self.size)
        self.memory: NDArray[np.uint8]
        if self._pages is not None:
            self.memory, self.first = np.asarray(self._pages), 0
            self.memory.fill(FILL)
        else:
            whole = np.full(self.size + 2 * BAND_BYTES + mmap.PAGESIZE, FILL, np.uint8)
            skipped = -whole.ctypes.data % mmap.PAGESIZE
            self.memory, self.first = whole[skipped : skipped + self.size + 2 * BAND_BYTES], BAND_BYTES
        self.address = int(self.memory.ctypes.data) + self.first

    def seal(self) -> bool:
        """From now on a write ends the process; False where the system cannot do that."""
        return self._pages is not None and self._pages.allow(mmap.PROT_READ)

    def unseal(self) -> None:
        """From now on the memory may be written."""
        if self._pages is not None:
            self._pages.allow(mmap.PROT_READ | mmap.PROT_WRITE)


class _Pages:
    """Mapped pages between two guard ranges, given back with the last array that lies in them."""

    def __init__(self, base: int, size: int) -> None:
        self._base, self._size = base, size
        self.__array_interface__ = {
            "version": 3, "shape": (size,), "typestr": "|u1", "data": (base + GUARD_BYTES, False),
        }  # fmt: skip

    def allow(self, access: int) -> bool:
        return bool(_system().mprotect(self._base + GUARD_BYTES, self._size, access) == 0)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter is going
            _system().munmap(self._base, self._size + 2 * GUARD_BYTES)


def _reserved(size: int) -> _Pages | None:
    try:
        system = _system()
    except (OSError, AttributeError):
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = system.mmap(None, size + 2 * GUARD_BYTES, 0, flags, -1, 0)
    if base == _FAILED:
        return None
    pages = _Pages(base, size)
    return pages if pages.allow(mmap.PROT_READ | mmap.PROT_WRITE) else None


@lru_cache(maxsize=1)
def _system() -> Any:
    """The C library's calls for pages. Raises ``OSError`` or ``AttributeError`` where it has none."""
    found = ctypes.CDLL(None)
    address, size = ctypes.c_void_p, ctypes.c_size_t
    found.mmap.argtypes = [address, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    found.mmap.restype = address
    found.mprotect.argtypes = [address, size, ctypes.c_int]
    found.munmap.argtypes = [address, size]
    return found
