"""Untuned choices from tuned neighbours: problems that differ in batch or image size by up to a factor of 2.

The nearest neighbour with a usable record decides. Each of its records is a config that was measured there; its time
for this problem is its estimate here, times what the estimate of the neighbour was off. So the estimate needs to be
right about the ratio of two like problems alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from tilesmith.db.layers import Answer
from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import NOTHING, Suited, matches, suits, usable
from tilesmith.dispatch.facts import bare_options_of
from tilesmith.dispatch.request import Request
from tilesmith.errors import ProblemError
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.table import Candidate

MOST = 4  # neighbours that are looked at: the nearest may have no record that is of use here
_FIND = "find"  # the origin of records of defaults: those solvers were not searched
_log = logging.getLogger("tilesmith.dispatch")


def by_neighbour(
    request: Request, answers: Sequence[Answer], without: frozenset[tuple[str, str]] = NOTHING
) -> Choice | None:
    """The choice that the nearest tuned neighbour makes; None if there is none, or none of its configs exists here.

    ``answers`` are what databases hold of this very problem: a solver that failed is not chosen. ``without``: pairs of
    solver and config that are not available here.
    """
    failed = {(answer.record.solver, answer.record.revision) for answer in answers if not answer.record.ok}
    for key in request.layers.neighbours(request.problem, request.target.name)[:MOST]:
        suited = [one for one in suited_of(request, key) if (one.solver, one.answer.record.revision) not in failed]
        found = suits([one for one in suited if (one.solver, one.config) not in without])
        if found is not None:
            _log.info("no database holds this problem: it gets the config of its neighbour %s in %s", key, found.layer)
            return found
    return None


def suited_of(request: Request, key: str) -> list[Suited]:
    """The neighbour's records whose config exists for this problem, each with its corrected estimate.

    Where the neighbour's solvers were not searched, the fastest one's own default for this problem takes the place of
    its default there.
    """
    target = request.target
    held = [answer for answer in request.layers.answers(key, target.name) if answer.record.ok]
    names = {answer.record.solver for answer in held}
    try:
        here, there = (_accepted(request, signature, names) for signature in (request.signature, parse_key(key)))
    except ProblemError:  # a key that no Tilesmith wrote
        return []
    found = []
    for answer in held:
        mine, theirs = here.get(answer.record.solver), there.get(answer.record.solver)
        if mine is not None and theirs is not None:
            one = _suited(request, answer, mine, theirs)
            found += [] if one is None else [one]
    if found:
        best = min(found, key=lambda one: one.seconds)
        if best.answer.record.origin == _FIND:
            mine = here[best.solver]
            default = str(mine.solver.default_config(mine.geometry, target))
            found = [replace(one, config=default) if one is best else one for one in found]
    return found


def _accepted(request: Request, signature: Signature, names: set[str]) -> dict[str, Candidate]:
    options = bare_options_of(signature, request.target, names)
    return {
        option.candidate.name: option.candidate
        for option in options
        if option.accepted and (not request.only or matches(option.candidate, request.only))
    }


def _suited(request: Request, answer: Answer, mine: Candidate, theirs: Candidate) -> Suited | None:
    record, target = answer.record, request.target
    if not usable(record, {record.solver: mine.solver.revision}) or record.time_us is None:
        return None
    try:
        config = read_config(mine.name, record.config)
        if not mine.solver.search_space(mine.geometry, target).contains(config):
            return None
        here, there = (each.solver.predict(each.geometry, config, target) for each in (mine, theirs))
    except (ValueError, KeyError):
        return None
    if not (0 < there < math.inf and here < math.inf):
        return None
    return Suited(answer, record.config, record.time_us * 1e-6 * here / there)
