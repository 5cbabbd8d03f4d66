"""The checks that a kernel must pass: on every device the same runs, in the same order, with the same messages.

There are two checks, because a search tries hundreds of configs and chooses one:

- ``check``, for every config: two runs. In the first the tensors begin at a page, result, workspace and packed filter
  hold NaNs; in the second they end at one, the result holds numbers, the filter is another, and the workspace is what
  the first run left.
- ``certify``, for every config that may become a choice: all other alignments that allocators give, the items of
  each launch in other pieces and in another order, two filters packed at a time, and NaN and Inf in the operands.

The second filter is the first one with its signs negated, and so is the other operand: every product is the same, to
the last bit, and one oracle serves both. (Integers have no sign to spare; their second arguments are new random
numbers.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.host_tensors import Placement
from tilesmith.measure.judge import Judge, PartsJudge, WholeJudge
from tilesmith.measure.oracle import Oracle, oracle
from tilesmith.measure.special import Specials, plant
from tilesmith.plan.slots import arguments
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args

Array = NDArray[Any]

NAN: Final = 0xFF  # in every floating-point format all ones are a NaN
NUMBER: Final = 0x3C  # in every format a number of order 1, or 0.01
PIECES: Final = 7  # a prime, so that it cuts no problem evenly


class Values(Enum):
    """The contents of the operands; the text ends a message."""

    FIRST = ""
    SECOND = "with a second filter"
    SPECIAL = "with NaN and Inf in the operands"


class CheckedPlan(Protocol):
    """A plan on the tensors of a checker. It has room for two packed filters."""

    def fill(self, byte: int) -> None:
        """Set every byte of the workspace and of the packed filters."""
        ...

    def prepare(self, second: bool = False, pieces: int = 0) -> None:
        """Pack the filter. ``pieces``: the items of each launch in so many on one thread, where the device has such."""
        ...

    def run(self, second: bool = False, pieces: int = 0) -> None: ...


@dataclass(frozen=True)
class Run:
    place: Placement
    values: Values
    result: int  # each byte of the result's elements before the run
    memory: int | None = None  # each byte of workspace and packed filter; None: what the last run left
    pieces: int = 0


Arrangement = tuple[Placement, Values]
_PIECEWISE: Final = Run(Placement.ELEMENT, Values.FIRST, NUMBER, NUMBER, PIECES)
_ALONE: Final = Run(Placement.PAST_16, Values.SECOND, NAN, None, 1)
_SPECIAL: Final = Run(Placement.PAST_48, Values.SPECIAL, NAN, NAN)


class Checker(ABC):
    """Checks plans of one problem. ``values`` are its sample arguments for ``seed``, ``truth`` the oracle's answer.

    Without a truth, each new result is compared with an oracle that is computed for it, in parts.
    """

    #: What the two runs of ``check`` find.
    sides: tuple[Arrangement, Arrangement] = ((Placement.LOW, Values.FIRST), (Placement.HIGH, Values.SECOND))

    def __init__(
        self, signature: Signature, values: tuple[Array, ...], truth: Oracle | None, like: Array, seed: int = 0
    ) -> None:
        """``like`` is an array of the result's shape and strides."""
        self.signature = signature
        self._truth = truth
        self._first_judge: Judge = PartsJudge(signature, values)
        if truth is not None:
            self._first_judge = WholeJudge(signature, truth, like)
        self._values, self._like, self._seed = values, like, seed
        self._arranged: Arrangement | None = None
        self._known: tuple[Array, Accuracy] | None = None  # a result that was right

    @property
    def truth(self) -> Oracle | None:
        """The oracle's answer for the first arguments."""
        return self._truth

    # --- what a device does -------------------------------------------------------------------------------------------

    @abstractmethod
    def arrange(self, place: Placement, values: Values) -> None:
        """Move every tensor to this placement, the operands with these values (``operands_of`` and ``negated``).

        The operands must not be written from now on.
        """

    @abstractmethod
    def clear(self, byte: int) -> None:
        """Fill the result's elements, except a GEMM's initial c."""

    @abstractmethod
    def where(self, place: Placement) -> str:
        """The place in words that end a message."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until running work has ended."""

    @abstractmethod
    def found(self) -> Array:
        """The result, on the host."""

    @abstractmethod
    def out_of_bounds(self) -> str:
        """Names a write to read-only memory or beside the tensors, in words; empty if there is none."""

    # --- the checks ---------------------------------------------------------------------------------------------------

    def check(self, plan: CheckedPlan) -> Accuracy:
        """The two runs that every config must pass; the first wrong verdict counts."""
        self._known = None
        sides = self.sides if self._arranged != self.sides[1] else self.sides[::-1]  # the tensors are moved once
        verdict = self._perform(plan, Run(*sides[0], NAN, NAN))
        if verdict.ok:
            again = self._perform(plan, Run(*sides[1], NUMBER))
            verdict = verdict if again.ok else again
        return verdict

    def certify(self, plan: CheckedPlan) -> Accuracy:
        """The further runs that a config must pass before it may be chosen; the first wrong verdict counts."""
        self._known = None
        verdict = self._perform(plan, _PIECEWISE)
        if verdict.ok:
            verdict = self._perform(plan, _ALONE)
        if verdict.ok:
            verdict = self._two_filters(plan)
        if verdict.ok:
            verdict = self._special(plan)
        return verdict

    def _two_filters(self, plan: CheckedPlan) -> Accuracy:
        """Both filters are packed before the first of them is used, from the same address."""
        self._arrange(Placement.PAST_32, Values.SECOND)
        plan.prepare(second=True)
        self._arrange(Placement.PAST_32, Values.FIRST)
        plan.prepare()
        self.clear(NUMBER)
        plan.run()
        verdict = self._verdict(Values.FIRST, " with two filters packed")
        if not verdict.ok:
            return verdict
        self._arrange(Placement.PAST_32, Values.SECOND)
        self.clear(NAN)
        plan.run(second=True)
        return self._verdict(Values.SECOND)

    def _special(self, plan: CheckedPlan) -> Accuracy:
        if any(value.dtype.kind in "iu" for value in self._values):
            return Accuracy(True, 0.0, 0.0, ())
        self.remember()
        return self._perform(plan, _SPECIAL)

    def remember(self) -> None:
        """Remember the result of the last run, which was right: equal bits need no check."""
        if self._known is None:
            self._known = self.found().copy(), Accuracy(True, 0.0, 0.0, ())

    def _perform(self, plan: CheckedPlan, run: Run) -> Accuracy:
        self._arrange(run.place, run.values)
        self.clear(run.result)
        if run.memory is not None:
            plan.fill(run.memory)
        plan.prepare(pieces=run.pieces)
        plan.run(pieces=run.pieces)
        pieces = {0: "", 1: " on one thread"}.get(run.pieces, f" in {run.pieces} pieces")
        return self._verdict(run.values, pieces)

    def _arrange(self, place: Placement, values: Values) -> None:
        if self._arranged != (place, values):
            self.arrange(place, values)
            self._arranged = place, values

    # --- verdicts -----------------------------------------------------------------------------------------------------

    def _verdict(self, values: Values, how: str = "") -> Accuracy:
        self.finish()
        verdict = self.judged(values)
        trouble = self.out_of_bounds()
        if verdict.ok and trouble:
            verdict = replace(verdict, ok=False, message=trouble)
        if verdict.ok:
            return verdict
        assert self._arranged is not None
        place, self._arranged = self._arranged[0], None  # whatever was written to an operand is put right
        words = f" {values.value}" if values.value else ""
        return replace(verdict, message=f"{verdict.message} (tensors {self.where(place)}{words}{how})")

    def judged(self, values: Values) -> Accuracy:
        """Check only the numbers. A result with the same bits as an earlier right result is right."""
        found = self.found()
        if values is Values.SPECIAL:
            assert self._known is not None
            return self._specials.check(found, self._known[0], self.check_again)
        if values is Values.FIRST or self._negates:
            return self.check_again(found)
        return self._second_judge(found)

    def check_again(self, found: Array) -> Accuracy:
        """``check_result`` of a plan that has been right before: most results have the same bits."""
        if self._known is not None and same_bits(found, self._known[0]):
            return self._known[1]
        verdict = self.check_result(found)
        if verdict.ok and self._known is None:
            self._known = found.copy(), verdict
        return verdict

    def check_result(self, found: Array) -> Accuracy:
        """The numbers of a result of the first arguments, wherever it comes from."""
        return self._first_judge(found)

    @cached_property
    def _second_judge(self) -> Judge:
        if self._truth is None:
            return PartsJudge(self.signature, self._redrawn)
        return WholeJudge(self.signature, oracle(self.signature, self._redrawn), self._like)

    # --- arguments ----------------------------------------------------------------------------------------------------

    @cached_property
    def _negates(self) -> bool:
        """Whether negated signs make the second arguments."""
        return not any(value.dtype.kind in "iu" for value in self._values[:2])

    def negated(self, values: Values) -> int:
        """The number of leading operands whose signs must still be negated."""
        return len(self._values[:2]) // 2 * 2 if values is Values.SECOND and self._negates else 0

    def operands_of(self, values: Values) -> tuple[Array, ...]:
        """The arguments, but for the signs of those that are ``negated``."""
        if values is Values.SPECIAL:
            return self._specials.values
        return self._values if values is Values.FIRST or self._negates else self._redrawn

    @cached_property
    def _redrawn(self) -> tuple[Array, ...]:
        """Other operands. A GEMM's initial c is no operand: it lies in the result's memory, and is always the first."""
        count = len(arguments(self.signature)) - 1
        return (*sample_args(self.signature, self._seed + 1)[:count], *self._values[count:])

    @cached_property
    def _specials(self) -> Specials:
        return plant(self.signature, self._values, self._seed)


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays of one shape hold the same bytes."""
    if not (a.flags.c_contiguous and b.flags.c_contiguous):
        return False
    first, second = (each.reshape(-1).view(np.uint8) for each in (a, b))
    whole = first.size // 8 * 8
    return np.array_equal(first[:whole].view(np.uint64), second[:whole].view(np.uint64)) and np.array_equal(
        first[whole:], second[whole:]
    )
