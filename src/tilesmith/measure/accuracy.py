"""Whether a kernel's numbers are right, element by element.

The bound
---------
A result is a sum of ``L`` products ``p``. Each of its roundings in the accumulation type (unit roundoff ``u``) is a
random error of mean zero, relative to the partial sum at hand, so that (Higham and Mary: A New Approach to
Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, and Sharper Probabilistic Backward Error
Analysis for Basic Linear Algebra Kernels with Random Data, 42(5), 2020)

    |error| <= LAMBDA * u * sqrt(L) * ||p||_2

except with a probability of about ``2 exp(-LAMBDA^2 / 2)`` an element, for any order of summation. For cancelling data
partial sums are about ``sqrt(i / L) ||p||_2``, so that the typical error of a plain loop is
``0.4 u sqrt(L) ||p||_2`` and ``LAMBDA = 6`` is some 15 standard deviations away from failing a right kernel, while one
product left out of ``L`` is ``||p||_2 / sqrt(L)``: seen in fp32 up to ``L`` of about two million.

Tensor cores do not round their fp32 sums, they cut them (Fasi, Higham, Mikaitis and Pranesh: Numerical Behavior of
NVIDIA Tensor Cores, PeerJ Computer Science 7, 2021), so that these errors have a mean: half a unit, ``u |s|``, towards
zero, at each instruction of 16 products. A partial sum ``s`` lies about the line from 0 to the result ``r``: ``L / 16``
of them add up to at most ``u L / 16 (|r| / 2 + ||p||_2)``, which counts where both operands are narrow enough for
tensor cores. On an H200, one chain of 147,456 bf16 products erred by up to 0.53 of that, one of 524,288 by 0.46.

They cut sums of fp8 products more: behind 13 bits of fraction of the largest of an instruction's 32 products and the
sum so far (Zhang et al.: SageAttention2, 2024). Kernels begin a new sum at least every 128 products and add it up in
fp32, so that these errors are random and of mean zero: ``LAMBDA * 2^-12 ||p||_2`` more, where both operands are fp8. On
an H200, sums of 4,096 and of 16,384 products erred by up to 0.45 of that (of 131,841 and 262,144 results). Where one
product is most of a short sum, all of its block is cut at that product's digits: up to 33 units at an instruction, in
one direction. Of 1.3 million fp32 sums of 16 to 2,064 products, two of 256 erred by more than that. So
``1 + 16 / sqrt(L)`` times as much is allowed.

Where operands may be rounded to TF32 (unit roundoff ``t``), each product errs by ``2 t`` of itself, at random:
``LAMBDA * 2 t ||p||_2`` more, by Hoeffding's inequality. To this are added the roundings of the epilogue (relative to
all it adds), one rounding to the result's type, and the smallest numbers: what a processor that flushes subnormals
loses.

NaN and Inf
-----------
The result must have a NaN exactly where the oracle has one, and an Inf of the same sign exactly where it has one.
Memory for results is filled with NaN first, so an element that was never written is found by the same rule. Only where
a finite result is within its bound of the type's largest number may an overflow (Inf; NaN in fp8e4m3) stand for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.arrays import GuardedArray, guarded, guarded_operands, guarded_result
from tilesmith.measure.oracle import Oracle, logical
from tilesmith.measure.parts import parts, truth_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import TF32, dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.problems.samples import sample_args

Array = NDArray[Any]
Signature = ConvSignature | GemmSignature

LAMBDA = 6.0
# Of the magnitudes that the epilogue adds: two additions, and an activation good to a few units.
_EPILOGUE_ROUNDINGS = 8.0
# Greatest slopes; 1 for the activations that are not here, but leaky relu has its own.
_STEEPEST = {"gelu": 1.13, "gelu_tanh": 1.13, "silu": 1.10, "hardswish": 1.5, "sigmoid": 0.25, "hardsigmoid": 0.167}
# These are not 0 at 0: their own rounding is relative to the result, not to what the epilogue adds.
_LIFTED = ("sigmoid", "hardsigmoid")

# Products that a tensor core's instruction adds to a sum.
_CUT, _CUT_TF32 = 16, 8
_CUT_FP8 = 2.0**-12  # of the norm of fp8 products
_FEW = 16.0  # how much more that is where one product may be most of a sum, over the root of the number of products

_BLOCK = 1 << 16  # elements checked at a time: a few float64 arrays of them stay in the caches

# Largest finite number, smallest subnormal, smallest normal number.
_RANGES = {
    "fp64": (1.7976931348623157e308, 2.0**-1074, 2.0**-1022),
    "fp32": (3.4028234663852886e38, 2.0**-149, 2.0**-126),
    "fp16": (65504.0, 2.0**-24, 2.0**-14),
    "bf16": (3.3895313892515355e38, 2.0**-133, 2.0**-126),
    "fp8e4m3": (448.0, 2.0**-9, 2.0**-6),
    "fp8e5m2": (57344.0, 2.0**-16, 2.0**-14),
}


@dataclass(frozen=True)
class Accuracy:
    """The verdict on one result.

    ``error`` and ``bound`` are those of the element that uses most of its bound, at ``worst_index`` (logical axes).
    ``message`` is empty when ``ok``, else one line.
    """

    ok: bool
    error: float
    bound: float
    worst_index: tuple[int, ...]
    message: str = ""


Callee = Callable[..., object]


def check(result: Array, truth: Oracle, signature: Signature, origin: Sequence[int] = ()) -> Accuracy:
    """Compare ``result`` (in its layout) with ``truth``; ``origin`` is the place of a part in the whole."""
    found = logical(signature, result)
    if found.shape != truth.value.shape:
        raise ValueError(f"result of shape {found.shape}, the oracle's is {truth.value.shape}")
    if truth.value.dtype.kind == "i":
        return _check_integers(found, truth, origin)
    with np.errstate(all="ignore"):
        verdict = _plainly_right(found, truth, signature)
        if verdict is None:
            return _check_floats(found.astype(np.float64), truth, signature, origin)
    return replace(verdict, worst_index=_placed(verdict.worst_index, origin))


def check_in_parts(result: Array, signature: Signature, arguments: Sequence[Array]) -> Accuracy:
    """``check`` against an oracle that is made of ``arguments`` now, a part of a large problem at a time."""
    return _worst(
        check(result[part.result], truth_of(part), part.signature, part.origin) for part in parts(signature, arguments)
    )


def verify(call: Callee, signature: Signature, seed: int = 0, truth: Oracle | None = None) -> Accuracy:
    """Run a function on random arguments in guarded memory, and check every element of its result.

    Args:
        call: Function to check, called as ``call(*arguments, out)``. ``arguments`` are those of ``sample_args``,
            without the initial ``c`` of a GEMM, which ``out`` holds.
        signature: The problem.
        seed: Seed of the random arguments, from 0.
        truth: The oracle of this signature and seed, if the caller has it. None: it is computed.

    Returns:
        Whether the result is right, and the error and bound of the element that uses most of its bound.
    """
    operands = guarded_operands(signature, values := sample_args(signature, seed))
    out = guarded_result(signature, values)
    del values  # memory has room for only one copy of a large problem
    return _run(call, signature, operands, out, truth)


def check_specials(call: Callee, signature: Signature, seed: int = 0) -> Accuracy:
    """Plant NaN and Inf in each operand in turn; they must reach exactly the results whose sums contain them.

    Stops at the first operand that fails. Integer operands cannot hold NaN or Inf, so they are skipped.

    Args:
        call: Function to check, as for ``verify``.
        signature: The problem.
        seed: Seed of the random arguments, from 0.
    """

    def check_planted(planted: tuple[Array, ...]) -> Accuracy:
        operands, out = guarded_operands(signature, planted), guarded_result(signature, planted)
        return _run(call, signature, operands, out)

    return plant_specials(check_planted, signature, seed)


def plant_specials(check_planted: Callable[[tuple[Array, ...]], Accuracy], signature: Signature, seed: int) -> Accuracy:
    """Run ``check_planted`` with NaN and Inf in each sample argument in turn, up to the first argument that fails."""
    values = sample_args(signature, seed)
    verdict = Accuracy(True, 0.0, 0.0, ())
    # Of an Inf among the factors of operands, no rule says whether sums of both signs are Inf or NaN.
    factors = (2, 3) if isinstance(signature, GemmSignature) and signature.has_scales else ()
    for place, operand in enumerate(values):
        if operand.dtype.kind in "iu":
            continue
        for kinds in ((np.nan, np.nan), (np.inf, -np.inf)):
            if place in factors and kinds[0] == np.inf:
                continue
            copy = planted_copy(operand, kinds, seed + place)
            verdict = check_planted((*values[:place], copy, *values[place + 1 :]))
            if not verdict.ok:
                names = " and ".join(dict.fromkeys(str(kind) for kind in kinds))
                return Accuracy(False, verdict.error, verdict.bound, verdict.worst_index,
                                f"with {names} in argument {place}: {verdict.message}")  # fmt: skip
    return verdict


def planted_copy(operand: Array, kinds: Sequence[float], seed: int) -> Array:
    """``operand`` with each of ``kinds`` at one place: a random one, and a corner, where halos and tails are."""
    rng = np.random.default_rng([seed, 99])
    # The operand's own strides: batches may share memory.
    strides = [step // operand.itemsize for step in operand.strides]
    copy = guarded(operand.dtype, operand.shape, strides, operand).array
    for i, kind in enumerate(kinds):
        if i % 2:
            copy[tuple(rng.integers(size) for size in copy.shape)] = kind
        else:
            copy[tuple((size - 1) * int(rng.integers(2)) for size in copy.shape)] = kind
    return copy


def _run(
    call: Callee, signature: Signature, operands: Sequence[GuardedArray], out: GuardedArray, truth: Oracle | None = None
) -> Accuracy:
    before = [_checksum(operand.memory) for operand in operands]
    # The initial c of a GEMM is in the result's memory, which the call overwrites.
    initial = [out.array.copy()] if isinstance(signature, GemmSignature) and signature.beta != 0 else []
    call(*(operand.array for operand in operands), out.array)
    for place, (operand, checksum) in enumerate(zip(operands, before, strict=True)):
        if _checksum(operand.memory) != checksum:
            return Accuracy(False, 0.0, 0.0, (), f"wrote to argument {place}, which it may only read")
    if truth is not None:
        verdict = check(out.array, truth, signature)
    else:
        verdict = check_in_parts(out.array, signature, [*(operand.array for operand in operands), *initial])
    if verdict.ok and (found := out.out_of_bounds()):
        message = f"wrote outside the result: {found}"
        return Accuracy(False, verdict.error, verdict.bound, verdict.worst_index, message)
    return verdict


def _worst(verdicts: Iterable[Accuracy]) -> Accuracy:
    """The first that fails, else the one that uses most of its bound."""
    worst: Accuracy | None = None
    for verdict in verdicts:
        if not verdict.ok:
            return verdict
        if worst is None or verdict.error * worst.bound > worst.error * verdict.bound:
            worst = verdict
    assert worst is not None
    return worst


def _checksum(memory: NDArray[np.uint8]) -> int:
    return zlib.crc32(memory.data)


def _check_integers(found: Array, truth: Oracle, origin: Sequence[int]) -> Accuracy:
    """Exact, modulo 2^32 as int32 wraps."""
    wrong = (found.astype(np.int64) - truth.value) % 2**32 != 0
    if not wrong.any():
        return Accuracy(True, 0.0, 0.0, (0,) * wrong.ndim)
    at = _first(wrong)
    error = abs(int(found[at]) - int(truth.value[at]))
    place = _placed(at, origin)
    return Accuracy(False, float(error), 0.0, place, _message(wrong, place, int(found[at]), int(truth.value[at]), 0.0))


def _plainly_right(found: Array, truth: Oracle, signature: Signature) -> Accuracy | None:
    """The verdict when every element is finite and within its bound, a block in the caches at a time; else None."""
    worst: Accuracy | None = None
    for place in _blocks(found.shape):
        block = Oracle(truth.value[place], truth.norm[place], truth.addends[place], truth.length)
        bound = error_bound(block, signature)
        error = np.abs(found[place].astype(np.float64) - block.value)
        if not (error <= bound).all():  # as it is for each NaN and Inf, which may be right all the same
            return None
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(error / bound)), error.shape))
        if worst is None or error[at] * worst.bound > worst.error * bound[at]:
            index = _placed(at, [span.start or 0 for span in place])
            worst = Accuracy(True, float(error[at]), float(bound[at]), index)
    return worst


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Blocks of at most ``_BLOCK`` elements, unless the innermost axis alone has more."""
    axis, inner = 0, int(np.prod(shape[1:], dtype=np.int64))
    while inner > _BLOCK and axis < len(shape) - 1:
        axis += 1
        inner //= shape[axis]
    step = max(1, _BLOCK // inner)
    for outer in np.ndindex(*shape[:axis]):
        for first in range(0, shape[axis], step):
            rest = shape[axis + 1 :]
            yield (
                *(slice(i, i + 1) for i in outer), slice(first, min(first + step, shape[axis])),
                *(slice(0, size) for size in rest),
            )  # fmt: skip


def _check_floats(found: Array, truth: Oracle, signature: Signature, origin: Sequence[int]) -> Accuracy:
    value = truth.value
    bound = error_bound(truth, signature)
    finite = np.isfinite(value)
    error = np.abs(found - value)
    right = np.where(finite, error <= bound, (found == value) | (np.isnan(found) & np.isnan(value)))
    out_name = result_dtype(signature)
    beyond = np.abs(value) + bound >= overflow_from(signature)
    if out_name == "fp8e4m3":  # it has no Inf
        right = np.where(np.isinf(value), np.isnan(found), right | (beyond & np.isnan(found)))
    else:
        right |= finite & beyond & (found == np.copysign(np.inf, value))
    # How much of the bound each element uses; wrong NaN and Inf before all else.
    share = np.where(finite & np.isfinite(found), error / np.maximum(bound, 5e-324), 0.0)
    share = np.where(right, share, np.where(np.isfinite(share) & (share > 0), share, np.inf))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(share)), share.shape))
    place = _placed(at, origin)
    worst = (float(error[at]), float(bound[at]), place)
    if right.all():
        return Accuracy(True, *worst)
    return Accuracy(False, *worst, _message(~right, place, float(found[at]), float(value[at]), float(bound[at])))


