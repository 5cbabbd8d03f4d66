"""Makes the plan of a choice with its artifacts. A cached plan is used if there is one: then nothing is generated."""

from __future__ import annotations

import logging
import shlex

from tilesmith import env
from tilesmith.dispatch.choice import BuiltPlan
from tilesmith.dispatch.packaged import advice, plan_of
from tilesmith.dispatch.request import Request
from tilesmith.errors import CompileError, NoCompilerError, NoSolutionError, PlanError
from tilesmith.plan.assemble import assemble
from tilesmith.plan.serial import Serial
from tilesmith.problems.driver import command_or_key, is_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.generation import provenance_of
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Config, parse_config
from tilesmith.solvers.table import Candidate
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.plans import HeldPlan, find_plan, keep_plan

_log = logging.getLogger("tilesmith.dispatch")


def preload_command(signature: Signature, target: Target) -> str:
    """The command that makes a problem run in ``strict`` mode on this target."""
    # A process that is strict by its environment would only say once more that nothing is ready.
    mode = "--mode hybrid " if env.FIND_MODE.get() == "strict" else ""
    where = f"--threads {target.cores}" if isinstance(target, CpuTarget) else "--device cuda"
    problem = command_or_key(signature)
    return f"tilesmith preload {mode}{where} {shlex.quote(problem) if is_key(problem) else problem}"


def held_plan(request: Request, candidate: Candidate, config: str) -> HeldPlan | None:
    """The cached plan of ``candidate`` with ``config``: nothing is generated or compiled."""
    revision = candidate.solver.revision
    return find_plan(request.cache, request.problem, candidate.name, revision, config, request.target)


def build(request: Request, candidate: Candidate, config: str) -> BuiltPlan:
    """The plan of ``candidate`` with ``config`` for the problem.

    In ``strict`` mode a plan or artifact that is not in the cache raises ``NoSolutionError``. In other modes it is
    generated and compiled, which may raise ``NoCompilerError`` or ``CompileError``. A plan of another version of the
    generator is made again if there is a compiler. A kernel package may hold the plan, too.
    """
    held = held_plan(request, candidate, config)
    if held is not None and not held.stale:
        return BuiltPlan(held.serial, held.artifacts, remembered=True)
    packed = request.packages.state and plan_of(request, candidate.name, config, candidate.solver.revision)
    if packed and not request.cache.has_refused(packed.artifacts):
        return packed
    if held is not None and request.strict:
        return BuiltPlan(held.serial, held.artifacts, remembered=True)
    if request.strict:
        raise NoSolutionError(
            f"strict mode compiles nothing, and the cache {request.cache.directory} does not hold the kernel of "
            f"{candidate.name} {config}; where there is a compiler, type "
            f"`{preload_command(request.signature, request.target)}`, or copy a cache that holds it to "
            f"TILESMITH_CACHE_DIR; {advice(request)}"
        )
    try:
        return _make(request, candidate, config)
    except NoCompilerError:
        if held is None:
            raise
        _log.info("%s %s: another version generated the plan, and there is no compiler", candidate.name, config)
        return BuiltPlan(held.serial, held.artifacts, remembered=True)


def existing_config(candidate: Candidate, config: str, target: Target) -> Config:
    """The config; ``PlanError`` for one that the solver does not have here (an imported record may say anything)."""
    try:
        found = parse_config(config)
    except ValueError:
        raise PlanError(f"{candidate.name}: {config!r} is not NAME=INTEGER ...") from None
    space = candidate.solver.search_space(candidate.geometry, target)
    if not space.contains(found) and not space.contains(found := read_config(candidate.name, config)):
        raise PlanError(f"{candidate.name}: config {config!r} is outside the search space")
    return found


def _make(request: Request, candidate: Candidate, config: str) -> BuiltPlan:
    target, cache = request.target, request.cache
    draft = candidate.solver.draft(candidate.geometry, existing_config(candidate, config, target), target)
    artifacts = []
    for artifact in cache.get_or_build_many(draft.sources, target):
        if isinstance(artifact, CompileError):
            raise artifact
        artifacts.append(artifact)
    revision = candidate.solver.revision
    provenance = provenance_of(candidate.name, revision, target.family)
    digests = [artifact.digest for artifact in artifacts]
    plan = assemble(draft, request.signature, candidate.name, config, target, digests, provenance)
    serial = Serial.of(plan)
    keep_plan(cache, serial, revision, target)
    by_digest = {artifact.digest: artifact for artifact in artifacts}
    return BuiltPlan(serial, tuple(by_digest[digest] for digest in plan.artifacts), remembered=False)
