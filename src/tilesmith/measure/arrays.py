"""Arrays that detect forbidden accesses of a kernel: writes outside its result, and reads outside its operands.

Every byte around and between the elements is 0xFF, which is NaN in each floating-point type. So a read outside an
operand makes the sum NaN, an element that was never written is NaN, and a write outside the result
changes a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesmith.plan.records import Slot
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature

Array = NDArray[Any]

BAND_BYTES = 64 << 10
FILL = 0xFF
_ALIGNMENT = 64


@dataclass(frozen=True)
class GuardedArray:
    """``array``, an array of any strides inside ``memory``, which holds nothing else but the fill byte."""

    memory: NDArray[np.uint8]
    array: Array

    def out_of_bounds(self) -> str:
        """Text that names a changed byte outside the elements; empty if no byte has changed."""
        first = self.array.__array_interface__["data"][0] - self.memory.__array_interface__["data"][0]
        span = _span(self.array.shape, self.array.strides, self.array.dtype.itemsize)
        before, body, after = self.memory[:first], self.memory[first : first + span], self.memory[first + span :]
        if not _untouched(before):
            changed = np.flatnonzero(before != FILL)
            return (
                f"{changed.size} bytes changed before the tensor, the nearest {first - changed[-1]} bytes ahead of it"
            )
        if not _untouched(after):
            changed = np.flatnonzero(after != FILL)
            return f"{changed.size} bytes changed behind the tensor, the nearest {changed[0]} bytes after its end"
        if span > self.array.size * self.array.dtype.itemsize:
            gaps = body.copy()
            elements = np.ndarray((*self.array.shape, self.array.dtype.itemsize), np.uint8, gaps, 0,
                                  (*self.array.strides, 1))  # fmt: skip
            elements[...] = FILL
            if not _untouched(gaps):
                changed = np.flatnonzero(gaps != FILL)
                return f"{changed.size} bytes changed in the gaps of the tensor, the first at byte {changed[0]}"
        return ""


def guarded(
    kind: np.dtype[Any], shape: Sequence[int], strides: Sequence[int], values: Array | None = None
) -> GuardedArray:
    """A guarded array with element ``strides``, holding ``values`` or (None) nothing but the fill byte.

    It begins one element after a 64-byte boundary, because a kernel may rely only on the alignment of elements.
    """
    steps = [step * kind.itemsize for step in strides]
    span = _span(shape, steps, kind.itemsize)
    memory = np.full(span + 2 * BAND_BYTES + 2 * _ALIGNMENT, FILL, np.uint8)
    at = memory.__array_interface__["data"][0] + BAND_BYTES
    offset = BAND_BYTES + -at % _ALIGNMENT + kind.itemsize
    array: Array = np.ndarray(tuple(shape), kind, memory.data, offset, tuple(steps))
    if values is not None:
        array[...] = values
    return GuardedArray(memory, array)


def guarded_operands(signature: ConvSignature | GemmSignature, values: Sequence[Array]) -> tuple[GuardedArray, ...]:
    """The operands of ``signature`` (as ``sample_args`` gives them) in guarded memory, with the signature's strides.

    GEMM's initial ``c`` is left out: it belongs to the result.
    """
    operands = arguments(signature)[:-1]
    return tuple(_slot_array(slot, value) for slot, value in zip(operands, values, strict=False))


def guarded_result(signature: ConvSignature | GemmSignature, values: Sequence[Array]) -> GuardedArray:
    """Memory for the result, never written; GEMM's initial ``c`` is in it when ``beta != 0``."""
    starts_with_c = isinstance(signature, GemmSignature) and signature.beta != 0
    return _slot_array(arguments(signature)[-1], values[-1] if starts_with_c else None)


def _slot_array(slot: Slot, values: Array | None) -> GuardedArray:
    return guarded(dtype(slot.dtype).numpy(), slot.shape, slot.strides, values)


def _span(shape: Sequence[int], steps: Sequence[int], itemsize: int) -> int:
    """Bytes from the first to behind the last element."""
    return sum((size - 1) * step for size, step in zip(shape, steps, strict=True)) + itemsize


def _untouched(part: NDArray[np.uint8]) -> bool:
    return part.size == 0 or bool((part == FILL).all())


def aligned_arrays(signature: ConvSignature | GemmSignature, values: tuple[Any, ...]) -> list[Any]:
    """Operands and result of a canonical problem as allocators place them, on 64-byte boundaries.

    The result comes last; it holds GEMM's initial ``c``.
    """
    slots = arguments(signature)
    starts = isinstance(signature, GemmSignature) and signature.beta != 0
    contents = [*values[: len(slots) - 1], values[-1] if starts else None]
    arrays = []
    for slot, content in zip(slots, contents, strict=True):
        memory = np.zeros(slot.nbytes + _ALIGNMENT, np.uint8)
        offset = -memory.__array_interface__["data"][0] % _ALIGNMENT
        kind = dtype(slot.dtype).numpy()
        steps = tuple(step * kind.itemsize for step in slot.strides)
        array: Any = np.ndarray(slot.shape, kind, memory.data, offset, steps)
        if content is not None:
            array[...] = content
        arrays.append(array)
    return arrays


def clear(array: Array, byte: int) -> None:
    """Set every byte of the elements of an array, and no other."""
    array.view(f"u{array.dtype.itemsize}")[...] = int.from_bytes(bytes([byte]) * array.dtype.itemsize, "little")
