"""Gathers the facts for ``choose``: candidates with defaults and predictions, and the records of near targets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tilesmith.db.layers import Answer
from tilesmith.dispatch.choice import Considered
from tilesmith.dispatch.choose import Option
from tilesmith.dispatch.request import Request
from tilesmith.problems.rewrite import FORMS, Signature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import Candidate, candidates, solvers_for
from tilesmith.targets.target import Target


def options_of(signature: Signature, target: Target, external: bool = False) -> tuple[Option, ...]:
    """Every candidate of the table; the accepted ones with their default config and predicted time.

    A kernel of another library (``external``) has no prediction: it is used only if it was measured.
    """
    options = []
    for candidate in candidates(signature, target, external=external):
        if not isinstance(candidate.verdict, Accepted) or candidate.external is not None:
            options.append(Option(candidate))
            continue
        config = candidate.solver.default_config(candidate.geometry, target)
        seconds = candidate.solver.predict(candidate.geometry, config, target)
        options.append(Option(candidate, str(config), seconds))
    return tuple(options)


def bare_options_of(
    signature: Signature, target: Target, names: Collection[str], external: bool = False
) -> tuple[Option, ...]:
    """The candidates with these names, without predictions: enough if a database has the answer."""
    return tuple(map(Option, candidates(signature, target, names, external)))


def revisions_of(target: Target, names: Collection[str]) -> dict[str, int]:
    """The revisions of the solvers of these names (``solver`` or ``solver@form``), in the table's order."""
    bare = {name.partition("@")[0] for name in names}
    found = {}
    for solver in solvers_for(target):
        if solver.name in bare:
            for form in FORMS:
                name = f"{solver.name}@{form}" if form else solver.name
                if name in names:
                    found[name] = solver.revision
    return found


def with_predictions(
    trace: Sequence[Considered], signature: Signature, target: Target, external: bool = False
) -> tuple[Considered, ...]:
    """The trace of a choice, with the candidates, default configs and predictions that the choice did not need."""
    known = {line.solver: line for line in trace}

    def whole(option: Option) -> Considered:
        name = option.candidate.name
        if not option.accepted:
            return known.get(name) or Considered(name, str(option.candidate.verdict))
        predicted_us = None if option.predicted_s is None else option.predicted_s * 1e6
        line = known.get(name)
        if line is None:
            return Considered(name, "", option.config, predicted_us)
        return line if line.predicted_us is not None else replace(line, predicted_us=predicted_us)

    options = options_of(signature, target, external)
    listed = {option.candidate.name for option in options}
    return (*map(whole, options), *(line for line in trace if line.solver not in listed))


def near_answers_of(request: Request, options: Sequence[Option]) -> tuple[tuple[Answer, ...], ...]:
    """The layers' records for other targets, nearest first; only those whose config also exists on this target."""
    known = {option.candidate.name: option.candidate for option in options if option.accepted}
    groups = []
    for group in request.layers.near(request.problem, request.target):
        fit = tuple(a for a in group if _exists(known.get(a.record.solver), a.record.config, request.target))
        if fit:
            groups.append(fit)
    return tuple(groups)


def _exists(candidate: Candidate | None, config: str, target: Target) -> bool:
    """True if the solver's search space on this target has the config."""
    if candidate is None:
        return False
    try:
        return candidate.solver.search_space(candidate.geometry, target).contains(read_config(candidate.name, config))
    except (ValueError, KeyError):
        return False
