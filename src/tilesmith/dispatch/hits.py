"""A hit for the next process: what the databases answered stands as long as none of their files has changed."""

from __future__ import annotations

import os
from dataclasses import astuple, replace
from typing import Any

from tilesmith import env
from tilesmith.db.layers import Layers
from tilesmith.db.records import Record
from tilesmith.db.state import state_of
from tilesmith.db.store import Database
from tilesmith.dispatch.choice import Built, Choice, Considered, Resolved
from tilesmith.dispatch.places import Named
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target
from tilesmith.toolchain import memo
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.hits import find_hit
from tilesmith.toolchain.plans import with_artifacts

_MODES = ("fast", "hybrid", "strict")  # those that take an answer of the databases as it is


def recall(
    signature: Signature, target: Target, mode: str, named: Layers | Database | Named, cache: ArtifactCache, only: str
) -> Resolved | None:
    """What ``resolve`` would find now, if an earlier process has kept it."""
    if not isinstance(named, Named) or not may_stand(mode, only):
        return None
    found = find_hit(cache, signature.canonical.key(), places_of(named), target)
    if found is None:
        return None
    record, serial = found
    if record.get("states") != [state_of(place) for place in named.places]:
        return None
    choice = _choice_of(record.get("choice"))
    held = with_artifacts(serial, cache, target, stale=False)
    if choice is None or held is None:
        return None
    if mode != "strict":
        memo.remember(cache)
    return Resolved(choice, Built(serial, held.artifacts, remembered=True))


def may_stand(mode: str, only: str) -> bool:
    return mode in _MODES and not only and env.TUNING_SPEC_PATH.get() is None


def places_of(named: Named) -> tuple[str, ...]:
    """What says which answers a hit stands for: the layers, and which folders of other users were trusted for them."""
    return (str(named.system), os.environ.get(env.TRUST_FOLDER.name, ""), *named.places)


def values_of(choice: Choice) -> list[Any]:
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
