"""The best kernel of a problem among those that a selection lets in: from the records, else from the cost model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from tilesmith.db.records import Record
from tilesmith.dispatch.answers import answers_of
from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import NOTHING, Option, choose
from tilesmith.dispatch.facts import near_answers_of, options_of
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.spec.choice import spec_choice
from tilesmith.errors import NoSolutionError
from tilesmith.package.selection.rules import Selection
from tilesmith.package.selection.shape import shape_of
from tilesmith.package.selection.terms import Shapes
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Config, Rejected, SearchSpace
from tilesmith.solvers.table import Candidate
from tilesmith.targets.target import CudaTarget, Target

# The axes that a kernel's shape, or what fits beside it, depends on; the others begin with their first values.
_SHAPING = frozenset(
    ("block_m", "block_n", "block_k", "stages", "warps_m", "warps_n", "warpgroups", "products_m", "pingpong",
     "swap_mn", "blocks_per_sm", "warps", "stage_rows")
)  # fmt: skip
_MOST_STEPS = 6  # changes of one axis each that make a config faster


def decide_selected(selection: Selection, request: Request, without: frozenset[tuple[str, str]] = NOTHING) -> Choice:
    """The choice for a problem that a selection lets in; nothing is measured.

    Records and the tuning spec count where their kernel is let in. A solver whose default config is out is asked for
    its best config that is in.

    Raises:
        NoSolutionError: No kernel that is let in computes the problem; the message has the reason of each that could.
    """
    signature, target = request.signature, request.target
    options = tuple(_selected(option, selection, target) for option in options_of(signature, target))
    accepted = {option.candidate.name: option.candidate for option in options if option.accepted}
    if not accepted:
        raise NoSolutionError(_nothing_selected(options))

    def is_in(record: Record) -> bool:
        candidate = accepted.get(record.solver)
        return candidate is not None and not selection.refuses_config(candidate, record.config, target)

    spec = None if request.only else spec_choice(signature, target, options)
    if spec is not None and not selection.refuses_config(accepted[spec.solver], spec.config, target):
        return spec
    answers = [answer for answer in answers_of(request) if not answer.record.ok or is_in(answer.record)]
    near = [[each for each in group if is_in(each.record)] for group in near_answers_of(request, options)]
    found = choose(options, answers, mode="fast", only=request.only, near=near, without=without)
    assert isinstance(found, Choice)  # fast mode is never left without one
    return found


def _selected(option: Option, selection: Selection, target: Target) -> Option:
    """The option with its best config that is let in; refused with the reason where there is none."""
    candidate = option.candidate
    if not option.accepted:
        return option
    out = selection.refuses_solver(candidate, target)
    if not out and not candidate.plain and selection.limits_shapes(target):
        default = read_config(candidate.name, option.config)
        out = selection.refuses_kernel(candidate, default, target)
        if out:
            assert isinstance(target, CudaTarget)
            found = best_config(candidate, selection.shapes, target)
            if found is not None:
                seconds = candidate.solver.predict(candidate.geometry, found, target)
                return Option(candidate, str(found), seconds)
            out = f"it has no config that is selected; of its default {out}"
    return Option(replace(candidate, verdict=Rejected(out))) if out else option


def _nothing_selected(options: tuple[Option, ...]) -> str:
    """The reasons of the candidates that only the selection refuses."""
    reasons = [
        f"{option.candidate.name}: {option.candidate.verdict}"
        for option in options
        if isinstance(option.candidate.verdict, Rejected) and "selected" in option.candidate.verdict.reason
    ]
    return f"no kernel that is selected computes it ({'; '.join(reasons)})"


@lru_cache(maxsize=4096)
def best_config(candidate: Candidate, shapes: Shapes, target: CudaTarget) -> Config | None:
    """The config with the best estimate among those of an accepted candidate whose shape is let in; None without one.

    Those that the solver ranks come first. Where none of them is in, its search space is walked: all of the axes that
    make a shape, and then single changes of the others.
    """
    solver, geometry = candidate.solver, candidate.geometry
    space: SearchSpace = solver.search_space(geometry, target)

    def is_in(config: Config) -> bool:
        return not shapes.refuses(shape_of(solver, geometry, config, target), target)

    def seconds(config: Config) -> float:
        return float(solver.predict(geometry, config, target))

    pool = [config for config in solver.ranked(geometry, target) if is_in(config)]
    if not pool:
        pool = [config for config in _shaped(space, shapes) if is_in(config) and space.allowed(config)]
    best = min(pool, key=seconds, default=None)
    for _ in range(_MOST_STEPS if best else 0):
        assert best is not None
        near = [config for config in _changed(space, best) if is_in(config) and space.allowed(config)]
        faster = min(near, key=seconds, default=best)
        if seconds(faster) >= seconds(best):
            break
        best = faster
    return best


def _shaped(space: SearchSpace, shapes: Shapes) -> Iterator[Config]:
    """Configs with every value of the axes that make a shape, as far as a tile of the selection has it."""
    values = [values if name in _SHAPING else values[:1] for name, values in space.axes.items()]
    for place, name in enumerate(("block_m", "block_n", "block_k")):
        wanted = {tile.sizes[place] for tile in shapes.tiles}
        if name in space.axes and wanted and 0 not in wanted:
            at = list(space.axes).index(name)
            values[at] = tuple(value for value in values[at] if value in wanted)
    for point in itertools.product(*values):
        yield Config(tuple(zip(space.axes, point, strict=True)))


def _changed(space: SearchSpace, config: Config) -> Iterator[Config]:
    for name, values in space.axes.items():
        for value in values:
            if value != config[name]:
                yield config.replace(**{name: value})
