"""Results of tuning a model: one row for each problem that the model met, and sums weighted by calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.errors import shortened
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.short_name import short_name
from tilesmith.ready.text_table import fitted_table, wrapped

PYTORCH = "pytorch"  # in ``ModelRow.winner``
_WIDTH = 80  # columns of the table
# Values of ``ModelRow.state``.
UNMEASURED, MEASURED, SEARCHED, CONVERGED, FAILED = "unmeasured", "measured", "searched", "converged", "failed"
BUDGET, INTERRUPTED = "budget", "interrupted"  # beside CONVERGED: values of ``ModelResult.ended``


@dataclass(frozen=True)
class ModelRow:
    """One problem of a model.

    Args:
        signature: The problem.
        calls: Number of calls in the run that was traced, from 1.
        pytorch_us: Microseconds of one call of PyTorch's own operator. None: PyTorch was not measured, or other
            processes disturbed it all the time.
        untuned_us: Microseconds of one call of the config that is chosen without a measurement. None: not measured.
        tuned_us: Microseconds of one call of the fastest config that is known now. None: nothing is known.
        solver: Solver of the fastest config. Empty: nothing is known.
        config: That config.
        state: ``"unmeasured"``, ``"measured"`` (the defaults of the solvers), ``"searched"``, ``"converged"`` (no
            config is likely to be faster) or ``"failed"``.
        reason: Why a failed problem has no answer; empty for the other states.
    """

    signature: Signature
    calls: int
    pytorch_us: float | None = None
    untuned_us: float | None = None
    tuned_us: float | None = None
    solver: str = ""
    config: str = ""
    state: str = UNMEASURED
    reason: str = ""

    @property
    def before_us(self) -> float | None:
        """Microseconds of one call without tuning: PyTorch's, or the untuned config's if PyTorch was not measured."""
        return self.untuned_us if self.pytorch_us is None else self.pytorch_us

    @property
    def after_us(self) -> float | None:
        """Microseconds of one call of the winner."""
        known = [us for us in (self.tuned_us, self.pytorch_us) if us is not None]
        return min(known, default=None)

    @property
    def winner(self) -> str:
        """``"pytorch"`` if PyTorch's operator is faster than the fastest config, else the config's solver."""
        return PYTORCH if self.pytorch_us is not None and self.after_us == self.pytorch_us else self.solver

    @property
    def speedup(self) -> float | None:
        """``before_us`` over ``after_us``."""
        return self.before_us / self.after_us if self.before_us and self.after_us else None


@dataclass(frozen=True)
class ModelResult:
    """The result of ``tune_model``; it prints as a table.

    Args:
        target: Name of the target.
        rows: The problems, the one with the largest share of the time first.
        others: Calls that no signature describes: ``(operator and reason, number of calls)``.
        seconds: Seconds that tuning took, without the run of the model.
        ended: ``"converged"`` (no problem is worth more time), ``"budget"`` or ``"interrupted"``.
    """

    target: str
    rows: tuple[ModelRow, ...]
    others: tuple[tuple[str, int], ...]
    seconds: float
    ended: str

    @property
    def before_us(self) -> float:
        """Microseconds of all calls before, over the problems whose times are known."""
        return sum(row.calls * (row.before_us or 0.0) for row in self._known)

    @property
    def after_us(self) -> float:
        """Microseconds of all calls of the winners, over the same problems."""
        return sum(row.calls * (row.after_us or 0.0) for row in self._known)

    @property
    def speedup(self) -> float | None:
        """``before_us`` over ``after_us``. None: no time is known."""
        return self.before_us / self.after_us if self.after_us else None

    @property
    def _known(self) -> list[ModelRow]:
        return [row for row in self.rows if row.speedup is not None]

    def __str__(self) -> str:
        """The table: each problem, then the sum weighted by calls."""
        foot = [f"not described: {text} ({count} calls)" for text, count in self.others]
        if not self.rows:
            return "\n".join(["no convolution and no product was met", *foot])
        headers = ("calls", "problem", "pytorch_us", "untuned_us", "tuned_us", "speedup", "won", "state")
        lines = [
            (
                row.calls, in_words(row.signature), row.pytorch_us, row.untuned_us, row.tuned_us, row.speedup,
                row.winner or "-", shortened(row.reason) or row.state,
            )
            for row in self.rows
        ]  # fmt: skip
        speedup = "" if self.speedup is None else f", {self.speedup:.3f}x"
        known = f"{len(self._known)} of {len(self.rows)} problems"
        total = f"before {self.before_us / 1e3:.4g} ms, after {self.after_us / 1e3:.4g} ms{speedup} ({known})"
        calls = sum(row.calls for row in self.rows)
        whole = f"{calls} calls on {self.target}: {total}; ended by {self.ended} after {self.seconds:.0f} s"
        below = [part for text in (whole, *foot) for part in wrapped(text, _WIDTH, "    ", "")]
        return "\n".join([fitted_table(headers, lines, _WIDTH, below=("problem", "state")), *below])


@dataclass(frozen=True)
class ModelProgress:
    """The state of the tuning of a model.

    Args:
        doing: What is done now, in words.
        measured: Number of problems with a time.
        problems: Number of all problems.
        seconds: Seconds since the beginning.
        budget_s: Seconds that tuning may take.
        before_us: Microseconds of all calls before, over the problems whose times are known.
        after_us: Microseconds of all calls of the winners so far.
    """

    doing: str
    measured: int
    problems: int
    seconds: float
    budget_s: float
    before_us: float
    after_us: float

    @property
    def gain(self) -> str:
        """The gain so far in words; empty if no time is known."""
        return f"{self.before_us / self.after_us:.3f}x" if self.before_us and self.after_us else ""


Listener = Callable[[ModelProgress], None]


in_words = short_name  # of problems, in tables and lines
