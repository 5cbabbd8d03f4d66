"""Verdicts on many results of one problem: those of ``measure.accuracy``, in a tenth of the time.

The oracle's values and bounds do not depend on the result, so they are computed once, in the result's memory order. A
result is then compared block by block in the cache. If it is not clearly right, the full check decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.accuracy import Accuracy, check, check_in_parts, error_bound
from tilesmith.measure.oracle import Oracle, logical
from tilesmith.problems.rewrite import Signature

Array = NDArray[Any]

_BLOCK = 1 << 14  # elements: three float64 blocks stay in a 512 KB cache


class Judge(Protocol):
    """Says whether a result (in its layout) is right."""

    def __call__(self, found: Array) -> Accuracy: ...


class WholeJudge:
    """Has the oracle's answer for the whole problem."""

    def __init__(self, signature: Signature, truth: Oracle, like: Array) -> None:
        """``like`` is an array of the result's shape and strides."""
        self.signature = signature
        self.truth = truth
        self._value: NDArray[np.float64] | None = None
        self._bound: NDArray[np.float64] | None = None
        if truth.value.dtype.kind == "f" and like.flags.c_contiguous:
            with np.errstate(all="ignore"):
                bound = error_bound(truth, signature)
            self._value = _in_memory_order(signature, like, truth.value)
            self._bound = _in_memory_order(signature, like, bound)

    def __call__(self, found: Array) -> Accuracy:
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
        return Accuracy(True, share * bound, bound, logical_index(self.signature, index))


class PartsJudge:
    """Computes the oracle again for each result, in parts of the problem: for problems that fill the memory."""

    def __init__(self, signature: Signature, arguments: Sequence[Array]) -> None:
        self._signature = signature
        self._arguments = arguments

    def __call__(self, found: Array) -> Accuracy:
        return check_in_parts(found, self._signature, self._arguments)


def logical_index(signature: Signature, index: tuple[int, ...]) -> tuple[int, ...]:
    """The place in the logical axes of an element of the result's layout."""
    sizes = (2, 3, 5, 7, 11)[: len(index)]  # all different, so that they name the axes
    order = logical(signature, np.empty(sizes, np.int8)).shape
    return tuple(index[sizes.index(size)] for size in order)


def _in_memory_order(signature: Signature, like: Array, numbers: Array) -> NDArray[np.float64] | None:
    """``numbers`` (logical axes) flattened in the order in which the result lies in memory; None for vector layouts."""
    ordered = np.empty(like.shape, np.float64)
    view = logical(signature, ordered)
    if view.ndim != ordered.ndim or not np.shares_memory(view, ordered):
        return None
    view[...] = numbers
    return ordered.reshape(-1)
