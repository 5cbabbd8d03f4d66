"""What a selection let into a package, what it left out and why, and what each kernel takes: for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.db.layers import Layers
from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import as_held, decide
from tilesmith.errors import NoSolutionError
from tilesmith.package.build import PackedProblem
from tilesmith.package.selection_rules import Selection, limited_by, names_solver
from tilesmith.package.selection_shape import KernelShape, shape_of
from tilesmith.package.selection_size import expected_us, package_costs, plain_us
from tilesmith.package.selection_terms import mode_of, types_of
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


def unused_terms(packed: Sequence[PackedProblem], target: Target, selection: Selection) -> tuple[str, ...]:
    """One line for each term of the selection that no problem, or no kernel of the plans, fits."""
    found = []
    signatures = [each.signature for each in packed]
    for trait in selection.traits:
        if not any(trait.fits(each) for each in signatures):
            found.append(f"{selection.place('traits')}: no problem has the types {trait}")
    for mode in selection.modes:
        if mode not in map(mode_of, signatures):
            found.append(f"{selection.place('modes')}: no problem has the mode {mode}")
    solvers = {choice.solver for each in packed for choice in each.choices}
    for pattern in limited_by(selection.solvers, target.family):
        if not any(names_solver(name, pattern) for name in solvers):
            found.append(f"{selection.place('solvers')}: no plan for {target.name} is of the solver {pattern}")
    if isinstance(target, CudaTarget):
        shapes = [_shape(decode(plan.data), target) for each in packed for plan in each.plans]
        held = [shape for shape in shapes if shape is not None]
        for tile in selection.tiles:
            if not any(shape.block_m and tile.fits(shape) for shape in held):
                found.append(f"{selection.place('tiles')}: no plan for {target.name} has the tile {tile}")
        for stages in selection.arch_stages:
            if not any(stages.fits(shape, target) for shape in held):
                found.append(f"{selection.place('arch_stages')}: no plan for {target.name} is of {stages}")
    return tuple(found)


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
