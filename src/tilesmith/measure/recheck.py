"""The check of ``measure.accuracy``, for many results of one problem: same verdicts, a tenth of the time.

What does not depend on the result is computed once: the oracle's values and bounds in the result's own memory order,
and guarded operands. A result is then compared block by block in the cache; what is not plainly right goes to the
full check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.accuracy import Accuracy, check, error_bound
from tilesmith.measure.arrays import GuardedArray, guarded_operands, guarded_result
from tilesmith.measure.oracle import Oracle, logical
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature

Array = NDArray[Any]

_BLOCK = 1 << 14  # elements: three float64 blocks stay in a 512 KB cache


class Rechecker:
    """Checks calls of one problem. ``values`` are its sample arguments, ``truth`` the oracle's answer for them."""

    def __init__(self, signature: ConvSignature | GemmSignature, values: tuple[Array, ...], truth: Oracle) -> None:
        self.signature = signature
        self.truth = truth
        self.operands = guarded_operands(signature, values)
        self.result = guarded_result(signature, values)
        self._pristine = [operand.memory.copy() for operand in self.operands]
        self._initial = self.result.memory.copy()
        self._value: NDArray[np.float64] | None = None
        self._bound: NDArray[np.float64] | None = None
        if truth.value.dtype.kind == "f" and self.result.array.flags.c_contiguous:
            with np.errstate(all="ignore"):
                bound = error_bound(truth, signature)
            self._value = _in_memory_order(signature, self.result.array, truth.value)
            self._bound = _in_memory_order(signature, self.result.array, bound)

    def check_call(self, call: Callable[..., object]) -> Accuracy:
        """Run ``call(*operands, out)`` in guarded memory full of NaN and check everything it did."""
        np.copyto(self.result.memory, self._initial)
        call(*(operand.array for operand in self.operands), self.result.array)
        verdict = self.check_result(self.result.array)
        trouble = self._trespass()
        if trouble and verdict.ok:
            return Accuracy(False, verdict.error, verdict.bound, verdict.worst_index, trouble)
        return verdict

    def check_result(self, found: Array) -> Accuracy:
        """The numbers alone."""
        if self._value is None or self._bound is None or not found.flags.c_contiguous:
            return check(found, self.truth, self.signature)
        flat = found.reshape(-1)
        worst, share = 0, -1.0
        for begin in range(0, flat.size, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            used = flat[part].astype(np.float64)
            used -= self._value[part]
            np.abs(used, out=used)
            used /= self._bound[part]
            at = int(np.argmax(used))  # a NaN is the greatest
            if not used[at] <= 1.0:
                return check(found, self.truth, self.signature)
            if used[at] > share:
                worst, share = begin + at, float(used[at])
        index = tuple(int(i) for i in np.unravel_index(worst, found.shape))
        bound = float(self._bound[worst])
        return Accuracy(True, share * bound, bound, self._logical_index(index))

    def _logical_index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The place in the logical axes of an element of the result's layout."""
        sizes = (2, 3, 5, 7, 11)[: len(index)]  # all different, so that they name the axes
        order = logical(self.signature, np.empty(sizes, np.int8)).shape
        return tuple(index[sizes.index(size)] for size in order)

    def _trespass(self) -> str:
        if found := self.result.trespass():
            return f"wrote outside the result: {found}"
        for place, (operand, pristine) in enumerate(zip(self.operands, self._pristine, strict=True)):
            if not _same_bytes(operand, pristine):
                np.copyto(operand.memory, pristine)  # the next call must not suffer
                return f"wrote to argument {place}, which it may only read"
        return ""


def _same_bytes(operand: GuardedArray, pristine: NDArray[np.uint8]) -> bool:
    whole = operand.memory.size // 8 * 8
    here, there = (memory[:whole].view(np.uint64) for memory in (operand.memory, pristine))
    return np.array_equal(here, there) and np.array_equal(operand.memory[whole:], pristine[whole:])


def _in_memory_order(
    signature: ConvSignature | GemmSignature, like: Array, numbers: Array
) -> NDArray[np.float64] | None:
    """``numbers`` (logical axes) flattened in the order in which the result lies in memory; None for vector layouts."""
    turned = np.empty(like.shape, np.float64)
    view = logical(signature, turned)
    if view.ndim != turned.ndim or not np.shares_memory(view, turned):
        return None
    view[...] = numbers
    return turned.reshape(-1)
