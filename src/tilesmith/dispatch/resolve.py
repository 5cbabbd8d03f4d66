"""From a problem to a choice and its plan, by the mode: gather facts, decide, and measure where the mode says so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from tilesmith import env
from tilesmith.db.layers import Layers
from tilesmith.db.records import Record
from tilesmith.dispatch.choice import DATABASE, MEASUREMENT, NEAREST, PREDICTION, SPEC, Built, Choice, Resolved
from tilesmith.dispatch.choose import NOTHING, choose, held, matches, outdated, recorded, usable
from tilesmith.dispatch.facts import answers_of, bare_options_of, near_answers_of, options_of, revisions_of
from tilesmith.dispatch.planning import build, held_plan, preload_command
from tilesmith.dispatch.spec import spec_choice
from tilesmith.errors import (
    CompileError,
    LaunchError,
    NoCompilerError,
    NoSolutionError,
    PlanError,
)
from tilesmith.measure.host import host_facts
from tilesmith.measure.timing import Timing
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.spellings import other_spellings
from tilesmith.solvers.external.names import is_external, takes_part
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.targets.target import Target
from tilesmith.toolchain import memo
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.plans import find_todays_plan

TRUSTED_RATIO = 1.1
_measuring = threading.RLock()
_told: set[tuple[str, str]] = set()  # pairs of targets, of which one's records stand for the other's
_log = logging.getLogger("tilesmith.dispatch")


def resolve(
    signature: Signature, target: Target, mode: str, layers: Layers, cache: ArtifactCache, only: str = "",
    device: int = 0, external: bool | None = None,
) -> Resolved:  # fmt: skip
    """The choice for a problem, compiled; ``only`` names the one solver that may be used.

    ``device`` is the ordinal of the CUDA device that measures. ``external`` says whether PyTorch's own kernels take
    part (None: where PyTorch is loaded); where one is chosen, what is compiled is the best generated one.
    Raises ``NoSolutionError``, ``NoCompilerError``.
    """
    external = takes_part() if external is None else external
    if mode != "normal" and not only:
        signature = as_held(signature, target, layers)
    hit = _hit(signature, target, mode, layers, cache, only)
    found = hit or _decided_and_built(signature, target, mode, layers, cache, only, device, external)
    if mode == "trust_verify" and found.choice.basis == DATABASE and found.choice.layer != layers.databases[-1].name:
        return _verify(signature, target, found, layers, cache, only, device)
    return found


def as_held(signature: Signature, target: Target, layers: Layers) -> Signature:
    """The problem under the key that a database holds it under: where axes of size 1 leave it several, any of them."""
    others = other_spellings(signature)
    if not others or answers_of(signature, target, layers):
        return signature
    return next((each for each in others if answers_of(each, target, layers)), signature)


def _hit(
    signature: Signature, target: Target, mode: str, layers: Layers, cache: ArtifactCache, only: str
) -> Resolved | None:
    """What the databases answer where the plan of it is at hand as well: what most calls find, in the least time.

    No solver is asked: that today's generator made the plan, for this target, says that its solver takes the problem.
    """
    if mode == "normal" or only or env.TUNING_SPEC_PATH.get() is not None:
        return None
    answers = answers_of(signature, target, layers)
    names = {answer.record.solver for answer in answers}
    if any(map(is_external, names)):
        return None
    choice = recorded(answers, revisions_of(target, names), strict=mode == "strict")
    if choice is None or choice.record is None:
        return None
    plan = find_todays_plan(
        cache, signature.canonical.key(), choice.solver, choice.record.revision, choice.config, target
    )
    if plan is None:
        return None
    if mode != "strict":
        memo.remember(cache)
    return Resolved(choice, Built(plan.serial, plan.artifacts, remembered=True))


def _decided_and_built(
    signature: Signature, target: Target, mode: str, layers: Layers, cache: ArtifactCache, only: str, device: int,
    external: bool,
) -> Resolved:  # fmt: skip
    strict = mode == "strict"
    without = NOTHING
    while True:
        choice = decide(signature, target, mode, layers, cache, only, device, external, without)
        if is_external(choice.solver):
            again = mode if mode in ("strict", "fast") else "hybrid"  # what was measured just now is not measured again
            ours = resolve(signature, target, again, layers, cache, "", device, external=False)
            return Resolved(choice, ours.built)
        candidate = _candidate(signature, target, choice.solver)
        try:
            built = build(signature, candidate, choice.config, target, cache, compiles=not strict)
            break
        except (NoCompilerError, NoSolutionError) as error:
            # The chosen kernel is not here and cannot be made. Another answer of the databases may be at hand.
            if choice.basis in (DATABASE, PREDICTION) and (
                other := _at_hand(signature, target, choice, layers, cache, only)
            ):
                _log.warning("%s; %s %s, which is here, is used", error, other.choice.solver, other.choice.config)
                return other
            if choice.basis != NEAREST:
                raise
        except (CompileError, PlanError) as error:
            if strict or choice.basis == SPEC:
                raise
            _log.warning("%s %s cannot be built (%s); the next best is used", choice.solver, choice.config, error)
        without |= {(choice.solver, choice.config)}
    if choice.basis == NEAREST:
        _tell_of_nearest(choice, target)
    return Resolved(choice, built)


def decide(
    signature: Signature, target: Target, mode: str, layers: Layers, cache: ArtifactCache, only: str = "",
    device: int = 0, external: bool | None = None, without: frozenset[tuple[str, str]] = NOTHING,
) -> Choice:  # fmt: skip
    """The choice alone; measures what the mode wants measured. ``without`` are solvers with configs not to be had here.

    Raises ``NoSolutionError`` when nothing fits, or when no database answers and the mode is ``strict``.
    """
    external = takes_part() if external is None else external
    if not only and env.TUNING_SPEC_PATH.get() is not None:
        spec = spec_choice(signature, target, options_of(signature, target, external))
        if spec is not None:
            return spec
    answers = answers_of(signature, target, layers)
    if mode != "normal":
        names = {answer.record.solver for answer in answers}
        found = answers and held(
            bare_options_of(signature, target, names, external), answers, only=only, without=without,
            strict=mode == "strict",
        )  # fmt: skip
        if found:
            return found
    options = options_of(signature, target, external)
    near = near_answers_of(signature, target, layers, options)
    answer = choose(options, answers, mode=mode, only=only, near=near, without=without)
    if isinstance(answer, Choice):
        return answer
    if mode == "strict":
        raise NoSolutionError(_nothing_held(signature, target, layers))
    free = [o for o in options if o.accepted and (not only or matches(o.candidate, only))]
    measured = True
    if len(free) > 1:
        try:
            known = {option.candidate.name: option.candidate.solver.revision for option in free}
            old = [answer for answer in answers if outdated(answer.record, known)]
            first = [(each.record.solver, each.record.config) for each in (*old[:3], *(near[0][:3] if near else ()))]
            _measure(signature, target, "defaults", layers, cache, device, external, first)
        except (LaunchError, CompileError, NoCompilerError, OSError) as error:
            _log.warning("nothing could be measured (%s); an answer that is not measured is used", error)
            measured = False
    answers = answers_of(signature, target, layers)
    answer = choose(
        options, answers, mode=mode if measured else "fast", only=only, measured=measured, near=near, without=without
    )
    assert isinstance(answer, Choice)
    return answer


def _candidate(signature: Signature, target: Target, name: str) -> Candidate:
    return candidates(signature, target, (name,))[0]


def _nothing_held(signature: Signature, target: Target, layers: Layers) -> str:
    """What to type, or to install, where ``strict`` mode has no answer."""
    names = ", ".join(database.name for database in layers.databases)
    return (
        f"strict mode: no database holds this problem for {target.name} (looked in {names}); where there is a "
        f"compiler, type `{preload_command(signature, target)}`, or name a database that holds it in TILESMITH_DB_PATH"
    )


def _tell_of_nearest(choice: Choice, target: Target) -> None:
    """Once a pair of targets as a warning, each problem as an info."""
    assert choice.record is not None
    pair = (choice.record.target, target.name)
    _log.log(
        logging.INFO if pair in _told else logging.WARNING,
        "no database holds this problem for %s: the config of %s in %s is used; `tilesmith tune` measures here",
        target.name, choice.record.target, choice.layer,
    )  # fmt: skip
    _told.add(pair)


def _measure(
    signature: Signature, target: Target, strategy: str, layers: Layers, cache: ArtifactCache, device: int,
    external: bool = False, first: Sequence[tuple[str, str]] = (),
) -> None:  # fmt: skip
    from tilesmith.tune.session import tune

    # Two searches at a time would measure each other. One that waited may find its answer recorded, and takes it over.
    with _measuring:
        tune(
            signature, target, database=layers.writable, cache=cache, strategy=strategy, device=device,
            external=external, first=first,
        )  # fmt: skip


def _at_hand(
    signature: Signature, target: Target, choice: Choice, layers: Layers, cache: ArtifactCache, only: str
) -> Resolved | None:
    """The best answer of the databases whose plan and artifacts are in the cache."""
    free = {
        option.candidate.name: option.candidate
        for option in bare_options_of(signature, target, {choice.solver, *(line.solver for line in choice.trace)})
        if option.accepted and (not only or matches(option.candidate, only))
    }
    revisions = {name: candidate.solver.revision for name, candidate in free.items()}
    for answer in answers_of(signature, target, layers):
        record = answer.record
        if not usable(record, revisions):
            continue
        plan = held_plan(signature, free[record.solver], record.config, target, cache)
        if plan is not None:
            found = replace(
                choice, basis=DATABASE, solver=record.solver, config=record.config, layer=answer.layer,
                time_us=record.time_us, role=answer.role, record=record,
                trace=tuple(replace(line, chosen=line.solver == record.solver) for line in choice.trace),
            )  # fmt: skip
            return Resolved(found, Built(plan.serial, plan.artifacts, remembered=True))
    return None


def _verify(
    signature: Signature, target: Target, shipped: Resolved, layers: Layers, cache: ArtifactCache, only: str,
    device: int,
) -> Resolved:  # fmt: skip
    """Measure a shipped answer once: keep it if it holds here, else search anew. Either way the layer that is written
    answers from now on.
    """
    choice = shipped.choice
    try:
        with _measuring:
            timing = _timed(signature, target, shipped, device)
    except (LaunchError, MemoryError, OSError) as error:
        _log.warning("the shipped answer %s cannot be timed here (%s); it is used", choice.solver, error)
        return shipped
    kept = _as_measured(target, choice, timing)
    if choice.time_us is not None and timing.median_us <= TRUSTED_RATIO * choice.time_us:
        layers.writable.put_result(kept)
        return shipped
    _log.warning(
        "the shipped answer %s takes %.1f us here, its record says %.1f us: searching anew",
        choice.solver, timing.median_us, choice.time_us or 0.0,
    )  # fmt: skip
    try:
        _measure(signature, target, "model", layers, cache, device)
        again = decide(signature, target, "hybrid", layers, cache, only, device)
        built = build(signature, _candidate(signature, target, again.solver), again.config, target, cache)
    except (LaunchError, CompileError, NoCompilerError, NoSolutionError, PlanError, OSError) as error:
        _log.warning("the search failed (%s); the shipped answer is used", error)
    else:
        if again.time_us is None or again.time_us < timing.median_us:
            return Resolved(replace(again, basis=MEASUREMENT), built)
        _log.warning("the search found nothing faster; the shipped answer is used")
    layers.writable.put_result(kept)
    return shipped


def _timed(signature: Signature, target: Target, shipped: Resolved, device: int) -> Timing:
    """The time of a shipped answer here; of two when the first is too long, for a moment may be disturbed."""
    from tilesmith.dispatch.launchable import Launchable
    from tilesmith.dispatch.measuring import time_launchable

    launch = Launchable(signature, target, shipped, device)
    timing = time_launchable(launch)
    if shipped.choice.time_us is None or timing.median_us <= TRUSTED_RATIO * shipped.choice.time_us:
        return timing
    return min(timing, time_launchable(launch), key=lambda each: each.median_us)


def _as_measured(target: Target, choice: Choice, timing: Timing) -> Record:
    """The record of a shipped answer as it was found here."""
    assert choice.record is not None
    host = host_facts()
    return replace(
        choice.record, target=target.name, time_us=timing.median_us, spread_us=timing.spread_us,
        samples=timing.samples, method=timing.method, origin="verify", host=host.name, date=host.date,
    )  # fmt: skip
