"""Untuned choices from tuned neighbours: problems that differ in batch or image size by up to a factor of 2.

The nearest neighbour with a usable record decides. Each config that was measured there, and each of its solvers' own
default here, is expected to take its estimate for this problem, times what the estimate was off for the neighbour (of
a default: for the most similar config that was measured). So the estimate needs to be right about the ratio of two like
problems alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.db.layers import Answer
from tilesmith.dispatch.answers import Measured
from tilesmith.dispatch.choice import NEIGHBOUR, Choice, Considered
from tilesmith.dispatch.choose import NOTHING, matches, usable
from tilesmith.dispatch.facts import bare_options_of
from tilesmith.dispatch.request import Request
from tilesmith.errors import ProblemError
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Config
from tilesmith.solvers.table import Candidate
from tilesmith.targets.target import Target

SLOWEST = 1.5  # times the fastest: what was slower there is not asked here
_log = logging.getLogger("tilesmith.dispatch")


@dataclass(frozen=True)
class Suited:
    """A record of a neighbouring problem, the config that it proposes for this one, and what that is expected to take.

    ``seconds`` are the estimate for this problem times what the estimate of the neighbour was off.
    """

    answer: Answer
    config: str
    seconds: float

    @property
    def solver(self) -> str:
        return self.answer.record.solver


def by_neighbour(
    request: Request, near: Sequence[Measured], answers: Sequence[Answer],
    without: frozenset[tuple[str, str]] = NOTHING,
) -> Choice | None:  # fmt: skip
    """The choice that the nearest tuned neighbour makes; None if there is none, or none of its configs exists here.

    ``near`` are the neighbours (``answers.neighbours_of``). ``answers`` are what databases hold of this very problem: a
    solver that failed is not chosen. ``without``: pairs of solver and config that are not available here.
    """
    failed = {(answer.record.solver, answer.record.revision) for answer in answers if not answer.record.ok}
    for key, held in near:
        suited = [
            one for one in suited_of(request, key, held) if (one.solver, one.answer.record.revision) not in failed
        ]
        found = _best([one for one in suited if (one.solver, one.config) not in without])
        if found is not None:
            _log.info("no database holds this problem: it gets the config of its neighbour %s in %s", key, found.layer)
            return found
    return None


def _best(suited: Sequence[Suited]) -> Choice | None:
    """The choice among what a neighbour's records propose: the least expected time, the first one of equals."""
    if not suited:
        return None
    best = min(suited, key=lambda one: one.seconds)
    shown: dict[str, Considered] = {}
    for one in sorted(suited, key=lambda one: (one is not best, one.seconds)):  # the best of each solver
        line = Considered(one.solver, "", one.config, one.seconds * 1e6, layer=one.answer.layer, chosen=one is best)
        shown.setdefault(one.solver, line)
    answer = best.answer
    return Choice(
        best.solver, best.config, NEIGHBOUR, answer.layer, None, tuple(shown.values()), answer.role, answer.record
    )


def suited_of(request: Request, key: str, held: Sequence[Answer]) -> list[Suited]:
    """The configs that records of the neighbour ``key`` propose for the problem, each with its corrected estimate."""
    names = {answer.record.solver for answer in held if answer.record.ok}
    try:
        here, there = (_accepted(request, signature, names) for signature in (request.signature, parse_key(key)))
    except ProblemError:  # a key that no Tilesmith wrote
        return []
    pairs = {name: _Pair(here[name], there[name], request.target) for name in here if name in there}
    usables = [
        (answer, config)
        for answer in held
        if (pair := pairs.get(answer.record.solver)) and (config := pair.config_of(answer)) is not None
    ]
    least = min((answer.record.time_us or math.inf for answer, _ in usables), default=math.inf)
    found = []
    for name, pair in pairs.items():
        mine = [(answer, config) for answer, config in usables if answer.record.solver == name]
        found += [pair.suited(*each) for each in mine if (each[0].record.time_us or 0.0) <= SLOWEST * least]
        found.append(pair.default(mine))
    return [one for one in found if one is not None]


@dataclass(frozen=True)
class _Pair:
    """A solver on this problem and on its neighbour."""

    mine: Candidate
    theirs: Candidate
    target: Target

    def config_of(self, answer: Answer) -> Config | None:
        """The config of a record of the neighbour that counts."""
        if not usable(answer.record, {answer.record.solver: self.mine.solver.revision}):
            return None
        try:
            return read_config(self.mine.name, answer.record.config)
        except (ValueError, KeyError):
            return None

    def suited(self, answer: Answer, config: Config) -> Suited | None:
        here = self._seconds(self.mine, config)
        off = None if here is None else self._off(answer, config)
        return None if here is None or off is None else Suited(answer, str(config), here * off)

    def default(self, measured: Sequence[tuple[Answer, Config]]) -> Suited | None:
        """This problem's own default, corrected by the most similar config; the fastest of several that are."""
        if not measured:
            return None
        own = self.mine.solver.default_config(self.mine.geometry, self.target)
        answer, config = min(measured, key=lambda each: (_distance(each[1], own), each[0].record.time_us))
        here, off = self._seconds(self.mine, own), self._off(answer, config)
        return None if here is None or off is None else Suited(answer, str(own), here * off)

    def _off(self, answer: Answer, config: Config) -> float | None:
        """Measured over estimated time of the neighbour."""
        there = self._seconds(self.theirs, config)
        return (answer.record.time_us or 0.0) * 1e-6 / there if there else None

    def _seconds(self, candidate: Candidate, config: Config) -> float | None:
        try:
            if not candidate.solver.search_space(candidate.geometry, self.target).contains(config):
                return None
            seconds = candidate.solver.predict(candidate.geometry, config, self.target)
        except (ValueError, KeyError):
            return None
        return seconds if 0 < seconds < math.inf else None


def _distance(one: Config, other: Config) -> float:
    """By how many doublings two configs differ, over all axes."""
    pairs = zip(one.values, other.values, strict=False)
    return sum(abs(math.log2((abs(a) + 1) / (abs(b) + 1))) for (_, a), (_, b) in pairs)


def _accepted(request: Request, signature: Signature, names: set[str]) -> dict[str, Candidate]:
    options = bare_options_of(signature, request.target, names)
    return {
        option.candidate.name: option.candidate
        for option in options
        if option.accepted and (not request.only or matches(option.candidate, request.only))
    }
