"""Decides which solver runs a problem. A pure function of facts; its trace gives the reasons.

Order of priority: a solver that the user names; the highest database layer with a usable record (the fastest record
first; a tie goes to the solver that is earlier in the table); then, depending on the mode, a measurement, or the
records of the nearest other target, and last the cost model's prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.db.layers import Answer
from tilesmith.db.records import Record
from tilesmith.dispatch.choice import DATABASE, MEASUREMENT, NEAREST, PREDICTION, SPEC, Choice, Considered
from tilesmith.errors import NoSolutionError
from tilesmith.measure.timing import preferred
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import Candidate, counted_us
from tilesmith.spelling import among

NOTHING: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Option:
    """A candidate with its default config and predicted seconds: all that is known before a measurement."""

    candidate: Candidate
    config: str = ""
    predicted_s: float | None = None

    @property
    def accepted(self) -> bool:
        return isinstance(self.candidate.verdict, Accepted)


@dataclass(frozen=True)
class Unknown:
    """No database answers, and the mode wants one: measure (``normal``, ``hybrid``, ``trust_verify``), or give up
    (``strict``).
    """

    trace: tuple[Considered, ...]


def choose(
    options: Sequence[Option], answers: Sequence[Answer], *, mode: str, only: str = "", measured: bool = False,
    near: Sequence[Sequence[Answer]] = (), without: frozenset[tuple[str, str]] = NOTHING, frozen: bool = True,
) -> Choice | Unknown:  # fmt: skip
    """Decide for one problem and target.

    ``options`` come in the table's order. ``answers`` come from the highest layer to the lowest. ``measured`` says that
    the answers include a measurement made just now, so that ``normal`` may use them. ``near`` are answers for other
    targets, one group for each target, the nearest first, whose configs exist on this target. ``without`` are pairs of
    solver and config that are not available here. Unless the filter is ``frozen``, each call packs it.
    Raises ``NoSolutionError`` when nothing fits.
    """
    if mode != "normal" or measured:
        strict = mode == "strict"
        found = held(options, answers, only=only, measured=measured, without=without, strict=strict, frozen=frozen)
        if found is not None:
            return found
    free = _free(options, only)
    trace = _trace(options, answers, only, without)
    if not free:
        raise NoSolutionError(_nothing_fits(trace, only))
    # A config that failed before is not predicted to work.
    left = [o for o in free.values() if not any(_has_failed(o, a.record) for a in answers)]
    if mode in ("fast", "strict") and not measured:
        able = {option.candidate.name: option for option in left}
        for group in near:
            best = _best_answer(_revisions(able), group, without)
            if best is not None:
                return _decided(trace, best.record.solver, best.record.config, NEAREST, best)
    # Where one solver alone fits there is nothing to choose, so nothing to look up: strict mode needs its kernel alone.
    if mode == "fast" or measured or (mode == "strict" and len(free) == 1):
        if not left:
            raise NoSolutionError("every solver that fits this problem failed its check; see `tilesmith explain`")
        left = [option for option in left if (option.candidate.name, option.config) not in without]
        if not left:
            raise NoSolutionError("no solver that fits this problem can be built; see the warnings above")
        pick = min(left, key=_expected)
        return _decided(trace, pick.candidate.name, pick.config, PREDICTION)
    return Unknown(trace)


def _expected(option: Option) -> tuple[bool, float]:
    """Sort key of candidates without a measurement: the plain reference last; only a measurement puts it first."""
    return option.candidate.plain, float("inf") if option.predicted_s is None else option.predicted_s


def held(
    options: Sequence[Option], answers: Sequence[Answer], *, only: str = "", measured: bool = False,
    without: frozenset[tuple[str, str]] = NOTHING, strict: bool = False, frozen: bool = True,
) -> Choice | None:  # fmt: skip
    """The answer of the databases, if they have one: it needs no defaults and no predictions of the options.

    An answer does not count if it lost against a kernel that has a newer revision now. Exceptions: in ``strict`` mode
    and just after a measurement it counts, because there can be no other answer.
    """
    best = _best_answer(_revisions(_free(options, only)), answers, without, losers=strict or measured, frozen=frozen)
    if best is None:
        return None
    trace = _trace(options, answers, only, without)
    return _decided(trace, best.record.solver, best.record.config, MEASUREMENT if measured else DATABASE, best)


def recorded(
    answers: Sequence[Answer], revisions: Mapping[str, int], strict: bool = False, frozen: bool = True
) -> Choice | None:
    """The databases' answer by their records alone, no solver asked: right if the chosen solver takes the problem.

    ``revisions`` are those of the solvers that answer, in the table's order.
    """
    best = _best_answer(revisions, answers, NOTHING, losers=strict, frozen=frozen)
    if best is None:
        return None
    first = _first_of_each(answers)
    trace = tuple(_with_record(Considered(name, ""), first[name], revision) for name, revision in revisions.items())
    return _decided(trace, best.record.solver, best.record.config, DATABASE, best)


def usable(record: Record, revisions: Mapping[str, int]) -> bool:
    """True if the record was checked and measured, and its solver still generates the recorded kernel."""
    return record.ok and revisions.get(record.solver) == record.revision


def outdated(record: Record, revisions: Mapping[str, int]) -> bool:
    """True if the record was checked and measured, and its solver has a newer revision now."""
    return record.ok and record.revision < revisions.get(record.solver, record.revision)


def _revisions(options: Mapping[str, Option]) -> dict[str, int]:
    return {name: option.candidate.solver.revision for name, option in options.items()}


def _free(options: Sequence[Option], only: str) -> dict[str, Option]:
    return {o.candidate.name: o for o in options if o.accepted and (not only or matches(o.candidate, only))}


def _has_failed(option: Option, record: Record) -> bool:
    """True if the record says that the current revision of the solver failed on this problem."""
    candidate = option.candidate
    return not record.ok and (record.solver, record.revision) == (candidate.name, candidate.solver.revision)


def _best_answer(
    revisions: Mapping[str, int],
    answers: Sequence[Answer],
    without: frozenset[tuple[str, str]],
    losers: bool = False,
    frozen: bool = True,
) -> Answer | None:
    """The best answer, by ``_time_us``, of the highest layer with a usable one; a tie goes to the earlier solver."""
    order = {name: place for place, name in enumerate(revisions)}
    for layer in dict.fromkeys(answer.layer for answer in answers):
        times = {
            answer: (_time_us(answer.record, frozen), answer.record.spread_us or 0.0)
            for answer in answers
            if answer.layer == layer
            and usable(answer.record, revisions)
            and (answer.record.solver, answer.record.config) not in without
        }
        if times:
            best = preferred(times, lambda answer: order[answer.record.solver])
            if losers or not _has_lost(best, answers, revisions):
                return best
    return None


def _time_us(record: Record, frozen: bool) -> float:
    """``counted_us``, and what packing the filter takes where each call packs it."""
    return counted_us(record.solver, record.time_us or 0.0) + (0.0 if frozen else record.prepare_us or 0.0)


def _has_lost(best: Answer, answers: Sequence[Answer], revisions: Mapping[str, int]) -> bool:
    """True if a solver that has a newer revision now was faster than ``best``, and no later search found otherwise.

    NOTE: without this a new revision of the fastest solver gives its problems to the second fastest solver, which may
    be the plain reference.
    """
    return any(
        answer.layer == best.layer
        and outdated(answer.record, revisions)
        and (answer.record.time_us or 0.0) < (best.record.time_us or 0.0)
        and answer.record.date >= best.record.date
        for answer in answers
    )


def matches(candidate: Candidate, only: str) -> bool:
    """``only`` names a solver in any form, or one form of it (``solver@form``)."""
    return only in (candidate.name, candidate.solver.name)


def _trace(
    options: Sequence[Option],
    answers: Sequence[Answer],
    only: str,
    without: frozenset[tuple[str, str]] = NOTHING,
) -> tuple[Considered, ...]:
    first = _first_of_each(answers)
    lines = []
    for option in options:
        name = option.candidate.name
        known = first.get(name)
        if not option.accepted:
            lines.append(Considered(name, str(option.candidate.verdict)))
            continue
        reason = "" if not only or matches(option.candidate, only) else f"only {only} may be used"
        predicted_us = None if option.predicted_s is None else option.predicted_s * 1e6
        line = Considered(name, reason, option.config, predicted_us)
        if known is not None:
            line = _with_record(line, known, option.candidate.solver.revision)
        if (name, line.config) in without:
            line = replace(line, reason=reason or "cannot be built here; see the warnings")
        lines.append(line)
    return tuple(lines)


def _first_of_each(answers: Iterable[Answer]) -> dict[str, Answer]:
    """The answer of each solver that comes first: of the highest layer."""
    first: dict[str, Answer] = {}
    for answer in answers:
        first.setdefault(answer.record.solver, answer)
    return first


def _with_record(line: Considered, known: Answer, revision: int) -> Considered:
    """A line of the trace with what a database holds of its solver, which is at ``revision`` now."""
    record, reason = known.record, line.reason
    if not record.ok:
        reason = reason or f"failed: {record.reason}"
    elif revision != record.revision:
        reason = reason or f"record of revision {record.revision}, the solver is at {revision}"
    return Considered(
        line.solver, reason, record.config, line.predicted_us, record.time_us, record.spread_us, known.layer
    )


def marked(options: Sequence[Option], solver: str, config: str) -> tuple[Considered, ...]:
    """The trace of a choice that was made without measurements."""
    return _decided(_trace(options, (), ""), solver, config, SPEC).trace


def _decided(
    trace: tuple[Considered, ...], solver: str, config: str, basis: str, answer: Answer | None = None
) -> Choice:
    if answer is None:
        shown = tuple(replace(line, chosen=True, config=config) if line.solver == solver else line for line in trace)
        return Choice(solver, config, basis, "", None, shown)
    record = answer.record
    # The time on another target does not predict the time on this one.
    time_us, spread_us = (None, None) if basis == NEAREST else (record.time_us, record.spread_us)
    chosen = Considered(solver, "", config, None, time_us, spread_us, answer.layer, True)
    shown = tuple(
        (chosen if line.predicted_us is None else replace(chosen, predicted_us=line.predicted_us))
        if line.solver == solver
        else line
        for line in trace
    )
    return Choice(solver, config, basis, answer.layer, time_us, shown, answer.role, record)


def _nothing_fits(trace: tuple[Considered, ...], only: str) -> str:
    if only and not any(line.solver.partition("@")[0] == only.partition("@")[0] for line in trace):
        known = dict.fromkeys(line.solver.partition("@")[0] for line in trace)
        return f"solver {only!r} (asked for by only= or TILESMITH_ONLY_SOLVER) does not exist{among(only, known)}"
    reasons = "; ".join(
        f"{line.solver}: {line.reason}"
        for line in trace
        if not only or line.solver.partition("@")[0] == only.partition("@")[0]
    )
    return f"no solver fits this problem ({reasons})"
