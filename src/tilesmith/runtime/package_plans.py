"""The plans of a package for a problem on this machine.

A cache keys plans by every fact of the target, caches as they were measured too, and by the generator: a plan that
another machine or version made counts as stale there. A package says what runs: whoever installed it wants its plans,
on each machine of the target's name. So a plan's key here is the problem and the target's name, whose arch says which
instructions its kernels use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilesmith.errors import PackageError, PlanError
from tilesmith.plan.serial import Serial, check_header, read_head
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.spellings import other_spellings
from tilesmith.runtime.packages import Kind, PackageReader, name_of
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.cache import Artifact
from tilesmith.toolchain.elf import why_it_cannot_run
from tilesmith.toolchain.plans import HeldPlan

_told: set[str] = set()  # paths of packages
_log = logging.getLogger("tilesmith.package")


@dataclass(frozen=True)
class PackagedPlan:
    """A plan of a package with its binaries, its solver's revision, and its measured median (None: not measured)."""

    held: HeldPlan
    revision: int
    time_us: float | None


@lru_cache(maxsize=64)
def package_target(target: Target) -> str:
    """The name under which packages hold the plans of a target.

    Raises ``PackageError`` for a record that was changed: its name no longer says which instructions its kernels use.
    """
    if isinstance(target, CpuTarget):
        record = parse_target(target.name)
        assert isinstance(record, CpuTarget)
        if _without_caches(target) != _without_caches(record):
            raise PackageError(f"target {target.name} has other facts than its name says: no package is for it")
    return target.name


def plans_for(package: PackageReader, signature: Signature, target: Target) -> int:
    """How many plans a package has for a problem and target, under any spelling of the problem."""
    name = _name(package, signature, target)
    count = 0
    while name and package.find(Kind.PLAN, name, count) is not None:
        count += 1
    return count


def plan_for(package: PackageReader, signature: Signature, target: Target, rank: int = 0) -> HeldPlan | None:
    """The plan of this rank (0: the best) with its binaries; None if the package has none.

    Raises:
        PackageError: The plan or a binary is damaged, missing, or for another machine than the target.
    """
    name = _name(package, signature, target)
    index = package.find(Kind.PLAN, name, rank) if name else None
    return None if index is None else _plan_at(package, index, target)


def ranked_plans(package: PackageReader, signature: Signature, target: Target) -> Iterator[PackagedPlan]:
    """The plans of a package for a problem, the best first; each is read when it is asked for.

    Plans whose kernels are known to compute wrong numbers (``plan.withdrawn``) are passed over.
    Raises ``PackageError`` as ``plan_for`` does.
    """
    name, rank = _name(package, signature, target), 0
    while name and (index := package.find(Kind.PLAN, name, rank)) is not None:
        held = _plan_at(package, index, target)
        if held.serial.withdrawn:
            _tell_of_withdrawn(package, held.serial)
        else:
            yield PackagedPlan(held, *package.revision_and_time(index))
        rank += 1


def _tell_of_withdrawn(package: PackageReader, serial: Serial) -> None:
    """Once for each package."""
    if package.path not in _told:
        _told.add(package.path)
        _log.warning(
            "%s: %s %s computes wrong numbers (%s) and is not used; other plans of this package may be like it: build "
            "the package anew", package.path, serial.solver, serial.config, serial.withdrawn,
        )  # fmt: skip


def _plan_at(package: PackageReader, index: int, target: Target) -> HeldPlan:
    data = package.read(index)
    try:
        check_header(data)
        serial = read_head(data)
    except PlanError as error:
        raise PackageError(f"{package.path}: {error}") from None
    held = []
    for digest in serial.artifacts:
        place = package.find(Kind.BINARY, digest)
        if place is None:
            raise PackageError(f"{package.path}: the binary {digest}, which a plan counts, is missing")
        artifact = Artifact(digest, package.path, package.read(place))
        reason = why_it_cannot_run(artifact.data, target)
        if reason is not None:
            raise PackageError(f"{package.path}: the binary {digest} is for another machine ({reason})")
        held.append(artifact)
    return HeldPlan(serial, tuple(held), stale=False)


def _name(package: PackageReader, signature: Signature, target: Target) -> str:
    """The name of the problem's plans, under the first spelling that the package has; empty if it has none."""
    place = package_target(target)
    own = name_of(signature.canonical.key(), place)
    if package.find(Kind.PLAN, own) is not None:
        return own
    names = (name_of(each.canonical.key(), place) for each in other_spellings(signature))
    return next((name for name in names if package.find(Kind.PLAN, name) is not None), "")


def _without_caches(target: CpuTarget) -> CpuTarget:
    """Their sizes are measured, and no rule of what runs."""
    return replace(target, l1_bytes=0, l2_bytes=0, l3_bytes=0)
