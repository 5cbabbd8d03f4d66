"""Products tuned by another library's tuner: TVM's MetaSchedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilesmith.compare.tvm import environment
from tilesmith.compare.tvm.tuning import TRIALS, computes, tune
from tilesmith.errors import CompileError, OutOfTimeError
from tilesmith.lab.words import said
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.target import Target

SECONDS = 3600.0  # of a product, where the words name no time


@dataclass(frozen=True)
class Tuned:
    """The result of TVM's search for a product.

    Args:
        problem: The product.
        trials: Of all searches of it.
        time_us: By TVM's own measuring; None if it says none.
        reason: Why there is no kernel; empty if there is one.
    """

    problem: GemmSignature
    trials: int = 0
    time_us: float | None = None
    reason: str = ""

    @property
    def line(self) -> str:
        """In a line."""
        time_us = f", {self.time_us:.4g} us" if self.time_us else ""
        return f"{said(self.problem)}: {self.reason or f'TVM, {self.trials} trials{time_us}'}"


def tune_by_tvm(
    problems: Iterable[GemmSignature], target: Target, trials: int | None, seconds: float | None,
    tell: Callable[[str], None],
) -> Iterable[Tuned]:  # fmt: skip
    """Tune products, one after the other; one that fails costs itself alone.

    Args:
        problems: The products.
        target: Where they run.
        trials: Of a product, in all; None: 64.
        seconds: Of a product at most; None: 3600.
        tell: Called with lines of progress.

    Raises:
        ArgumentError: TVM is not here; the message says what to type.
    """
    environment.version()
    for problem in problems:
        if not computes(problem):
            yield Tuned(problem, reason="TVM is asked for plain products of fp32, fp64 or fp16 alone")
            continue
        try:
            found = tune(problem, target, trials or TRIALS, seconds or SECONDS, tell)
        except (CompileError, OutOfTimeError) as error:
            yield Tuned(problem, reason=str(error))
            continue
        yield Tuned(problem, found["trials"], found["best_us"])
