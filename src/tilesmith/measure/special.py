"""NaN and Inf in the operands of one run, and whether each has reached the results that contain it, and no others.

They stand in the filter and in one image (in one row of a GEMM), and the oracle is asked about that image alone.
Elsewhere the results are those of the run without them, but for the channels that a planted element of the filter
reaches. A gradient of weights is a sum over images: it is NaN or Inf where the sum over that image is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.accuracy import Accuracy, check, check_in_parts, describe_wrong, result_dtype
from tilesmith.measure.arrays import guarded
from tilesmith.measure.oracle import Oracle, logical, oracle
from tilesmith.measure.parts import Part, one_part
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature

Array = NDArray[Any]

_KINDS: Final = ((np.nan, np.inf), (-np.inf, np.nan))  # of each factor: in a corner, and anywhere
_AT: Final = -1  # the last image, or row


@dataclass(frozen=True)
class Specials:
    """``values`` are the arguments of the run; ``part`` is the image, and ``truth`` the oracle's answer for it.

    ``reached`` are the channels (the columns of a GEMM) that the planted elements of the filter reach.
    """

    signature: Signature
    values: tuple[Array, ...]
    part: Part
    truth: Oracle
    reached: NDArray[np.intp]

    def check(self, found: Array, known: Array, judge: Callable[[Array], Accuracy]) -> Accuracy:
        """``known`` is a right result of the run without NaN and Inf, ``judge`` gives the verdict on such results."""
        rest = found.copy()
        view, same = logical(self.signature, rest), logical(self.signature, known)
        if not np.shares_memory(view, rest):  # a layout that splits channels has no such view
            return check_in_parts(found, self.signature, self.values)
        if _sums(self.signature):
            verdict = self._check_sums(view, same)
        else:
            with np.errstate(all="ignore"):
                verdict = check(found[self.part.result], self.truth, self.part.signature, self.part.origin)
            rest[self.part.result] = known[self.part.result]
            channels = (..., self.reached) if isinstance(self.signature, GemmSignature) else (slice(None), self.reached)
            view[channels] = same[channels]
        return judge(rest) if verdict.ok else verdict

    def _check_sums(self, view: Array, same: Array) -> Accuracy:
        return check_sums(view, same, self.truth.value, result_dtype(self.signature))


def check_sums(view: Array, same: Array, truth: Array, kind: str) -> Accuracy:
    """The NaN and Inf of ``view``, a result of dtype ``kind``, against those of ``truth``, its float64 sums.

    They are replaced in ``view`` by the numbers of ``same``, a right result of the run without NaN and Inf.
    """
    special = ~np.isfinite(truth)
    with np.errstate(all="ignore"):
        found, wanted = view[special].astype(np.float64), truth[special]
    if kind == "fp8e4m3":  # it has no Inf
        wanted = np.full_like(wanted, np.nan)
    wrong = ~((found == wanted) | (np.isnan(found) & np.isnan(wanted)))
    view[special] = same[special]
    if not wrong.any():
        return Accuracy(True, 0.0, 0.0, ())
    first = int(np.argmax(wrong))
    at = tuple(int(i) for i in np.argwhere(special)[first])
    count = int(np.count_nonzero(wrong))
    message = describe_wrong(count, view.size, at, float(found[first]), float(wanted[first]), 0.0)
    return Accuracy(False, float("inf"), 0.0, at, message)


@dataclass(frozen=True)
class Planting:
    """``number`` to be written to ``element``, a view of one element of the argument ``operand``."""

    operand: int
    element: Array
    number: float


def plantings(signature: Signature, values: tuple[Array, ...], seed: int) -> tuple[list[Planting], Part]:
    """NaN and Inf for both factors of each product, to be written in this order, and the image (or row) that has those
    of the first factor; ``signature`` is canonical."""
    part = one_part(signature, values, _AT)
    rng = np.random.default_rng([seed, 98])
    found = []
    for operand, (factor, (corner, anywhere)) in enumerate(zip(part.arguments[:2], _KINDS, strict=False)):
        random = tuple(int(rng.integers(size)) for size in factor.shape)
        extreme = tuple((size - 1) * int(rng.integers(2)) for size in factor.shape)
        for at, number in ((random, anywhere), (extreme, corner)):
            found.append(Planting(operand, factor[tuple(slice(i, i + 1) for i in at)], number))
    return found, part


def plant(signature: Signature, values: tuple[Array, ...], seed: int) -> Specials:
    """``planted`` arguments with the oracle's answer for the image; ``signature`` is canonical."""
    changed = tuple(_copy(value) if place < 2 else value for place, value in enumerate(values))
    planted, part = plantings(signature, changed, seed)
    for planting in planted:
        planting.element[...] = planting.number
    reached = np.empty(0, np.intp)
    if not _sums(signature):
        bare = replace(part.signature, epilogue=Epilogue())
        if isinstance(bare, GemmSignature):
            bare = replace(bare, beta=0.0)
        clean = one_part(signature, values, _AT).arguments[0]
        own = bare.first_extra if isinstance(bare, GemmSignature) else 2
        numbers = oracle(bare, (clean, *part.arguments[1:own])).value
        axis = numbers.ndim - 1 if isinstance(signature, GemmSignature) else 1
        others = tuple(i for i in range(numbers.ndim) if i != axis)
        reached = np.flatnonzero(~np.isfinite(numbers).all(axis=others))
    return Specials(signature, changed, part, oracle(part.signature, part.arguments), reached)


def _sums(signature: Signature) -> bool:
    return not isinstance(signature, GemmSignature) and signature.mode not in ("fwd", "bwd")


def _copy(array: Array) -> Array:
    """With the array's own strides: batches may share memory."""
    strides = [step // array.itemsize for step in array.strides]
    return guarded(array.dtype, array.shape, strides, array).array