def error_bound(truth: Oracle, signature: Signature) -> Array:
    """The largest error that a right kernel can make, for each element (see the module's text)."""
    out_name = result_dtype(signature)
    if out_name == "int8":
        return _bound_of_rounded(truth, signature)
    _, least, normal = _RANGES[out_name]
    sums = signature.geometry.acc_dtype
    accumulate = dtype(sums).epsilon
    lambda_ = 2 * LAMBDA if sums == "fp64" else LAMBDA  # the oracle itself rounds as much
    products = lambda_ * accumulate * np.sqrt(float(truth.length)) * truth.norm
    chain = _truncations(signature, truth.length)
    if chain:
        products = products + chain * accumulate * (truth.norm + 0.5 * truth.addends)
    if signature.geometry.tf32:  # two roundings of each product's operands, random ones again
        products = products + LAMBDA * 2 * TF32.epsilon * truth.norm
    if sums == "fp32" and _factors(signature) <= {"fp8e4m3", "fp8e5m2"}:
        products = products + LAMBDA * _CUT_FP8 * (1.0 + _FEW / max(1, truth.length) ** 0.5) * truth.norm
    before = products + _EPILOGUE_ROUNDINGS * accumulate * truth.addends
    # Subnormal products that were flushed.
    before = before + truth.length * _RANGES[sums][2]
    # Half a step of the result's type, a little more for kernels that round fp64 by way of fp32.
    rounding = dtype(out_name).epsilon * (1 + 2.0**-10) * np.abs(truth.value)
    flushed = normal if out_name == "bf16" else least
    return _activated(before, truth, signature, accumulate) + rounding + flushed


