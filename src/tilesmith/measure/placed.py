"""Tensors that are laid where allocators lay them, one place after the other, between fences.

Each place is one that a program's tensors may have: NumPy aligns to 16 bytes, PyTorch to 64, a view to its elements. At
the two ends of its room a tensor touches inaccessible pages: there nothing beyond its first or last byte can be read or
written unseen.
"""

from __future__ import annotations

import zlib
from enum import Enum
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.arrays import FILL, GuardedArray, clear
from tilesmith.measure.fences import Room
from tilesmith.plan.records import Slot
from tilesmith.problems.dtypes import dtype

Array = NDArray[Any]

_ROOM: Final = 64  # bytes that a room has more than its tensor: all places fit


class Place(Enum):
    """Where a tensor lies in its room, in words that end a message."""

    LOW = "at the beginning of a page"
    HIGH = "up to the end of a page"
    ELEMENT = "one element after a multiple of 64 bytes"
    PAST_16 = "16 bytes after a multiple of 64"
    PAST_32 = "32 bytes after a multiple of 64"
    PAST_48 = "48 bytes after a multiple of 64"


_PAST: Final = {Place.LOW: 0, Place.PAST_16: 16, Place.PAST_32: 32, Place.PAST_48: 48}


class PlacedTensor:
    """Memory for the tensor of one slot."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self._kind = dtype(slot.dtype).numpy()
        self._steps = tuple(step * self._kind.itemsize for step in slot.strides)
        self._dense = slot.nbytes == prod(slot.shape) * self._kind.itemsize
        self._room = Room(slot.nbytes + _ROOM)
        self._sum: int | None = None
        self._offset = 0
        self.lay(Place.LOW, None)

    @property
    def address(self) -> int:
        return self._room.address + self._offset

    array: Array

    def lay(self, place: Place, values: Array | None, fill: int = FILL, turned: bool = False) -> None:
        """From now on the tensor is there, with ``values`` or (None) with ``fill`` in every byte of its elements.

        ``turned``: every sign is the other one.
        """
        room = self._room
        room.unseal()
        self._offset = self._offset_of(place)
        begin = room.first + self._offset
        end = begin + self.slot.nbytes
        room.memory[:begin] = FILL
        room.memory[end:] = FILL
        if not self._dense:
            room.memory[begin:end] = FILL
        self.array = np.ndarray(self.slot.shape, self._kind, room.memory.data, begin, self._steps)
        if values is None:
            clear(self.array, fill)
        elif turned:
            turn_signs(values, self.array)
        else:
            self.array[...] = values

    def seal(self) -> None:
        """Nothing may write it until it is laid anew."""
        self._sum = None if self._room.seal() else zlib.crc32(self._room.memory.data)

    @property
    def was_written(self) -> bool:
        """Whether anything has, where the system could not forbid it."""
        return self._sum is not None and zlib.crc32(self._room.memory.data) != self._sum

    def trespass(self) -> str:
        """Where a byte outside the elements has changed, in words; empty if none has."""
        return GuardedArray(self._room.memory, self.array).trespass()

    def _offset_of(self, place: Place) -> int:
        if place is Place.HIGH:
            return self._room.size - self.slot.nbytes
        return self._kind.itemsize if place is Place.ELEMENT else _PAST[place]


def turn_signs(values: Array, out: Array) -> None:
    """``out[...] = -values``, NaNs included; ``out`` may be ``values``."""
    bits = f"u{values.dtype.itemsize}"
    np.bitwise_xor(values.view(bits), np.array(1 << (8 * values.dtype.itemsize - 1), bits), out=out.view(bits))


class PlacedBytes:
    """Memory for a workspace or a packed filter of ``nbytes`` bytes, aligned to 64, at the high end of its room."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.sealed = False
        self._room = Room(nbytes)
        self._offset = (self._room.size - nbytes) // _ROOM * _ROOM

    @property
    def address(self) -> int:
        return self._room.address + self._offset if self.nbytes else 0

    def fill(self, byte: int) -> None:
        begin = self._room.first + self._offset
        self.unseal()
        self._room.memory[:begin] = FILL
        self._room.memory[begin : begin + self.nbytes] = byte
        self._room.memory[begin + self.nbytes :] = FILL

    def seal(self) -> None:
        """Nothing may write it until it is unsealed."""
        self.sealed = self._room.seal()

    def unseal(self) -> None:
        self._room.unseal()
        self.sealed = False

    def trespass(self) -> str:
        """Where a byte beside it has changed, in words; empty if none has."""
        begin = self._room.first + self._offset
        whole: Array = self._room.memory[begin : begin + self.nbytes]
        return GuardedArray(self._room.memory, whole).trespass() if self.nbytes else ""
