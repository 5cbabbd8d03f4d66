"""Which solver answers a problem: a pure decision from facts, with a trace of why.

Order of authority: a solver that the user names; the highest database layer that holds a usable record (fastest first,
ties to the solver that stands earlier in the table); then, by mode, a measurement or the cost model's prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilesmith.db.records import Record
from tilesmith.errors import NoSolutionError
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import Candidate

# What an answer rests on.
DATABASE, PREDICTION, MEASUREMENT, SPEC = "database", "prediction", "measurement", "tuning spec"


@dataclass(frozen=True)
class Option:
    """A candidate with what is known of it before anything is measured: its default config and predicted seconds."""

    candidate: Candidate
    config: str = ""
    predicted_s: float | None = None

    @property
    def accepted(self) -> bool:
        return isinstance(self.candidate.verdict, Accepted)


@dataclass(frozen=True)
class Answer:
    """A measured record and the database layer that it comes from."""

    record: Record
    layer: str


@dataclass(frozen=True)
class Considered:
    """One line of the trace: a candidate, why it was refused or passed over, and its numbers."""

    solver: str
    reason: str
    config: str = ""
    predicted_us: float | None = None
    time_us: float | None = None
    spread_us: float | None = None
    layer: str = ""
    chosen: bool = False


@dataclass(frozen=True)
class Choice:
    """The decision.

    ``basis`` is ``database``, ``prediction``, ``measurement`` or ``tuning spec``; ``layer`` names the database or file.
    """

    solver: str
    config: str
    basis: str
    layer: str
    time_us: float | None
    trace: tuple[Considered, ...]


@dataclass(frozen=True)
class Unknown:
    """No database answers, and the mode wants one: measure (``normal``, ``hybrid``, ``trust_verify``), or give up
    (``strict``).
    """

    trace: tuple[Considered, ...]


def choose(
    options: Sequence[Option], answers: Sequence[Answer], *, mode: str, only: str = "", measured: bool = False
) -> Choice | Unknown:
    """Decide for one problem and target.

    ``options`` come in the table's order. ``answers`` come from the highest layer to the lowest. ``measured`` says that
    the answers include a measurement made just now, so that ``normal`` may use them.
    Raises ``NoSolutionError`` when nothing fits.
    """
    trace = _trace(options, answers, only)
    free = {o.candidate.name: o for o in options if o.accepted and (not only or matches(o.candidate, only))}
    if not free:
        raise NoSolutionError(_nothing_fits(trace, only))
    if mode != "normal" or measured:
        best = _best_answer(free, answers)
        if best is not None:
            record, layer = best.record, best.layer
            basis = MEASUREMENT if measured else DATABASE
            return _decided(trace, record.solver, record.config, basis, layer, record.time_us)
    if mode == "fast" or measured:
        # What was seen to fail is not predicted to work.
        left = [o for o in free.values() if not any(_has_failed(o, a.record) for a in answers)]
        if not left:
            raise NoSolutionError("every solver that fits this problem failed its check; see `tilesmith explain`")
        pick = min(left, key=lambda o: float("inf") if o.predicted_s is None else o.predicted_s)
        return _decided(trace, pick.candidate.name, pick.config, PREDICTION, "", None)
    return Unknown(trace)


def usable(record: Record, options: dict[str, Option]) -> bool:
    """The record was checked and measured, and its solver still generates the kernel that it speaks of."""
    option = options.get(record.solver)
    return record.ok and option is not None and option.candidate.solver.revision == record.revision


def _has_failed(option: Option, record: Record) -> bool:
    """The record says that the solver, as it is now, failed on this problem."""
    candidate = option.candidate
    return not record.ok and (record.solver, record.revision) == (candidate.name, candidate.solver.revision)


def _best_answer(free: dict[str, Option], answers: Sequence[Answer]) -> Answer | None:
    for layer in dict.fromkeys(answer.layer for answer in answers):
        good = [a for a in answers if a.layer == layer and usable(a.record, free)]
        if not good:
            continue
        best = min(good, key=_time)
        order = list(free)
        tied = [
            a for a in good if _time(a) - _time(best) <= max(a.record.spread_us or 0.0, best.record.spread_us or 0.0)
        ]
        return min(tied, key=lambda a: order.index(a.record.solver))
    return None


def _time(answer: Answer) -> float:
    return float("inf") if answer.record.time_us is None else answer.record.time_us


def matches(candidate: Candidate, only: str) -> bool:
    """``only`` names a solver in any form, or one form of it (``solver@form``)."""
    return only in (candidate.name, candidate.solver.name)


def _trace(options: Sequence[Option], answers: Sequence[Answer], only: str) -> tuple[Considered, ...]:
    lines = []
    for option in options:
        name = option.candidate.name
        known = next((a for a in answers if a.record.solver == name), None)
        if not option.accepted:
            lines.append(Considered(name, str(option.candidate.verdict)))
            continue
        reason = "" if not only or matches(option.candidate, only) else f"only {only} may be used"
        line = Considered(name, reason, option.config, None if option.predicted_s is None else option.predicted_s * 1e6)
        if known is not None:
            record = known.record
            if not record.ok:
                reason = reason or f"failed: {record.reason}"
            elif option.candidate.solver.revision != record.revision:
                reason = (
                    reason
                    or f"record of revision {record.revision}, the solver is at {option.candidate.solver.revision}"
                )
            line = replace(
                line, reason=reason, config=record.config, time_us=record.time_us, spread_us=record.spread_us,
                layer=known.layer,
            )  # fmt: skip
        lines.append(line)
    return tuple(lines)


def marked(options: Sequence[Option], solver: str, config: str) -> tuple[Considered, ...]:
    """The trace of a choice that was made without measurements."""
    return _decided(_trace(options, (), ""), solver, config, SPEC, "", None).trace


def _decided(
    trace: tuple[Considered, ...], solver: str, config: str, basis: str, layer: str, time_us: float | None
) -> Choice:
    shown = tuple(replace(line, chosen=True, config=config) if line.solver == solver else line for line in trace)
    return Choice(solver, config, basis, layer, time_us, shown)


def _nothing_fits(trace: tuple[Considered, ...], only: str) -> str:
    if only and not any(line.solver.partition("@")[0] == only.partition("@")[0] for line in trace):
        known = ", ".join(dict.fromkeys(line.solver.partition("@")[0] for line in trace))
        return f"solver {only!r} (asked for by only= or TILESMITH_ONLY_SOLVER) does not exist; known: {known}"
    reasons = "; ".join(
        f"{line.solver}: {line.reason}"
        for line in trace
        if not only or line.solver.partition("@")[0] == only.partition("@")[0]
    )
    return f"no solver fits this problem ({reasons})"
