"""Explains a selection to people: what it let into a package, what it left out and why, and the size of each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.db.layers import Layers
from tilesmith.dispatch.answers import as_held
from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.errors import NoSolutionError
from tilesmith.package.build import PackedProblem
from tilesmith.package.selection.rules import Selection, limited_by, names_solver
from tilesmith.package.selection.shape import KernelShape, shape_of
from tilesmith.package.selection.size import expected_us, package_costs, plain_us
from tilesmith.package.selection.terms import mode_of, types_of
from tilesmith.plan.records import Launch, Plan
from tilesmith.plan.serial import decode
from tilesmith.problems.driver import command_or_key
from tilesmith.problems.keys import parse_key
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.target import CudaTarget, Target
from tilesmith.toolchain.cache import ArtifactCache


@dataclass(frozen=True)
class ExplainedPlan:
    """One plan, or a problem without one (``reason`` says why; the rest is empty then).

    ``rank`` 0 is the best of its problem. ``tile`` and ``arch_stages`` are empty where the kernel has none. ``us`` is
    the measured or estimated time, ``plain_us`` that of the plain reference; ``bytes`` are those of the plan alone.
    ``instead_of`` is the kernel that would be taken if the selection let every kernel in, and why it is out.
    """

    command: str
    mode: str
    types: str
    key: str
    reason: str = ""
    rank: int = 0
    solver: str = ""
    config: str = ""
    tile: str = ""
    arch_stages: str = ""
    basis: str = ""
    us: float | None = None
    plain_us: float | None = None
    bytes: int = 0
    kernels: tuple[str, ...] = ()
    instead_of: str = ""


@dataclass(frozen=True)
class ExplainedKernel:
    """One binary: its entry points, its bytes as it is and in the package, and how many plans count it."""

    digest: str
    symbols: tuple[str, ...]
    bytes: int
    stored: int
    plans: int


def explain_problem(
    packed: PackedProblem, target: Target, selection: Selection, layers: Layers, cache: ArtifactCache
) -> tuple[ExplainedPlan, ...]:
    """The plans of a problem, the best first; one line with the reason if it has none."""
    signature = packed.signature
    about = (
        command_or_key(signature), mode_of(signature), "/".join(types_of(signature)), signature.canonical.key()
    )  # fmt: skip
    if not packed.plans:
        return (ExplainedPlan(*about, reason=packed.reason),)
    costs = package_costs()
    found = []
    for rank, (choice, packed_plan) in enumerate(zip(packed.choices, packed.plans, strict=True)):
        plan = decode(packed_plan.data)
        shape = _shape(plan, target)
        instead = "" if rank else _instead(packed, plan, choice, target, selection, layers, cache)
        found.append(
            ExplainedPlan(
                *about, "", rank, choice.solver, choice.config, shape.tile if shape else "",
                shape.arch_stages if shape else "", choice.basis,
                expected_us(parse_key(plan.problem), choice, target), plain_us(signature, target),
                costs.plan(packed_plan), plan.artifacts, instead,
            )
        )  # fmt: skip
    return tuple(found)


def explain_kernels(packed: Sequence[PackedProblem]) -> tuple[ExplainedKernel, ...]:
    """The binaries of the problems' plans, the largest in the package first."""
    costs = package_costs()
    artifacts = {each.digest: each for problem in packed for each in problem.artifacts}
    symbols: dict[str, dict[str, None]] = {digest: {} for digest in artifacts}
    plans = dict.fromkeys(artifacts, 0)
    for plan in (decode(each.data) for problem in packed for each in problem.plans):
        for step in (*plan.prepare, *plan.run):
            if isinstance(step, Launch):
                symbols[plan.artifacts[step.artifact]][step.symbol] = None
        for digest in set(plan.artifacts):
            plans[digest] += 1
    found = [
        ExplainedKernel(digest, tuple(symbols[digest]), len(each.data), costs.binary(each), plans[digest])
        for digest, each in artifacts.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.stored, each.digest)))


def used_terms(packed: Sequence[PackedProblem], target: Target, selection: Selection) -> dict[str, bool]:
    """A line for each term of the selection that counts for this target, and whether one of the plans fits it.

    A trait and a mode are used by a problem. A selection for several targets may have terms for one of them alone.
    """
    found: dict[str, bool] = {}

    def note(key: str, what: str, term: object, used: bool) -> None:
        found[f"{selection.place(key)}: no {what} {term}"] = used

    signatures = [each.signature for each in packed]
    for trait in selection.traits:
        note("traits", "problem has the types", trait, any(map(trait.fits, signatures)))
    for mode in selection.modes:
        note("modes", "problem has the mode", mode, mode in map(mode_of, signatures))
    solvers = {choice.solver for each in packed for choice in each.choices}
    for pattern in limited_by(selection.solvers, target.family):
        note("solvers", "plan is of the solver", pattern, any(names_solver(name, pattern) for name in solvers))
    if isinstance(target, CudaTarget) and selection.limits_shapes(target):
        plans = [decode(plan.data) for each in packed for plan in each.plans]
        shapes = [shape for plan in plans if (shape := _shape(plan, target)) is not None]
        for tile in selection.tiles:
            note("tiles", "plan has the tile", tile, any(each.block_m and tile.fits(each) for each in shapes))
        for stages in selection.arch_stages:
            note("arch_stages", "plan is of", stages, any(stages.fits(each, target) for each in shapes))
    return found


def _shape(plan: Plan, target: Target) -> KernelShape | None:
    if not isinstance(target, CudaTarget):
        return None
    (candidate,) = candidates(parse_key(plan.problem), target, (plan.solver,))
    return shape_of(candidate.solver, candidate.geometry, read_config(plan.solver, plan.config), target)


def _instead(
    packed: PackedProblem, plan: Plan, choice: Choice, target: Target, selection: Selection, layers: Layers,
    cache: ArtifactCache,
) -> str:  # fmt: skip
    """The kernel that would be taken without the selection, with the reason why it is out; empty if it is this one."""
    if not selection.limits_kernels(target):
        return ""
    try:
        free = decide(as_held(Request(packed.signature, target, "fast", layers, cache)))
    except NoSolutionError:
        return ""
    if (free.solver, free.config) == (choice.solver, choice.config):
        return ""
    (candidate,) = candidates(parse_key(plan.problem), target, (free.solver,))
    if not isinstance(candidate.verdict, Accepted):
        return ""
    reason = selection.refuses_config(candidate, free.config, target)
    return f"{free.solver} {free.config}: {reason}" if reason else ""
