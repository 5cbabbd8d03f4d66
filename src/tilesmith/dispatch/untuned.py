"""Untuned choices of earlier processes: estimating every candidate of a problem takes up to a tenth of a second.

``choices/<key>.json`` of the cache is bound to its name, which says the problem, every fact of the target, what
generated and estimated the candidates (``maker_of``), and the rules of this folder by which one of them is chosen. It
holds the choice, its solver's revision and the estimates of the candidates that were accepted. The name of a
neighbour's choice says what was measured of the neighbours, too. A choice that depends on anything else in a database,
on a tuning spec or on a named solver is not kept. No solver is imported to find one again, nor the plan that was made
of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from tilesmith import env
from tilesmith.db.layers import Answer
from tilesmith.dispatch.answers import Measured, answers_of, as_held, neighbours_of
from tilesmith.dispatch.choice import NEIGHBOUR, PREDICTION, BuiltPlan, Choice, Considered, Resolved
from tilesmith.dispatch.request import Request
from tilesmith.errors import PlanError
from tilesmith.toolchain import memo
from tilesmith.toolchain.files import read
from tilesmith.toolchain.plans import digest_of, find_todays_plan, maker_of
from tilesmith.toolchain.sealed import bind_with_record, unbind_with_record

_FORMAT = "tilesmith choice 2"
_RULES = ("answers.py", "choose.py", "facts.py", "neighbours.py")
_BYTES = 1 << 20


def recall(request: Request) -> Choice | None:
    """The choice that the estimates make, if an earlier process has kept it.

    Its trace has the accepted candidates alone (``facts.with_predictions`` adds the others).
    """
    return (_recalled(request) or (None,))[0]


def recall_built(request: Request) -> Resolved | None:
    """The result that ``resolve`` would find, if earlier processes have kept the estimates' choice and its plan.

    No solver is asked: the current generator made the plan for this target, so its solver takes the problem.
    """
    if request.packages.state or request.mode != "fast":
        return None
    request = as_held(replace(request, databases=request.layers))
    choice, revision = _recalled(request) or (None, None)
    if choice is None or revision is None:
        return None
    plan = find_todays_plan(request.cache, request.problem, choice.solver, revision, choice.config, request.target)
    if plan is None:
        return None
    memo.remember(request.cache)
    return Resolved(choice, BuiltPlan(plan.serial, plan.artifacts, remembered=True))


def _recalled(request: Request) -> tuple[Choice, int | None] | None:
    """The choice that was kept and its solver's revision; None for a revision that the solvers did not say."""
    if not _decides(request):
        return None
    memo.recall(request.cache)
    known = neighbours_of(request)
    name = _name(request, known)
    for folder in request.cache.folders():
        try:
            record, _ = unbind_with_record(name, read(f"{folder}/{name}", _BYTES, own=True))
        except (OSError, PlanError):
            continue  # it is estimated again
        found = _choice_of(record, [answer for _, answers in known for answer in answers])
        if found is not None:
            revision = record.get("revision")
            return found, revision if type(revision) is int else None
    return None


def keep(request: Request, choice: Choice) -> None:
    """Keep what the estimates chose for the next process, if the cache can be written."""
    if choice.basis not in (PREDICTION, NEIGHBOUR) or not _decides(request):
        return
    from tilesmith.dispatch.facts import revisions_of  # it imports the solvers, which a process that recalls spares

    revision = revisions_of(request.target, {choice.solver}).get(choice.solver)
    accepted = [[line.solver, line.config, line.predicted_us] for line in choice.trace if not line.reason]
    of = None if choice.record is None else [choice.record.problem, choice.record.config]
    record = {"solver": choice.solver, "config": choice.config, "accepted": accepted, "of": of, "revision": revision}
    name = _name(request, neighbours_of(request))
    request.cache.offer(name, bind_with_record(name, record, b""), durable=False)


def _decides(request: Request) -> bool:
    """Whether nothing but the estimates and the neighbours decide."""
    if request.mode != "fast" or request.only or env.TUNING_SPEC_PATH.get() is not None or answers_of(request):
        return False
    return not any(request.layers.near(request.problem, request.target))


def _name(request: Request, known: Sequence[Measured]) -> str:
    made_by = (*maker_of(request.target), _rules(), str(request.external))
    if known:
        measured = [(key, [(a.layer, a.role, astuple(a.record)) for a in answers]) for key, answers in known]
        made_by = (*made_by, repr(measured))
    return f"choices/{digest_of(_FORMAT, request.problem, *made_by)[:40]}.json"


@lru_cache(maxsize=1)
def _rules() -> str:
    texts = (Path(__file__).with_name(name).read_bytes() for name in _RULES)
    return "".join(hashlib.sha256(text).hexdigest() for text in texts)


def _choice_of(record: dict[str, Any], measured: Sequence[Answer]) -> Choice | None:
    """The choice of these values, ``measured`` of neighbours; None if this version of Tilesmith did not write them."""
    solver, config, accepted = record.get("solver"), record.get("config"), record.get("accepted")
    if not isinstance(accepted, list):
        return None
    trace = []
    for line in accepted:
        if not isinstance(line, list) or len(line) != 3:
            return None
        name, default, predicted_us = line
        if type(name) is not str or type(default) is not str or not _is_time(predicted_us):
            return None
        trace.append(Considered(name, "", default, predicted_us, chosen=(name, default) == (solver, config)))
    chosen = [line for line in trace if line.chosen]
    if len(chosen) != 1:
        return None
    of = record.get("of")
    if of is None:
        return Choice(chosen[0].solver, chosen[0].config, PREDICTION, "", None, tuple(trace))
    for answer in measured:
        held = answer.record
        if held.solver == solver and [held.problem, held.config] == of:
            return Choice(solver, str(config), NEIGHBOUR, answer.layer, None, tuple(trace), answer.role, held)
    return None


def _is_time(value: Any) -> bool:
    """Infinite for what is used only if it was measured; none for a kernel of another library."""
    return value is None or (type(value) is float and (isfinite(value) or value == float("inf")))