def _activated(before: Array, truth: Oracle, signature: Signature, unit: float) -> Array:
    """The bound behind the activation, of that before it; the activation is computed with ``unit`` roundoff."""
    e = signature.epilogue
    slope = max(1.0, abs(e.slope)) if e.activation == "leaky_relu" else _STEEPEST.get(e.activation, 1.0)
    bound: Array = before * slope
    return bound + _EPILOGUE_ROUNDINGS * unit * np.abs(truth.value) if e.activation in _LIFTED else bound


def _bound_of_rounded(truth: Oracle, signature: Signature) -> Array:
    """For int8 results: half a step, and the roundings to fp32 of an exact sum's scale, bias, residual and activation.

    What is infinite or no number is saturated, or 0, without any.
    """
    unit = dtype("fp32").epsilon
    before = _activated(_EPILOGUE_ROUNDINGS * unit * truth.addends, truth, signature, unit)
    bound: Array = 0.5 + np.where(np.isfinite(before), before, 0.0)
    return bound


def _truncations(signature: Signature, length: int) -> int:
    """How often tensor cores cut a sum of ``length`` products, at most; 0 where they make no such sums."""
    g = signature.geometry
    if g.tf32:
        return -(-length // _CUT_TF32)
    narrow = all(dtype(name).nbytes <= 2 for name in _factors(signature))
    return -(-length // _CUT) if narrow and g.acc_dtype == "fp32" else 0


def _factors(signature: Signature) -> set[str]:
    """The element types that are multiplied; those of a bias gradient are only added, in the result's type."""
    g = signature.geometry
    if isinstance(g, GemmGeometry):
        return {g.a.dtype, g.b.dtype}
    views = {"fwd": (g.x, g.w), "bwd": (g.y, g.w), "wrw": (g.y, g.x)}.get(g.direction, ())
    return {view.dtype for view in views} or {"fp64"}


def result_dtype(signature: Signature) -> str:
    """The element type of a call's result."""
    if isinstance(signature, GemmSignature):
        return signature.c_dtype
    return {
        "fwd": signature.output_dtype, "bwd": signature.input_dtype,
        "wrw": signature.kernel_dtype, "bgrad": signature.output_dtype,
    }[signature.mode]  # fmt: skip


def _placed(at: tuple[int, ...], origin: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip(at, origin, strict=True))) if origin else at


def _first(wrong: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def overflow_from(signature: Signature) -> float:
    """The magnitude from which a result may round to Inf."""
    name = result_dtype(signature)
    if name == "int8":  # it saturates
        return float("inf")
    return _RANGES[name][0] * (1 + 0.999 * dtype(name).epsilon)


def describe_wrong(count: int, size: int, at: tuple[int, ...], found: float, value: float, bound: float) -> str:
    """One line: the number of wrong elements, and the error of the element ``at``."""
    return f"{count} of {size} elements wrong; at {at}: {found:.9g}, should be {value:.9g} within {bound:.3g}"


def _message(wrong: Array, at: tuple[int, ...], found: float, value: float, bound: float) -> str:
    return describe_wrong(int(np.count_nonzero(wrong)), wrong.size, at, found, value, bound)
