"""Makes the choice and the plan for a problem: gathers facts, decides, and measures if the mode requires it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from tilesmith import env
from tilesmith.db.records import Record
from tilesmith.dispatch import untuned
from tilesmith.dispatch.answers import answers_of, as_held, neighbours_of
from tilesmith.dispatch.choice import (
    DATABASE,
    MEASUREMENT,
    NEAREST,
    NEIGHBOUR,
    PACKAGE,
    PACKAGES,
    PREDICTION,
    SPEC,
    BuiltPlan,
    Choice,
    Resolved,
)
from tilesmith.dispatch.choose import NOTHING, choose, held, matches, outdated, recorded, usable
from tilesmith.dispatch.facts import bare_options_of, near_answers_of, options_of, revisions_of
from tilesmith.dispatch.neighbours import by_neighbour
from tilesmith.dispatch.packaged import above, advice, best_plan, failed_kernels, plan_of, with_record
from tilesmith.dispatch.planning import build, held_plan, preload_command
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.spec.choice import spec_choice
from tilesmith.errors import (
    CompileError,
    LaunchError,
    NoCompilerError,
    NoSolutionError,
    PlanError,
)
from tilesmith.measure.host import host_facts
from tilesmith.measure.timing import Timing
from tilesmith.runtime.executable import Executable
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import Candidate, candidates, external_solver
from tilesmith.targets.target import Target
from tilesmith.toolchain import memo
from tilesmith.toolchain.plans import find_todays_plan

TRUSTED_RATIO = 1.1
_measuring = threading.RLock()
_told: set[tuple[str, str]] = set()  # pairs (target, nearest target) that were logged
_log = logging.getLogger("tilesmith.dispatch")


def resolve(request: Request) -> Resolved:
    """The choice for a problem, compiled. If another library's kernel is chosen, the best generated kernel is compiled.

    Raises ``NoSolutionError``, ``NoCompilerError``.
    """
    layers = request.layers
    request = replace(request, databases=layers)  # all that follows asks the layers as they were opened here
    if request.mode != "normal" and not request.only:
        request = as_held(request)
    found = from_package(request) or recorded_hit(request) or _decided_and_built(request)
    if (
        request.mode == "trust_verify"
        and found.choice.basis in (DATABASE, PACKAGE)
        and found.bind is None  # the plan's time would say nothing of another library's kernel
        and found.choice.layer != layers.databases[-1].name
    ):
        return _verify(request, found)
    return found


def explained(request: Request, kept: bool = False) -> Choice:
    """The choice without its plan, as ``resolve`` makes it in a mode that does not measure, with its evidence.

    ``kept``: what the estimates chose in an earlier process is taken over, and kept for later ones. The trace of such a
    choice has the accepted candidates alone.

    Raises ``NoSolutionError``.
    """
    request = request if request.only else as_held(request)
    packed = from_package(request)
    if packed is not None:
        return with_record(packed, request).choice
    if not kept:
        return decide(request)
    found = untuned.recall(request)
    if found is None:
        found = decide(request)
        untuned.keep(request, found)
    return found


def from_package(request: Request) -> Resolved | None:
    """The answer of a kernel package; None where something comes before it: a measurement that the mode wants, the
    tuning spec, or a team or user database. ``trust_verify`` takes a measured answer alone.
    """
    if not request.packages.state or request.mode == "normal":
        return None
    signature, target, only = request.signature, request.target, request.only
    has_spec = not only and env.TUNING_SPEC_PATH.get() is not None
    if has_spec and spec_choice(signature, target, options_of(signature, target, request.external)) is not None:
        return None
    answers = above(answers_of(request))
    if any(answer.record.ok for answer in answers):
        names = {answer.record.solver for answer in answers}
        options = bare_options_of(signature, target, names, request.external)
        if held(options, answers, only=only, strict=request.strict) is not None:
            return None
    found = best_plan(request, failed_kernels(answers))
    if found is not None and request.mode == "trust_verify":
        found = with_record(found, request)
        return None if found.choice.record is None else found
    return found


def recorded_hit(request: Request) -> Resolved | None:
    """The databases' answer if its plan is in the cache too. This is the common case, so it must be fast.

    No solver is asked: the current generator made the plan for this target, so its solver accepts the problem. Where
    each call packs the filter, but only the plan for a filter that is packed once is here, that is the answer: what has
    been remembered needs no compiler.
    """
    found = _recorded_plan(request)
    return found if found is not None or request.frozen else _recorded_plan(replace(request, frozen=True))


def _recorded_plan(request: Request) -> Resolved | None:
    if request.mode == "normal" or request.only or env.TUNING_SPEC_PATH.get() is not None:
        return None
    answers = answers_of(request)
    names = {answer.record.solver for answer in answers}
    revisions = revisions_of(request.target, names)
    choice = recorded(answers, revisions, strict=request.strict, frozen=request.frozen)
    libraries = {name: solver.revision for name in names if (solver := external_solver(name)) is not None}
    if libraries and choice is not None:
        # The generated kernel is the answer only if no library's kernel is, whether these take part or not.
        with_all = recorded(answers, revisions | libraries, strict=request.strict, frozen=request.frozen)
        if with_all is None or (with_all.solver, with_all.config) != (choice.solver, choice.config):
            return None
    if choice is None or choice.record is None:
        return None
    plan = find_todays_plan(
        request.cache, request.problem, choice.solver, choice.record.revision, choice.config, request.target
    )
    if plan is None:
        packed = plan_of(request, choice.solver, choice.config, choice.record.revision)
        return None if packed is None else Resolved(choice, packed)
    if not request.strict:
        memo.remember(request.cache)
    return Resolved(choice, BuiltPlan(plan.serial, plan.artifacts, remembered=True))


def _decided_and_built(request: Request) -> Resolved:
    without, kept = NOTHING, untuned.recall(request)
    if kept is not None and not _is_taken(request, kept.solver):
        kept = None
    while True:
        choice = decide(request, without) if without or kept is None else kept
        if choice.basis in PACKAGES:  # nothing could be measured
            request = replace(request, mode="fast")
            if packed := from_package(request):
                return packed
            continue
        candidate = _candidate(request, choice.solver)
        if candidate.external is not None:
            # ``decide`` measured just now if the mode requires it, so hybrid mode measures nothing again.
            again = request.mode if request.mode in ("strict", "fast") else "hybrid"
            ours = resolve(replace(request, mode=again, only="", external=False))
            return Resolved(choice, ours.built, candidate.external.bind)
        try:
            built = build(request, candidate, choice.config)
            break
        except (NoCompilerError, NoSolutionError) as error:
            # The chosen kernel is not here and cannot be made. Another answer of the databases may be at hand.
            if choice.basis in (DATABASE, NEIGHBOUR, PREDICTION) and (other := _at_hand(request, choice)):
                _log.warning("%s; %s %s, which is here, is used", error, other.choice.solver, other.choice.config)
                return other
            if choice.basis not in (NEAREST, NEIGHBOUR):
                if choice.basis != SPEC and (packed := best_plan(request)):
                    shown = packed.choice
                    _log.warning("%s; %s %s of %s is used", error, shown.solver, shown.config, shown.layer)
                    return packed
                if isinstance(error, NoCompilerError):
                    raise NoCompilerError(f"{error}; {advice(request)}") from None
                raise
        except (CompileError, PlanError) as error:
            if request.strict or choice.basis == SPEC:
                raise
            _log.warning("%s %s cannot be built (%s); the next best is used", choice.solver, choice.config, error)
        without |= {(choice.solver, choice.config)}
    if choice.basis == NEAREST:
        _tell_of_nearest(choice, request.target)
    if kept is None and not without:
        untuned.keep(request, choice)
    return Resolved(choice, built)


def decide(request: Request, without: frozenset[tuple[str, str]] = NOTHING) -> Choice:
    """The choice without its plan; measures if the mode requires it. ``without``: pairs that are not available here.

    Raises ``NoSolutionError`` when nothing fits, or when no database answers and the mode is ``strict``.
    """
    signature, target, mode, only = request.signature, request.target, request.mode, request.only
    if not only and env.TUNING_SPEC_PATH.get() is not None:
        spec = spec_choice(signature, target, options_of(signature, target, request.external))
        if spec is not None:
            return spec
    answers = answers_of(request)
    if mode != "normal":
        names = {answer.record.solver for answer in answers}
        found = answers and held(
            bare_options_of(signature, target, names, request.external), answers, only=only, without=without,
            strict=request.strict, frozen=request.frozen,
        )  # fmt: skip
        if found:
            return found
    if mode == "fast" and not any(request.layers.near(request.problem, target)):
        close = neighbours_of(request)
        like = by_neighbour(request, close, answers, without) if close else None
        if like is not None:  # the other solvers need no estimate
            return like
    options = options_of(signature, target, request.external)
    near = near_answers_of(request, options)
    answer = choose(options, answers, mode=mode, only=only, near=near, without=without, frozen=request.frozen)
    if isinstance(answer, Choice):
        return answer
    if request.strict:
        raise NoSolutionError(_nothing_held(request))
    free = [o for o in options if o.accepted and (not only or matches(o.candidate, only))]
    measured, like = True, by_neighbour(request, neighbours_of(request), answers, without)
    if len(free) > 1:
        try:
            known = {option.candidate.name: option.candidate.solver.revision for option in free}
            old = [answer for answer in answers if outdated(answer.record, known)]
            first = [(each.record.solver, each.record.config) for each in (*old[:3], *(near[0][:3] if near else ()))]
            first += [] if like is None else [(like.solver, like.config)]
            _measure(request, "defaults", first)
        except (LaunchError, CompileError, NoCompilerError, OSError) as error:
            _log.warning("nothing could be measured (%s); an answer that is not measured is used", error)
            measured = False
            if packed := from_package(replace(request, mode="fast")):
                return packed.choice
    answers = answers_of(request)
    answer = choose(
        options, answers, mode=mode if measured else "fast", only=only, measured=measured, near=near, without=without,
        frozen=request.frozen,
    )  # fmt: skip
    assert isinstance(answer, Choice)
    return like if answer.basis == PREDICTION and like is not None and not near else answer


def _is_taken(request: Request, solver: str) -> bool:
    """Whether the table has this solver, and it takes the problem."""
    found = candidates(request.signature, request.target, (solver,))
    return any(isinstance(candidate.verdict, Accepted) for candidate in found)


def _candidate(request: Request, name: str) -> Candidate:
    return candidates(request.signature, request.target, (name,), request.external)[0]


def _nothing_held(request: Request) -> str:
    """The error of ``strict`` mode without an answer, with the command to type."""
    names = ", ".join(database.name for database in request.layers.databases)
    command = preload_command(request.signature, request.target)
    return (
        f"strict mode: no database holds this problem for {request.target.name} (looked in {names}); where there is a "
        f"compiler, type `{command}`, or name a database that holds it in TILESMITH_DB_PATH; {advice(request)}"
    )


def _tell_of_nearest(choice: Choice, target: Target) -> None:
    """Log a choice from the nearest target: one warning for each pair of targets, one info for each problem."""
    assert choice.record is not None
    pair = (choice.record.target, target.name)
    _log.log(
        logging.INFO if pair in _told else logging.WARNING,
        "no database holds this problem for %s: the config of %s in %s is used; `tilesmith tune` measures here",
        target.name, choice.record.target, choice.layer,
    )  # fmt: skip
    _told.add(pair)


def _measure(request: Request, strategy: str, first: Sequence[tuple[str, str]] = ()) -> None:
    from tilesmith.tune.process import workers_of_process
    from tilesmith.tune.session import tune

    # One that waits for the next call would hold a GPU's memory, which belongs to the program.
    workers = workers_of_process() if request.target.family == "cpu" else None
    # Two searches at a time would measure each other. One that waited may find its answer recorded, and takes it over.
    with _measuring:
        tune(
            request.signature, request.target, database=request.layers.writable, cache=request.cache,
            strategy=strategy, device=request.device, external=request.external, first=first, workers=workers,
        )  # fmt: skip


def _at_hand(request: Request, choice: Choice) -> Resolved | None:
    """The best answer of the databases whose plan and artifacts are in the cache."""
    names = {choice.solver, *(line.solver for line in choice.trace)}
    free = {
        option.candidate.name: option.candidate
        for option in bare_options_of(request.signature, request.target, names)
        if option.accepted and (not request.only or matches(option.candidate, request.only))
    }
    revisions = {name: candidate.solver.revision for name, candidate in free.items()}
    for answer in answers_of(request):
        record = answer.record
        if not usable(record, revisions):
            continue
        plan = held_plan(request, free[record.solver], record.config)
        if plan is not None:
            found = replace(
                choice, basis=DATABASE, solver=record.solver, config=record.config, layer=answer.layer,
                time_us=record.time_us, role=answer.role, record=record,
                trace=tuple(replace(line, chosen=line.solver == record.solver) for line in choice.trace),
            )  # fmt: skip
            return Resolved(found, BuiltPlan(plan.serial, plan.artifacts, remembered=True))
    return None


def _verify(request: Request, shipped: Resolved) -> Resolved:
    """Measure a shipped answer once: keep it if its time is confirmed here, else search again. In both cases the user
    layer has the answer afterwards.
    """
    choice, writable = shipped.choice, request.layers.writable
    try:
        with _measuring:
            timing = _timed(request, shipped)
    except (LaunchError, MemoryError, OSError) as error:
        _log.warning("the shipped answer %s cannot be timed here (%s); it is used", choice.solver, error)
        return shipped
    kept = _as_measured(request.target, choice, timing)
    if choice.time_us is not None and timing.median_us <= TRUSTED_RATIO * choice.time_us:
        writable.put_result(kept)
        return shipped
    _log.warning(
        "the shipped answer %s takes %.1f us here, its record says %.1f us: searching anew",
        choice.solver, timing.median_us, choice.time_us or 0.0,
    )  # fmt: skip
    try:
        ours = replace(request, external=False)
        _measure(ours, "model")
        again = decide(replace(ours, mode="hybrid"))
        built = build(request, _candidate(request, again.solver), again.config)
    except (LaunchError, CompileError, NoCompilerError, NoSolutionError, PlanError, OSError) as error:
        _log.warning("the search failed (%s); the shipped answer is used", error)
    else:
        if again.time_us is None or again.time_us < timing.median_us:
            return Resolved(replace(again, basis=MEASUREMENT), built)
        _log.warning("the search found nothing faster; the shipped answer is used")
    writable.put_result(kept)
    return shipped


def _timed(request: Request, shipped: Resolved) -> Timing:
    """The time of a shipped answer here. If the first measurement is too slow, take a second: it may be disturbed."""
    from tilesmith.measure.device_bench import time_plan  # with all that checks and times on devices

    executable = Executable(shipped.built.serial, shipped.built.artifacts)

    def time_here() -> Timing:
        return time_plan(executable, request.signature, request.target, request.cache, request.device)

    timing = time_here()
    if shipped.choice.time_us is None or timing.median_us <= TRUSTED_RATIO * shipped.choice.time_us:
        return timing
    return min(timing, time_here(), key=lambda each: each.median_us)


def _as_measured(target: Target, choice: Choice, timing: Timing) -> Record:
    """The record of a shipped answer with the time measured here."""
    assert choice.record is not None
    host = host_facts()
    return replace(
        choice.record, target=target.name, time_us=timing.median_us, spread_us=timing.spread_us,
        samples=timing.samples, method=timing.method, origin="verify", host=host.name, date=host.date,
    )  # fmt: skip
