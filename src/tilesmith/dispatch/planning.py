"""From a choice to a plan with its artifacts: remembered plans first, so that a second process generates nothing.

A remembered plan is one file of the cache folder, named by everything that decides it. It carries its own checksum,
and the plan in it names its artifacts by digest: a file that is damaged or has lost an artifact counts as missing.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilesmith import env
from tilesmith.errors import CompileError, NoSolutionError, PlanError
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Plan
from tilesmith.plan.serial import decode, encode
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.generation import generator_digest
from tilesmith.solvers.solver import parse_config
from tilesmith.solvers.table import Candidate
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import Artifact, ArtifactCache

_FORMAT = "tilesmith plan 1"
_log = logging.getLogger("tilesmith.dispatch")


@dataclass(frozen=True)
class Built:
    """A plan and the artifacts that it counts; ``remembered`` when nothing had to be generated."""

    plan: Plan
    artifacts: tuple[Artifact, ...]
    remembered: bool


def open_cache(place: ArtifactCache | Path | str | None = None) -> ArtifactCache:
    """The artifact cache at ``place``; None is what the environment says."""
    if isinstance(place, ArtifactCache):
        return place
    if place is not None:
        return _cache(str(place))
    return _cache(str(env.CACHE_DIR.get())) if env.CACHE_ON.get() else _passing_cache()


@lru_cache(maxsize=16)
def _cache(place: str) -> ArtifactCache:
    return ArtifactCache(place)


@lru_cache(maxsize=1)
def _passing_cache() -> ArtifactCache:
    """A cache that goes when the process ends."""
    folder = tempfile.mkdtemp(prefix="tilesmith-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return ArtifactCache(folder)


def build(
    signature: Signature,
    candidate: Candidate,
    config: str,
    target: Target,
    cache: ArtifactCache,
    *,
    compiles: bool = True,
) -> Built:
    """The plan of ``candidate`` with ``config`` for ``signature``.

    With ``compiles`` false (``strict`` mode), a plan or an artifact that is not at hand raises ``NoSolutionError``.
    Otherwise what is missing is generated and compiled: ``NoCompilerError``, ``CompileError``.
    """
    key = _plan_key(signature, candidate, config, target)
    path = cache.directory / "plans" / f"{key}.plan"
    remembered = _load(path, cache)
    if remembered is not None:
        return remembered
    if not compiles:
        raise NoSolutionError(
            f"strict mode compiles nothing, and the cache {cache.directory} does not hold the kernel of "
            f"{candidate.name} {config}; run it once in another mode, or copy the cache"
        )
    draft = candidate.solver.draft(candidate.geometry, parse_config(config), target)
    found = cache.get_or_build_many(draft.sources, target)
    artifacts = []
    for artifact in found:
        if isinstance(artifact, CompileError):
            raise artifact
        artifacts.append(artifact)
    provenance = f"{candidate.name}/{candidate.solver.revision} generator {generator_digest()}"
    digests = [artifact.digest for artifact in artifacts]
    plan = assemble(draft, signature, candidate.name, config, target, digests, provenance)
    _keep(path, encode(plan))
    by_digest = {artifact.digest: artifact for artifact in artifacts}
    return Built(plan, tuple(by_digest[digest] for digest in plan.artifacts), remembered=False)


def _plan_key(signature: Signature, candidate: Candidate, config: str, target: Target) -> str:
    parts = (
        _FORMAT, generator_digest(), signature.canonical.key(), candidate.name, str(candidate.solver.revision),
        config, repr(target),
    )  # fmt: skip
    digest = hashlib.sha256()
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


def _load(path: Path, cache: ArtifactCache) -> Built | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("plan %s cannot be read (%s); it counts as missing", path, error)
        return None
    seal, payload = data[:32], data[32:]
    if hashlib.sha256(payload).digest() != seal:
        _log.warning("plan %s is damaged; it is made again", path)
        return None
    try:
        plan = decode(payload)
    except PlanError as error:
        _log.warning("plan %s cannot be used (%s); it is made again", path, error)
        return None
    artifacts = [cache.find(digest) for digest in plan.artifacts]
    held = tuple(artifact for artifact in artifacts if artifact is not None)
    return Built(plan, held, remembered=True) if len(held) == len(artifacts) else None


def _keep(path: Path, payload: bytes) -> None:
    """Stage, fsync, rename; a folder that cannot be written costs the next process some time and nothing else."""
    staged = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, staged = tempfile.mkstemp(prefix=".stage-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except OSError as error:
        if staged:
            with contextlib.suppress(OSError):
                os.unlink(staged)
        _log.info("plan %s cannot be kept (%s)", path, error)
