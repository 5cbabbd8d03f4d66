"""A hit for the next process: what the databases answered stands as long as none of their files has changed."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

from tilesmith import env
from tilesmith.db.layers import Layers, open_layers
from tilesmith.db.records import Record
from tilesmith.db.remote import is_url
from tilesmith.db.state import state_of
from tilesmith.db.store import Database
from tilesmith.dispatch.choose import DATABASE, Choice, Considered, recorded
from tilesmith.dispatch.facts import Named, answers_of, revisions_of
from tilesmith.dispatch.planning import Built
from tilesmith.dispatch.resolve import Resolved
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.external.candidate import is_external
from tilesmith.targets.target import Target
from tilesmith.toolchain import memo
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.hits import find_hit, keep_hit
from tilesmith.toolchain.plans import find_todays_plan, with_artifacts

_MODES = ("fast", "hybrid", "strict")  # those that take an answer of the databases as it is


def recall(
    signature: Signature, target: Target, mode: str, named: Layers | Database | Named, cache: ArtifactCache, only: str
) -> Resolved | None:
    """What ``resolve`` would find now, if an earlier process has kept it."""
    if not isinstance(named, Named) or not _may_stand(mode, only):
        return None
    found = find_hit(cache, signature.canonical.key(), _places(named), target)
    if found is None:
        return None
    record, serial = found
    if record.get("states") != [state_of(place) for place in named.places]:
        return None
    choice = _choice_of(record.get("choice"))
    held = with_artifacts(serial, cache, stale=False)
    if choice is None or held is None:
        return None
    if mode != "strict":
        memo.remember(cache)
    return Resolved(choice, Built(serial, held.artifacts, remembered=True))


def keep(
    signature: Signature, target: Target, mode: str, named: Layers | Database | Named, cache: ArtifactCache, only: str,
    resolved: Resolved,
) -> None:  # fmt: skip
    """Keep what was resolved, if a fresh look at the databases, in one state all the while, finds it once more.

    NOTE: the layers of this process may be older than their files: a copy in memory, or a file that another has
    replaced. That look is for the first process after each change.
    """
    if (
        not isinstance(named, Named) or mode == "strict" or not _may_stand(mode, only)
        or resolved.choice.basis != DATABASE or not resolved.built.remembered or any(map(is_url, named.places))
    ):  # fmt: skip
        return
    states = [state_of(place) for place in named.places]
    if None in states:
        return
    layers = open_layers(named.places, readonly=True, system=named.system)
    answers = answers_of(signature, target, layers)
    layers.close()
    names = {answer.record.solver for answer in answers}
    if any(map(is_external, names)):
        return
    revisions = revisions_of(target, names)
    choice = recorded(answers, revisions)
    # Strict mode takes what the others may not: where they differ, each asks the databases.
    if choice != resolved.choice or choice != recorded(answers, revisions, strict=True):
        return
    assert choice is not None
    assert choice.record is not None
    problem = signature.canonical.key()
    plan = find_todays_plan(cache, problem, choice.solver, choice.record.revision, choice.config, target)
    # What another generator made is made again as soon as there is a compiler.
    if plan is not None and states == [state_of(place) for place in named.places]:
        record = {"states": states, "choice": _values_of(choice)}
        keep_hit(cache, problem, _places(named), target, record, plan.serial)


def _may_stand(mode: str, only: str) -> bool:
    return mode in _MODES and not only and env.TUNING_SPEC_PATH.get() is None


def _places(named: Named) -> tuple[str, ...]:
    return (str(named.system), *named.places)


def _values_of(choice: Choice) -> list[Any]:
    """What JSON can hold of a choice, each number as it is."""
    assert choice.record is not None
    bare = replace(choice, trace=(), record=None)
    return [*astuple(bare)[:5], choice.role, astuple(choice.record), [astuple(line) for line in choice.trace]]


def _choice_of(values: Any) -> Choice | None:
    """The choice of these values; None if another version wrote them."""
    try:
        solver, config, basis, layer, time_us, role, record, trace = values
        considered = tuple([Considered(*line) for line in trace])
        return Choice(solver, config, basis, layer, time_us, considered, role, Record(*record))
    except (TypeError, ValueError):
        return None
