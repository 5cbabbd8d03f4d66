"""Plans of CPU problems whose kernels are linked: drafted as C text, and compiled by the library's own project.

A plan names a binary by its sha256. A linked kernel has no binary yet, and another one with every compiler: the plan
names it by the sha256 of its text and its flags instead, and the library's table says which function that is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tilesmith import env
from tilesmith.db.layers import Layers
from tilesmith.dispatch.answers import as_held
from tilesmith.dispatch.choice import DATABASE, Choice
from tilesmith.dispatch.planning import existing_config
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.errors import CompileError, NoSolutionError, PlanError, TilesmithError
from tilesmith.package.build import PackedProblem
from tilesmith.package.embed.records import LinkedKernel
from tilesmith.package.making import PackedPlan
from tilesmith.package.selection.choice import decide_selected
from tilesmith.package.selection.rules import Selection
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Source
from tilesmith.plan.serial import encode
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.generation import provenance_of
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.targets.target import CpuTarget
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.toolchain.compilers import linked_flags
from tilesmith.toolchain.plans import digest_of
from tilesmith.toolchain.toolchains import unit_text

_FORM = "tilesmith linked kernel 1"
_TEXT_BYTES = 2  # of C for each byte of the compiled kernel, at least
_log = logging.getLogger("tilesmith.embed")


@dataclass(frozen=True)
class LinkedProblem:
    """A problem with its plans, or with the reason why it has none, and the kernels that its plans count."""

    packed: PackedProblem
    kernels: tuple[LinkedKernel, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """A plan that another package holds: ``time_us`` is its measured median there, 0 if there is none."""

    solver: str
    config: str
    time_us: float = 0.0


def link_problems(
    signatures: Sequence[Signature], target: CpuTarget, layers: Layers, cache: ArtifactCache, plans: int = 1,
    listener: Callable[[PackedProblem], None] | None = None, selection: Selection | None = None,
) -> tuple[LinkedProblem, ...]:  # fmt: skip
    """The plans of each problem for ``target``, in the order given. Nothing is compiled, measured or written.

    Args:
        signatures: Problems; of two with the same key the first counts.
        target: What they are for; need not be this machine.
        layers: Databases: a record says which solver and config; without one the cost model does.
        cache: Named in requests; neither read nor written.
        plans: At most this many for each problem: the best, and those that dispatch would take without it.
        listener: Called with each problem when it is done. None: no calls.
        selection: Lets in problems and kernels, whatever their size. None: any.
    """
    found: dict[str, LinkedProblem] = {}
    for signature in signatures:
        if (key := signature.canonical.key()) in found:
            continue
        out = "" if selection is None else selection.refuses_problem(signature)
        if out:
            found[key] = LinkedProblem(PackedProblem(signature, reason=out, refused=True))
        else:
            request = Request(signature, target, "fast", layers, cache, env.ONLY_SOLVER.get())
            found[key] = _linked(request, plans, selection)
        if listener is not None:
            listener(found[key].packed)
    return tuple(found.values())


def link_plan(signature: Signature, target: CpuTarget, wanted: Wanted) -> LinkedProblem:
    """The plan of a solver and config that a package holds, made by today's generator; else the reason."""
    try:
        (candidate,) = candidates(signature, target, (wanted.solver,))
        plan, kernels = _drafted(signature, candidate, wanted.config, target, wanted.time_us)
    except (TilesmithError, ValueError) as error:
        return LinkedProblem(PackedProblem(signature, reason=f"{wanted.solver}: {error}"))
    choice = Choice(wanted.solver, wanted.config, DATABASE, "", wanted.time_us or None, ())
    return _problem(signature, [(choice, plan)], kernels)


def _linked(request: Request, count: int, selection: Selection | None) -> LinkedProblem:
    request = request if request.only else as_held(request)
    decide_next: Callable[[Request, frozenset[tuple[str, str]]], Choice] = decide
    if selection is not None and selection.limits_kernels(request.target):
        decide_next = partial(decide_selected, selection)
    found: list[tuple[Choice, PackedPlan]] = []
    kernels: dict[LinkedKernel, None] = {}
    without: frozenset[tuple[str, str]] = frozenset()
    reason = ""
    while len(found) < count:
        try:
            choice = decide_next(request, without)
            without |= {(choice.solver, choice.config)}
            (candidate,) = candidates(request.signature, request.target, (choice.solver,))
            assert isinstance(request.target, CpuTarget)
            time_us = choice.time_us if choice.basis == DATABASE else None
            plan, own = _drafted(request.signature, candidate, choice.config, request.target, time_us or 0.0)
        except NoSolutionError as error:
            reason = reason or str(error)
            break
        except (CompileError, PlanError) as error:
            _log.warning("%s cannot be made (%s); the next best is used", choice.solver, error)
            reason = reason or str(error)
            continue
        except (TilesmithError, OSError) as error:
            reason = reason or str(error)
            break
        found.append((choice, plan))
        kernels.update(dict.fromkeys(own))
    if not found:
        return LinkedProblem(PackedProblem(request.signature, reason=reason))
    return _problem(request.signature, found, kernels)


def _problem(
    signature: Signature, found: Sequence[tuple[Choice, PackedPlan]], kernels: Iterable[LinkedKernel]
) -> LinkedProblem:
    """The problem's artifacts have no bytes yet: a size budget asks for their digests alone."""
    kernels = tuple(kernels)
    artifacts = tuple(Artifact(kernel.digest, "", b"") for kernel in kernels)
    choices, plans = zip(*found, strict=True)
    return LinkedProblem(PackedProblem(signature, choices, plans, artifacts), kernels)


def _drafted(
    signature: Signature, candidate: Candidate, config: str, target: CpuTarget, time_us: float
) -> tuple[PackedPlan, tuple[LinkedKernel, ...]]:
    solver = candidate.solver
    draft = solver.draft(candidate.geometry, existing_config(candidate, config, target), target)
    kernels = [_kernel(source, target) for source in draft.sources]
    provenance = provenance_of(candidate.name, solver.revision, target.family)
    digests = [kernel.digest for kernel in kernels]
    plan = assemble(draft, signature, candidate.name, config, target, digests, provenance)
    return PackedPlan(encode(plan), solver.revision, time_us), tuple(dict.fromkeys(kernels))


def _kernel(source: Source, target: CpuTarget) -> LinkedKernel:
    text, flags = unit_text([source]), linked_flags(target)
    expected_bytes = len(source.text) // _TEXT_BYTES
    return LinkedKernel(digest_of(_FORM, text, *flags), source.symbol, text, flags, expected_bytes)
