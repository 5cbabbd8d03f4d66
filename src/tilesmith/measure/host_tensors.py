"""Test tensors at each alignment that allocators give, between guard pages.

NumPy aligns to 16 bytes, PyTorch to 64, a view to its elements. At the two ends of its pages a tensor touches
inaccessible ones: a read or write beyond its first or last byte there ends the process.
"""

from __future__ import annotations

import zlib
from enum import Enum
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.arrays import FILL, GuardedArray, clear
from tilesmith.measure.guard_pages import GuardedPages
from tilesmith.plan.records import Slot
from tilesmith.problems.dtypes import dtype

Array = NDArray[Any]

_SLACK: Final = 64  # bytes beside the tensor: room for every placement


class Placement(Enum):
    """Where a tensor lies in its pages, in words that end a message."""

    LOW = "at the beginning of a page"
    HIGH = "up to the end of a page"
    ELEMENT = "one element after a multiple of 64 bytes"
    PAST_16 = "16 bytes after a multiple of 64"
    PAST_32 = "32 bytes after a multiple of 64"
    PAST_48 = "48 bytes after a multiple of 64"


_PAST: Final = {Placement.LOW: 0, Placement.PAST_16: 16, Placement.PAST_32: 32, Placement.PAST_48: 48}


class HostTensor:
    """Memory for the tensor of one slot."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self._kind = dtype(slot.dtype).numpy()
        self._steps = tuple(step * self._kind.itemsize for step in slot.strides)
        self._dense = slot.nbytes == prod(slot.shape) * self._kind.itemsize
        self._pages = GuardedPages(slot.nbytes + _SLACK)
        self._sum: int | None = None
        self._offset = 0
        self.arrange(Placement.LOW, None)

    @property
    def address(self) -> int:
        return self._pages.address + self._offset

    array: Array

    def arrange(self, place: Placement, values: Array | None, fill: int = FILL, negated: bool = False) -> None:
        """Place the tensor there, with ``values`` or (None) with ``fill`` in every byte of its elements.

        ``negated``: every sign is inverted.
        """
        pages = self._pages
        pages.unseal()
        self._offset = self._offset_of(place)
        begin = pages.first + self._offset
        end = begin + self.slot.nbytes
        pages.memory[:begin] = FILL
        pages.memory[end:] = FILL
        if not self._dense:
            pages.memory[begin:end] = FILL
        self.array = np.ndarray(self.slot.shape, self._kind, pages.memory.data, begin, self._steps)
        if values is None:
            clear(self.array, fill)
        elif negated:
            negate(values, self.array)
        else:
            self.array[...] = values

    def seal(self) -> None:
        """Forbid writes until the tensor is arranged again."""
        self._sum = None if self._pages.seal() else zlib.crc32(self._pages.memory.data)

    @property
    def was_written(self) -> bool:
        """Whether it was written, where the system could not forbid it."""
        return self._sum is not None and zlib.crc32(self._pages.memory.data) != self._sum

    def out_of_bounds(self) -> str:
        """Where a byte outside the elements has changed, in words; empty if none has."""
        return GuardedArray(self._pages.memory, self.array).out_of_bounds()

    def _offset_of(self, place: Placement) -> int:
        if place is Placement.HIGH:
            return self._pages.size - self.slot.nbytes
        return self._kind.itemsize if place is Placement.ELEMENT else _PAST[place]


def negate(values: Array, out: Array) -> None:
    """``out[...] = -values``, NaNs included; ``out`` may be ``values``."""
    bits = f"u{values.dtype.itemsize}"
    np.bitwise_xor(values.view(bits), np.array(1 << (8 * values.dtype.itemsize - 1), bits), out=out.view(bits))


class HostBytes:
    """Memory for a workspace or a packed filter of ``nbytes`` bytes, aligned to 64, at the high end of its pages."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.sealed = False
        self._pages = GuardedPages(nbytes)
        self._offset = (self._pages.size - nbytes) // _SLACK * _SLACK

    @property
    def address(self) -> int:
        return self._pages.address + self._offset if self.nbytes else 0

    def fill(self, byte: int) -> None:
        begin = self._pages.first + self._offset
        self.unseal()
        self._pages.memory[:begin] = FILL
        self._pages.memory[begin : begin + self.nbytes] = byte
        self._pages.memory[begin + self.nbytes :] = FILL

    def seal(self) -> None:
        """Forbid writes until ``unseal``."""
        self.sealed = self._pages.seal()

    def unseal(self) -> None:
        self._pages.unseal()
        self.sealed = False

    def out_of_bounds(self) -> str:
        """Where a byte beside it has changed, in words; empty if none has."""
        begin = self._pages.first + self._offset
        whole: Array = self._pages.memory[begin : begin + self.nbytes]
        return GuardedArray(self._pages.memory, whole).out_of_bounds() if self.nbytes else ""
