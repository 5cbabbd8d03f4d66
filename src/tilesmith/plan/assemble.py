"""A solver's draft, once its sources are compiled, becomes a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.errors import PlanError
from tilesmith.plan.check import check_plan
from tilesmith.plan.records import Draft, Launch, Plan, Step
from tilesmith.plan.slots import slots_of
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target

ALIGNMENT = {"cpu": 64, "cuda": 256}
# Threads' scratch never shares a page, so that neither false sharing nor the prefetcher joins them.
SCRATCH_ALIGNMENT = 4096


def assemble(
    draft: Draft, signature: Signature, solver: str, config: str, target: Target, digests: Sequence[str],
    provenance: str = "",
) -> Plan:  # fmt: skip
    """The plan that runs ``draft`` for ``signature``.

    ``digests[i]`` is the artifact (sha256, hex) that holds ``draft.sources[i]``; several sources may share one.
    Raises ``PlanError`` for a draft that breaks a rule of plans.
    """
    if len(digests) != len(draft.sources):
        raise PlanError(f"{solver}: {len(draft.sources)} sources, but {len(digests)} artifacts")
    artifacts = tuple(dict.fromkeys(digests))
    place = [artifacts.index(digest) for digest in digests]

    def placed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        for step in steps:
            if isinstance(step, Launch) and not 0 <= step.artifact < len(place):
                raise PlanError(f"{solver}: step {step.symbol} counts source {step.artifact} of {len(place)}")
        return tuple(replace(s, artifact=place[s.artifact]) if isinstance(s, Launch) else s for s in steps)

    alignment = ALIGNMENT[target.family]
    offset, threads, stride = _workspace(draft, target)
    plan = Plan(
        problem=signature.canonical.key(), target=target.name, solver=solver, config=config,
        slots=slots_of(signature, draft.in_place), artifacts=artifacts, prepare=placed(draft.prepare),
        run=placed(draft.run), packed_bytes=_round_up(draft.packed_bytes, alignment),
        workspace_bytes=offset + threads * stride, scratch_offset=offset, scratch_stride=stride, threads=threads,
        alignment=alignment, provenance=provenance, family=target.family,
    )  # fmt: skip
    check_plan(plan)
    return plan


def workspace_bytes(draft: Draft, target: Target) -> int:
    """``Plan.workspace_bytes`` of the plan of ``draft``: on a CPU with the scratch memory of every thread."""
    offset, threads, stride = _workspace(draft, target)
    return offset + threads * stride


def _workspace(draft: Draft, target: Target) -> tuple[int, int, int]:
    """Where the threads' scratch memory begins, how many threads there are, and the bytes of each."""
    offset = _round_up(draft.workspace_bytes, ALIGNMENT[target.family])
    if target.family != "cpu":  # a GPU's shared memory is no part of the workspace
        return offset, 1, 0
    launches = [step for step in (*draft.prepare, *draft.run) if isinstance(step, Launch)]
    scratch = max((launch.shared_bytes for launch in launches), default=0)
    return offset, target.cores, _round_up(scratch, SCRATCH_ALIGNMENT)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
