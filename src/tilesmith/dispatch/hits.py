"""A hit for the next process: what the databases answered stands as long as none of their files has changed."""

from __future__ import annotations

import os
from dataclasses import astuple
from math import isfinite
from typing import Any

from tilesmith import env
from tilesmith.db.layers import Layers
from tilesmith.db.records import Record
from tilesmith.db.state import state_of
from tilesmith.db.store import Database
from tilesmith.dispatch.choice import DATABASE, Built, Choice, Considered, Resolved
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
    """What JSON can hold of a choice: what is not in its record, the record, and the trace."""
    assert choice.record is not None
    return [choice.layer, choice.role, astuple(choice.record), [astuple(line) for line in choice.trace]]


def _choice_of(values: Any) -> Choice | None:
    """The choice of these values; None if no Tilesmith of this version wrote them."""
    try:
        layer, role, fields, lines = values
        record, trace = Record(*fields), tuple([Considered(*line) for line in lines])
        texts: list[Any] = [layer, role]
        sound = record.ok
        for line in trace:
            texts += (line.solver, line.reason, line.config, line.layer)
            for number in (line.predicted_us, line.time_us, line.spread_us):
                sound = sound and (number is None or isfinite(number))
            sound = sound and type(line.chosen) is bool
        sound = sound and set(map(type, texts)) == {str}
    except (TypeError, ValueError, OverflowError):  # a field outside its rule is a ValueError, too
        return None
    if not sound:
        return None
    return Choice(record.solver, record.config, DATABASE, layer, record.time_us, trace, role, record)
