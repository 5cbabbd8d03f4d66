"""Plans kept beside the artifacts that they count, so that a machine without a compiler launches what is there.

``plans/<key>/<maker>.plan`` holds one plan. The key says what was chosen for which problem; the maker, what generated
it: an upgrade of the generator makes a new file in the same folder. A plan of another maker is *stale*: its bytes and
its artifacts are whole, so it launches as well as ever, but who has a compiler makes it again.

A file carries its own checksum, and the plan in it names its artifacts by digest: a file that is damaged or has lost
an artifact counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilesmith.errors import PlanError
from tilesmith.plan.records import Plan
from tilesmith.plan.serial import decode, encode
from tilesmith.solvers.generation import generator_digest
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.cache import Artifact, ArtifactCache

_FORMAT = "tilesmith plan 2"
_log = logging.getLogger("tilesmith.cache")


@dataclass(frozen=True)
class HeldPlan:
    """A plan of the cache with its artifacts, in the plan's order; ``stale`` when another generator made it."""

    plan: Plan
    artifacts: tuple[Artifact, ...]
    stale: bool


def find_plan(
    cache: ArtifactCache, problem: str, solver: str, revision: int, config: str, target: Target
) -> HeldPlan | None:
    """The plan of a choice, made by today's generator if there is one, else the youngest of another."""
    folder = _folder(cache, problem, solver, revision, config, target)
    fresh = folder / f"{_maker(target)}.plan"
    found = _load(fresh, cache)
    if found is not None:
        return HeldPlan(*found, stale=False)
    for path in _youngest_first(folder):
        if path != fresh and (found := _load(path, cache)) is not None:
            return HeldPlan(*found, stale=True)
    return None


def keep_plan(cache: ArtifactCache, plan: Plan, revision: int, target: Target) -> None:
    """Stage, fsync, rename; a folder that cannot be written costs the next process some time and nothing else."""
    folder = _folder(cache, plan.problem, plan.solver, revision, plan.config, target)
    payload, staged = encode(plan), ""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, staged = tempfile.mkstemp(prefix=".stage-", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, folder / f"{_maker(target)}.plan")
    except OSError as error:
        if staged:
            with contextlib.suppress(OSError):
                os.unlink(staged)
        _log.info("plan %s cannot be kept (%s)", folder, error)


def _folder(cache: ArtifactCache, problem: str, solver: str, revision: int, config: str, target: Target) -> Path:
    key = _digest(_FORMAT, problem, solver, str(revision), config, target.name, *_instructions(target))
    return cache.directory / "plans" / key[:40]


def _instructions(target: Target) -> tuple[str, ...]:
    """What a target's name says, unless somebody has changed the record: the instructions that its kernels may use."""
    if isinstance(target, CpuTarget):
        return (str(target.vector_bytes), str(target.bf16_dot), str(target.fp16_convert))
    return ()


def _maker(target: Target) -> str:
    """What makes plans and their sources: the generator, and every fact of the target that it may ask for."""
    return _digest(generator_digest(), repr(target))[:16]


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


def _youngest_first(folder: Path) -> list[Path]:
    dated = []
    with contextlib.suppress(OSError):
        for path in folder.glob("*.plan"):
            with contextlib.suppress(OSError):
                dated.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(dated, reverse=True)]


def _load(path: Path, cache: ArtifactCache) -> tuple[Plan, tuple[Artifact, ...]] | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("plan %s cannot be read (%s); it counts as missing", path, error)
        return None
    seal, payload = data[:32], data[32:]
    if hashlib.sha256(payload).digest() != seal:
        _log.warning("plan %s is damaged; it counts as missing", path)
        return None
    try:
        plan = decode(payload)
    except PlanError as error:
        _log.warning("plan %s cannot be used (%s); it counts as missing", path, error)
        return None
    artifacts = [cache.find(digest) for digest in plan.artifacts]
    held = tuple(artifact for artifact in artifacts if artifact is not None)
    return (plan, held) if len(held) == len(artifacts) else None
