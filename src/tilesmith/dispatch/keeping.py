"""Keeping a hit for the next process, by the one that has asked the databases."""

from __future__ import annotations

from pathlib import Path

from tilesmith.db.admission import why_refused
from tilesmith.db.layers import Layers, open_layers
from tilesmith.db.remote import is_url
from tilesmith.db.state import state_of
from tilesmith.db.store import Database
from tilesmith.dispatch.choice import DATABASE, Resolved
from tilesmith.dispatch.choose import recorded
from tilesmith.dispatch.facts import answers_of, revisions_of
from tilesmith.dispatch.hits import may_stand, places_of, values_of
from tilesmith.dispatch.places import Named, open_databases
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.external.names import is_external
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.hits import keep_hit
from tilesmith.toolchain.plans import find_todays_plan


def keep(
    signature: Signature, target: Target, mode: str, named: Layers | Database | Named, cache: ArtifactCache, only: str,
    resolved: Resolved,
) -> None:  # fmt: skip
    """Keep what was resolved, if a fresh look at the databases, in one state all the while, finds it once more.

    NOTE: the layers of this process may be older than their files: a copy in memory, or a file that another has
    replaced. That look is for the first process after each change.
    """
    if (
        not isinstance(named, Named) or mode == "strict" or not may_stand(mode, only)
        or resolved.choice.basis != DATABASE or not resolved.built.remembered or any(map(is_url, named.places))
    ):  # fmt: skip
        return
    # What was read from a copy of a file that another process holds would be waited for once more.
    if not all(database.is_current() for database in open_databases(named).databases):
        return
    states = [state_of(place) for place in named.places]
    if None in states or any(why_refused(Path(place)) is not None for place in named.places):
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
        record = {"states": states, "choice": values_of(choice)}
        keep_hit(cache, problem, places_of(named), target, record, plan.serial)
