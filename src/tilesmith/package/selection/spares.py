"""Plans of kernels that a package has for other problems: what runs when a size budget takes a problem's own kernel.

CUDA kernels take sizes at run time, so a kernel of one batch often serves the others. Such a plan needs no binary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilesmith.db.layers import Layers
from tilesmith.dispatch.choice import PREDICTION, Choice
from tilesmith.dispatch.planning import build
from tilesmith.dispatch.request import Request
from tilesmith.errors import CompileError, NoCompilerError, PlanError
from tilesmith.package.build import PackedProblem, packed_plan
from tilesmith.package.selection.rules import Selection
from tilesmith.package.selection.terms import mode_of, types_of
from tilesmith.plan.serial import read_head
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Accepted, Config
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.targets.target import CudaTarget, Target
from tilesmith.toolchain.cache import ArtifactCache

MOST = 16  # spare plans of a problem
_MOST_DRAFTS = 32  # kernels that are generated to see whether they are among those of the package
_Group = tuple[str, str, tuple[str, ...]]


def with_spares(
    packed: Sequence[PackedProblem], target: Target, layers: Layers, cache: ArtifactCache, selection: Selection
) -> tuple[PackedProblem, ...]:
    """Each problem with spare plans behind its own, those with the best estimates first.

    A spare plan is of a solver and config of another problem with the same mode and types, is let in by the selection,
    and counts binaries alone that the problems have. A problem without a plan stays without one.
    """
    if not isinstance(target, CudaTarget):
        return tuple(packed)  # C kernels have the sizes in their text
    used: dict[_Group, dict[str, None]] = defaultdict(dict)
    for each in packed:
        for choice in each.choices:
            used[_group(each.signature, choice.solver)][choice.config] = None
    digests = {artifact.digest for each in packed for artifact in each.artifacts}

    def widened(each: PackedProblem) -> PackedProblem:
        if not each.plans:
            return each
        signature = parse_key(read_head(each.plans[0].data).problem)  # as its own plans spell it
        request = Request(signature, target, "fast", layers, cache)
        found = []
        for candidate, config in _spares(each, request, used, digests, selection):
            choice = Choice(candidate.name, str(config), PREDICTION, "", None, ())
            try:
                built = build(request, candidate, choice.config)
            except (CompileError, NoCompilerError, PlanError):
                continue
            found.append((choice, packed_plan(choice, built), built.artifacts))
        artifacts = dict.fromkeys((*each.artifacts, *(artifact for *_, more in found for artifact in more)))
        return replace(
            each, choices=(*each.choices, *(choice for choice, *_ in found)),
            plans=(*each.plans, *(plan for _, plan, _ in found)), artifacts=tuple(artifacts),
        )  # fmt: skip

    return tuple(map(widened, packed))


def _group(signature: Signature, solver: str) -> _Group:
    return solver, mode_of(signature.canonical), types_of(signature.canonical)


def _spares(
    each: PackedProblem, request: Request, used: dict[_Group, dict[str, None]], digests: set[str], selection: Selection
) -> Iterator[tuple[Candidate, Config]]:
    """Kernels of other problems that compute this one with binaries that are there, at most ``MOST``."""
    own = {(choice.solver, choice.config) for choice in each.choices}
    target = request.target
    options: list[tuple[float, int, Candidate, Config]] = []
    for candidate in candidates(request.signature, target):
        if not isinstance(candidate.verdict, Accepted) or selection.refuses_solver(candidate, target):
            continue
        space = None
        for text in used.get(_group(each.signature, candidate.name), ()):
            config = read_config(candidate.name, text)
            space = space or candidate.solver.search_space(candidate.geometry, target)
            if (candidate.name, text) in own or not space.contains(config):
                continue
            if not selection.refuses_kernel(candidate, config, target):
                seconds = candidate.solver.predict(candidate.geometry, config, target)
                options.append((seconds, len(options), candidate, config))
    count = 0
    for _, _, candidate, config in sorted(options, key=lambda option: option[:2])[:_MOST_DRAFTS]:
        draft = candidate.solver.draft(candidate.geometry, config, target)
        held = [request.cache.lookup(source, target) for source in draft.sources]
        if all(artifact is not None and artifact.digest in digests for artifact in held):
            yield candidate, config
            count += 1
            if count == MOST:
                return
